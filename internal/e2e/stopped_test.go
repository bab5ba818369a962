//go:build unix

package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// TestConsumerStoppedBeyondItsLeaseCannotSettle checks that a process that was suspended beyond its lease does not undo
// the work of the next holder.
func TestConsumerStoppedBeyondItsLeaseCannotSettle(t *testing.T) {
	t.Parallel()
	srv, j := redistest.Shared(t), newJournal()
	q := open(t, srv.URL()).Queue(newQueueName(t))
	role := consumer{URL: srv.URL(), Queues: []string{q.Name()}, Lease: 2 * time.Second}
	sleeper := startConsumer(t, j, "sleeper", role)
	id := send(t, q, doBlock)
	j.await(t, 1, event{From: "sleeper", Kind: later.EventStarted, ID: id})

	sleeper.signal(syscall.SIGSTOP)
	heir := startConsumer(t, j, "heir", role)
	j.await(t, 1, event{From: "heir", Kind: later.EventStarted, ID: id, Attempt: 2})
	sleeper.release()
	sleeper.signal(syscall.SIGCONT)
	j.await(t, 1, event{From: "sleeper", Kind: later.EventLeaseLost, ID: id, Attempt: 1})
	if info := get(t, q, id); info.State != later.StateLeased {
		t.Errorf("the message is %s after the suspended process settled it; want leased", info.State)
	}
	heir.release()
	j.await(t, 1, event{From: "heir", Kind: later.EventAcked, ID: id, Attempt: 2})
	if acks := j.find(event{Kind: later.EventAcked}); len(acks) != 1 {
		t.Errorf("got %d acks, want 1: %v", len(acks), acks)
	}
	sleeper.drain()
	heir.drain()
	wantEmpty(t, q, srv.Client(t), 0)
}
