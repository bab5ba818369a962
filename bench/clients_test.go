package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func recorded(t *testing.T, batch int) (s *server, calls *scriptCalls) {
	t.Helper()
	if err := redisInstalled(); err != nil {
		t.Skip(err)
	}
	s, err := startRedis(t.Context(), persistNone)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	calls, err = recordCalls(t.Context(), s.addr, batch, 100)
	if err != nil {
		t.Fatal(err)
	}
	return s, calls
}

// TestClientsReadTheSameReplies covers every kind of reply: new and duplicate messages, held ones and others.
func TestClientsReadTheSameReplies(t *testing.T) {
	ownTemp(t)
	const batch = 5
	s, calls := recorded(t, batch)
	for i, subject := range clientSubjects() {
		c, err := subject.client(t.Context(), s.addr, calls)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for range batch {
			ids = append(ids, store.NewID())
		}
		for again, want := range []int{0, batch} { // the second round sends the same ids in another session
			session := subject.name + strings.Repeat("+", again)
			n, err := c.send(t.Context(), calls.sendArgs(nil, session, "1000", ids))
			if n != want || err != nil {
				t.Errorf("%s: %d duplicates, %v, want %d", subject.name, n, err, want)
			}
		}
		lease := strings.Repeat("L", i+1)
		text, n, size, err := c.claim(t.Context(), calls.claimArgs(nil, "claimer", strconv.Itoa(i+1), lease))
		if n != batch || size < batch*100 || err != nil || !slices.Equal(heldIDs(nil, text), ids) {
			t.Errorf("%s: claimed %d messages, %d bytes, lease %q, %v; want %q", subject.name, n, size, text, err, ids)
		}
		for again, want := range []int{0, batch} { // in the second round nothing is held
			n, err := c.ack(t.Context(), ackArgs(nil, "acker", strconv.Itoa(2000+2*i+again), lease, text, ids))
			if n != want || err != nil {
				t.Errorf("%s: %d refused, %v, want %d", subject.name, n, err, want)
			}
		}
		if _, err := c.send(t.Context(), nil); err == nil {
			t.Errorf("%s: a send without arguments succeeded", subject.name)
		}
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestScriptCallsCheckNoticesChangedScripts checks that a change in the recorded calls is reported.
func TestScriptCallsCheckNoticesChangedScripts(t *testing.T) {
	ownTemp(t)
	_, calls := recorded(t, 2)
	for _, script := range []*recordedCall{&calls.send, &calls.claim, &calls.ack} {
		if !strings.HasPrefix(script.body, "#!lua") || len(calls.keys) == 0 || !slices.Equal(script.keys, calls.keys) {
			t.Errorf("recorded %.20q with keys %q", script.body, script.keys)
		}
	}
	msgs := make([]store.Outgoing, 2)
	for i := range msgs {
		msgs[i].ID = calls.send.args[sendDues+2+2*i]
	}
	if err := calls.check(msgs); err != nil {
		t.Fatalf("unchanged calls: %v", err)
	}
	for name, change := range map[string]func(c *scriptCalls){
		"arguments of a send": func(c *scriptCalls) { // the envelope before the id
			c.send.args = slices.Clone(c.send.args)
			slices.Reverse(c.send.args[len(c.send.args)-2:])
		},
		"a send of 2 messages": func(c *scriptCalls) { c.send.args = c.send.args[:len(c.send.args)-1] },
		"a claim":              func(c *scriptCalls) { c.claim.args = append(slices.Clone(c.claim.args), "1") },
		"reply to a claim":     func(c *scriptCalls) { c.claim.reply = []any{time.Now().UnixMicro()} },
		"arguments of an ack":  func(c *scriptCalls) { c.ack.args = append([]string{"0"}, c.ack.args...) },
	} {
		changed := *calls
		change(&changed)
		if err := changed.check(msgs); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("changed %s: %v", name, err)
		}
	}
}
