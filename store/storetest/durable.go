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

// durableRules hold for every durability that an engine offers: none, its disk, or replicas as well.
var durableRules = []rule{
	{"a durable send is refused before any write, or is confirmed, or reports how far it got", func(e *env) {
		for replicas, id := range []string{"on disk", "on a replica", "on two"} {
			e.sendDurably(message(id, durable(replicas, 100*time.Millisecond)))
		}
	}},
	{"a message stays when its durability is not confirmed in time", func(e *env) {
		m := message("m", durable(store.MaxReplicas, store.MinConfirm))
		if r, ok := e.sendDurably(m); ok {
			e.is(r.Err, store.ErrNotDurable)
			e.claimOne("m", held)
		}
	}},
	{"a repeated durable send is a duplicate and is confirmed like the first", func(e *env) {
		for replicas, timeout := range map[int]time.Duration{0: hangTimeout,
			store.MaxReplicas: 100 * time.Millisecond} {
			m := message("m", durable(replicas, timeout))
			first, ok := e.sendDurably(m)
			if !ok {
				continue
			}
			again, _ := e.sendDurably(m)
			if !again.Duplicate {
				e.Fatalf("the repeated send with %d replicas is not a duplicate", replicas)
			}
			if (again.Err == nil) != (first.Err == nil) {
				e.Fatalf("with %d replicas the first send returned %v and the repeated one %v",
					replicas, first.Err, again.Err)
			}
			e.cancel("m", store.StateReady)
		}
	}},
	{"a durable send of duplicates changes nothing", func(e *env) {
		e.send(message("a"), message("b", delay(time.Hour)))
		before, due := e.stats(), e.live("b", store.StateScheduled).Due
		disk := durable(0, time.Second)
		results, err := e.Store.Send(e.Context(), e.queue, []store.Outgoing{message("a", disk), message("b", disk)})
		if !errors.Is(err, store.ErrUnsupported) {
			e.ok(err)
			e.equal("results", results, []store.SendResult{{Duplicate: true}, {Duplicate: true}})
		}
		e.count(before.Scheduled, before.Ready, before.Leased, before.Dead)
		e.equal("due", e.live("b", store.StateScheduled).Due, due)
	}},
	{"the durability of one send does not affect the next", func(e *env) {
		e.sendDurably(message("a", durable(store.MaxReplicas, store.MinConfirm)))
		e.equal("plain send", e.trySend(message("b")), []store.SendResult{{}})
		e.live("b", store.StateReady)
	}},
}

// sendDurably sends a message with a Durability. It checks that the message is either refused with ErrUnsupported, or
// in the queue with nil or ErrNotDurable as its result. It returns false if the engine refused it.
func (e *env) sendDurably(m store.Outgoing) (store.SendResult, bool) {
	e.Helper()
	e.ok(m.Check())
	before := e.stats()
	results, err := e.Store.Send(e.Context(), e.queue, []store.Outgoing{m})
	if err != nil {
		e.is(err, store.ErrUnsupported)
		e.explains(err)
		e.gone(m.ID)
		e.count(before.Scheduled, before.Ready, before.Leased, before.Dead)
		return store.SendResult{}, false
	}
	e.equal("number of results", len(results), 1)
	if err := results[0].Err; err != nil {
		e.is(err, store.ErrNotDurable)
		e.equal("code", store.CodeOf(err), store.ErrNotDurable.Code)
		e.explains(err)
	}
	e.live(m.ID, store.StateReady)
	return results[0], true
}

// explains checks that the text of an error says more than its kind.
func (e *env) explains(err error) {
	e.Helper()
	for _, kind := range []error{store.ErrUnsupported, store.ErrNotDurable} {
		if strings.TrimSpace(err.Error()) == kind.Error() {
			e.Fatalf("the text of the error is only its kind: %v", err)
		}
	}
}
