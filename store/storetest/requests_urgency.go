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

// repeatUrgentSend repeats sends of urgent messages after the flow has lost its urgencies, and then all its limits.
func (e requestEnv) repeatUrgentSend(again func() []store.Store) {
	e.t.Helper()
	e.must(e.s.SetFlow(e.t.Context(), "q", urgent, nil))
	sends := map[string]store.Outgoing{}
	for _, id := range []string{"alone", "once"} {
		m := plainMessage(id)
		m.Urgency = store.UrgencyHigh
		sends[id] = m
	}
	once := sends["once"]
	once.Once = store.NewOnce([]byte("k"), []byte("m"))
	sends["once"] = once
	send := func(s store.Store, id string) ([]store.SendResult, error) {
		ctx := store.WithRequest(e.t.Context(), store.Request{Session: "send " + id, Number: 7})
		return s.Send(ctx, "q", []store.Outgoing{sends[id]})
	}
	first := map[string][]store.SendResult{}
	for id := range sends {
		results, err := send(e.s, id)
		e.must(err)
		first[id] = results
	}
	for _, f := range []store.Flow{fair, {}} {
		e.must(e.s.SetFlow(e.t.Context(), "q", f, nil))
		for _, s := range again() {
			for id := range sends {
				if got, err := send(s, id); err != nil || !reflect.DeepEqual(got, first[id]) {
					e.t.Errorf("flow %+v: the repetition returns %+v, %v, want %+v", f, got, err, first[id])
				}
			}
		}
	}
}
