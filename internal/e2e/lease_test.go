package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// TestABurstWithOneSlowWorkerRunsWhole: a queue that claims more than it can work on lets leases run out in the
// process, and runs messages twice or never.
func TestABurstWithOneSlowWorkerRunsWhole(t *testing.T) {
	t.Parallel()
	srv, j := redistest.Shared(t), newJournal()
	q := open(t, srv.URL()).Queue(newQueueName(t))
	const burst = 100
	msgs := make([]later.Outgoing, burst)
	for i := range msgs {
		msgs[i].Payload = []byte(doWorkFor + "20ms") // 2 s in all, twice the lease
	}
	sendBatch(t, q, msgs)
	worker := startConsumer(t, j, "worker", consumer{
		URL: srv.URL(), Queues: []string{q.Name()}, Concurrency: 1, Lease: time.Second,
	})
	j.await(t, burst, event{Kind: later.EventAcked})
	worker.drain()
	j.wantOnce(t, burst)
	wantEmpty(t, q, srv.Client(t), 0)
}

// lapsed gives a message that one process holds although its lease has ended, and that another has received.
func lapsed(t *testing.T, q, other *later.Queue) (late, holder *later.Delivery) {
	t.Helper()
	send(t, q, "wanted by two")
	late = receive(t, q, 1, later.LeaseFor(300*time.Millisecond))[0]
	holder = receive(t, other, 1)[0] // it comes when the lease of the first has ended
	if holder.ID != late.ID || holder.Attempt != 2 {
		t.Fatalf("the other process got %s, attempt %d; want %s, attempt 2", holder.ID, holder.Attempt, late.ID)
	}
	return late, holder
}

func wantLeaseLost(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, later.ErrLeaseLost) {
		t.Errorf("%s gave %v; want ErrLeaseLost", what, err)
	}
}

func TestALateAckIsRefusedAndTheNewHolderKeepsTheMessage(t *testing.T) {
	t.Parallel()
	srv, name := redistest.Shared(t), newQueueName(t)
	q, other := open(t, srv.URL()).Queue(name), open(t, srv.URL()).Queue(name)

	late, holder := lapsed(t, q, other)
	wantLeaseLost(t, "a late ack", late.Ack(bounded(t)))
	if info := get(t, q, holder.ID); info.State != later.StateLeased || info.Attempts != 1 {
		t.Errorf("after the late ack the message is %s with %d failed attempts; want leased with 1",
			info.State, info.Attempts)
	}
	if err := holder.Ack(bounded(t)); err != nil {
		t.Errorf("the holder's ack: %v", err)
	}

	late, holder = lapsed(t, q, other)
	if err := holder.Ack(bounded(t)); err != nil {
		t.Errorf("the holder's ack: %v", err)
	}
	wantLeaseLost(t, "an ack after the holder's", late.Ack(bounded(t)))
	wantEmpty(t, q, srv.Client(t), 0)
}

func TestALateNackCreatesNoSecondCopy(t *testing.T) {
	t.Parallel()
	srv, name := redistest.Shared(t), newQueueName(t)
	q, other := open(t, srv.URL()).Queue(name), open(t, srv.URL()).Queue(name)
	rdb := srv.Client(t)

	late, holder := lapsed(t, q, other)
	wantLeaseLost(t, "a late nack", late.Nack(bounded(t), 0, errors.New("too late")))
	if places := audit(t, rdb, name); len(places) != 1 || places[holder.ID] != "lease" {
		t.Errorf("after the late nack Redis holds %v; want the message under its lease", places)
	}
	if err := holder.Ack(bounded(t)); err != nil {
		t.Errorf("the holder's ack: %v", err)
	}
	wantEmpty(t, q, rdb, 0)

	late, holder = lapsed(t, q, other)
	if err := holder.Ack(bounded(t)); err != nil {
		t.Errorf("the holder's ack: %v", err)
	}
	wantLeaseLost(t, "a nack after the holder's ack", late.Nack(bounded(t), 0, errors.New("too late")))
	wantEmpty(t, q, rdb, 0)
}

func TestAPanicDoesNotKillAWorker(t *testing.T) {
	t.Parallel()
	srv, j := redistest.Shared(t), newJournal()
	q := open(t, srv.URL()).Queue(newQueueName(t))
	worker := startConsumer(t, j, "worker", consumer{URL: srv.URL(), Queues: []string{q.Name()}})

	bad := send(t, q, doPanic, later.MaxAttempts(2))
	j.await(t, 1, event{Kind: later.EventStarted, ID: bad, Attempt: 2})
	j.await(t, 1, event{Kind: later.EventDied, ID: bad})
	good := send(t, q, doNothing)
	j.await(t, 1, event{Kind: later.EventAcked, ID: good})

	info := get(t, q, bad)
	if info.State != later.StateDead || info.DeadReason != later.DeadFailed || info.Attempts != 2 {
		t.Errorf("the message is %s, %s, with %d failed attempts; want dead, failed, 2",
			info.State, info.DeadReason, info.Attempts)
	}
	for _, part := range []string{panicValue, "e2e.obey", "consumer_test.go"} {
		if !strings.Contains(info.LastError, part) {
			t.Errorf("the last error is without %q:\n%s", part, info.LastError)
		}
	}
	worker.drain()
	wantEmpty(t, q, srv.Client(t), 1)
}
