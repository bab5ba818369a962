package storetest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/laterq/later/store"
)

// sendUrgent sends n messages of an urgency.
func (e requestEnv) sendUrgent(n int, u store.Urgency) {
	e.t.Helper()
	for i := range n {
		m := plainMessage(fmt.Sprint(u, i))
		m.Urgency = u
		_, err := e.s.Send(e.t.Context(), "q", []store.Outgoing{m})
		e.must(err)
	}
}

// repeatUrgentClaim repeats a claim of a queue with urgencies. Its starts pass over other messages once.
func (e requestEnv) repeatUrgentClaim(again func() []store.Store) {
	e.t.Helper()
	e.must(e.s.SetFlow(e.t.Context(), "q", urgent, nil))
	e.sendUrgent(20, store.UrgencyHigh)
	e.sendUrgent(3, store.UrgencyNormal)
	req := store.ClaimRequest{Max: 4, Lease: time.Hour}
	first, err := e.s.Claim(e.request(7), "q", req)
	if err != nil || len(first.Messages) != 4 {
		e.t.Fatal(first, err)
	}
	want, last := withoutClock(first).(store.Claim), e
	for _, s := range again() {
		last = requestEnv{e.t, s}
		last.claimsAgain(e.request(7), req, want)
	}
	for _, want := range []string{"HHHN", "HHHH", "HHHN"} {
		c, err := last.s.Claim(e.t.Context(), "q", req)
		e.must(err)
		got := ""
		for _, m := range c.Messages {
			got += letters[m.Urgency]
		}
		if got != want {
			e.t.Errorf("urgencies of the next claim: %s, want %s", got, want)
		}
	}
}

// repeatUrgentSend repeats a send of an urgent message after the flow has lost its urgencies.
func (e requestEnv) repeatUrgentSend(again func() []store.Store) {
	e.t.Helper()
	e.must(e.s.SetFlow(e.t.Context(), "q", urgent, nil))
	m := plainMessage("m")
	m.Urgency = store.UrgencyHigh
	send := func(s store.Store, number int64) ([]store.SendResult, error) {
		return s.Send(e.request(number), "q", []store.Outgoing{m})
	}
	first, err := send(e.s, 7)
	e.must(err)
	e.must(e.s.SetFlow(e.t.Context(), "q", fair, nil))
	for _, s := range again() {
		if got, err := send(s, 7); err != nil || !reflect.DeepEqual(got, first) {
			e.t.Errorf("the repetition returns %+v, %v, want %+v", got, err, first)
		}
	}
}
