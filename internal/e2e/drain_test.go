package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// TestDrainingConsumerFinishesRunningAndReleasesPrefetchedMessages drains a consumer as a deployment does.
func TestDrainingConsumerFinishesRunningAndReleasesPrefetchedMessages(t *testing.T) {
	t.Parallel()
	// A worker prefetches nothing while its handlers are slow, which can happen on a busy machine.
	const tries = 5
	for range tries {
		if drainOnce(t) > 0 || t.Failed() {
			return
		}
	}
	t.Errorf("in %d attempts the drained process had no prefetched messages", tries)
}

// drainOnce drains a consumer while all its handlers are busy, and returns the number of prefetched messages it
// released.
func drainOnce(t *testing.T) (released int) {
	t.Helper()
	srv, j := redistest.Shared(t), newJournal()
	q := open(t, srv.URL()).Queue(newQueueName(t))
	role := consumer{URL: srv.URL(), Queues: []string{q.Name()}, Concurrency: 2}

	// Quick messages make the worker prefetch. They are followed by two that block both its handlers.
	const quick, blocking, waiting = 60, 2, 100
	var msgs []later.Outgoing
	add := func(n int, payload string) {
		for range n {
			order := time.UnixMilli(int64(1 + len(msgs)))
			msgs = append(msgs, later.Outgoing{Payload: []byte(payload), When: later.At(order)})
		}
	}
	add(quick, doNothing)
	add(blocking, doBlock)
	add(waiting, doNothing)
	sendBatch(t, q, msgs)

	leaver := startConsumer(t, j, "leaver", role)
	j.await(t, quick+blocking, event{From: "leaver", Kind: later.EventStarted})
	leaver.signal(syscall.SIGTERM)
	claimed := len(j.find(event{From: "leaver", Kind: later.EventClaimed}))
	j.await(t, claimed-quick-blocking, event{From: "leaver", Kind: later.EventReleased})
	leaver.release()
	leaver.drain()
	if n := len(j.find(event{From: "leaver", Kind: later.EventAcked})); n != quick+blocking {
		t.Errorf("the drained process acked %d messages; want the %d that it started", n, quick+blocking)
	}

	heir := startConsumer(t, j, "heir", role)
	j.await(t, waiting, event{From: "heir", Kind: later.EventAcked, Attempt: 1})
	heir.drain()
	j.wantOnce(t, len(msgs))
	wantEmpty(t, q, srv.Client(t), 0)
	return len(j.find(event{From: "leaver", Kind: later.EventReleased}))
}
