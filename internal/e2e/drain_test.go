package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// TestADrainingConsumerFinishesWhatRunsAndGivesBackWhatWaits, as in a deploy.
func TestADrainingConsumerFinishesWhatRunsAndGivesBackWhatWaits(t *testing.T) {
	t.Parallel()
	// A worker that finds its handlers slow fetches nothing ahead, and on a busy machine it may.
	const tries = 5
	for range tries {
		if drainOnce(t) > 0 || t.Failed() {
			return
		}
	}
	t.Errorf("in %d tries no message waited in the process when it was drained", tries)
}

// drainOnce drains a consumer while all its slots are taken, and gives the number of messages that it had
// fetched ahead and gave back.
func drainOnce(t *testing.T) (released int) {
	t.Helper()
	srv, j := redistest.Shared(t), newJournal()
	q := open(t, srv.URL()).Queue(newQueueName(t))
	role := consumer{URL: srv.URL(), Queues: []string{q.Name()}, Concurrency: 2}

	// Quick messages make the worker fetch ahead; behind them are two that block both its slots.
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
		t.Errorf("the leaver acked %d messages; want the %d that it began", n, quick+blocking)
	}

	heir := startConsumer(t, j, "heir", role)
	j.await(t, waiting, event{From: "heir", Kind: later.EventAcked, Attempt: 1})
	heir.drain()
	j.wantOnce(t, len(msgs))
	wantEmpty(t, q, srv.Client(t), 0)
	return len(j.find(event{From: "leaver", Kind: later.EventReleased}))
}
