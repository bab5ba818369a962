package storetest

import (
	"errors"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

func durable(replicas int, timeout time.Duration) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.Durable = store.Durability{Replicas: replicas, Timeout: timeout} }
}

// durableRules hold whatever an engine can give: nothing, its disk, or replicas as well.
var durableRules = []rule{
	{"a durable send is refused before anything is written, or confirmed, or says how far it got", func(e *env) {
		for replicas, id := range []string{"on disk", "on a replica", "on two"} {
			e.sendDurably(message(id, durable(replicas, 100*time.Millisecond)))
		}
	}},
	{"a durability that is not reached in time leaves the message there", func(e *env) {
		m := message("m", durable(store.MaxReplicas, store.MinConfirm))
		if r, ok := e.sendDurably(m); ok {
			e.is(r.Err, store.ErrNotDurable)
			e.claimOne("m", held)
		}
	}},
	{"a repeated durable send is a duplicate and is confirmed as the first one is", func(e *env) {
		for replicas, timeout := range map[int]time.Duration{0: patience, store.MaxReplicas: 100 * time.Millisecond} {
			m := message("m", durable(replicas, timeout))
			first, ok := e.sendDurably(m)
			if !ok {
				continue
			}
			again, _ := e.sendDurably(m)
			if !again.Duplicate {
				e.Fatalf("sent twice with %d replicas", replicas)
			}
			if (again.Err == nil) != (first.Err == nil) {
				e.Fatalf("with %d replicas the first send gave %v and its repetition %v", replicas, first.Err, again.Err)
			}
			e.cancel("m", store.StateReady)
		}
	}},
	{"a durable send of messages that are all there changes nothing", func(e *env) {
		e.send(message("a"), message("b", delay(time.Hour)))
		before, due := e.stats(), e.living("b", store.StateScheduled).Due
		disk := durable(0, time.Second)
		results, err := e.Store.Send(e.Context(), e.queue, []store.Outgoing{message("a", disk), message("b", disk)})
		if !errors.Is(err, store.ErrUnsupported) {
			e.ok(err)
			e.equal("results", results, []store.SendResult{{Duplicate: true}, {Duplicate: true}})
		}
		e.count(before.Scheduled, before.Ready, before.Leased, before.Dead)
		e.equal("due", e.living("b", store.StateScheduled).Due, due)
	}},
	{"what is asked of one send is not asked of the next", func(e *env) {
		e.sendDurably(message("a", durable(store.MaxReplicas, store.MinConfirm)))
		e.equal("plain send", e.trySend(message("b")), []store.SendResult{{}})
		e.living("b", store.StateReady)
	}},
}

// sendDurably sends a message and checks what every engine owes: ErrUnsupported and no message, or the message
// with nil or ErrNotDurable. It is false when the engine refused.
func (e *env) sendDurably(m store.Outgoing) (store.SendResult, bool) {
	e.Helper()
	e.ok(m.Check())
	before := e.stats()
	results, err := e.Store.Send(e.Context(), e.queue, []store.Outgoing{m})
	if err != nil {
		e.is(err, store.ErrUnsupported)
		e.says(err)
		e.gone(m.ID)
		e.count(before.Scheduled, before.Ready, before.Leased, before.Dead)
		return store.SendResult{}, false
	}
	e.equal("number of results", len(results), 1)
	if err := results[0].Err; err != nil {
		e.is(err, store.ErrNotDurable)
		e.equal("code", store.CodeOf(err), store.ErrNotDurable.Code)
		e.says(err)
	}
	e.living(m.ID, store.StateReady)
	return results[0], true
}

// says checks that an error tells more than its kind.
func (e *env) says(err error) {
	e.Helper()
	for _, kind := range []error{store.ErrUnsupported, store.ErrNotDurable} {
		if strings.TrimSpace(err.Error()) == kind.Error() {
			e.Fatalf("the error says no more than its kind: %v", err)
		}
	}
}
