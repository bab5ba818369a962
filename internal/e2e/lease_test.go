package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// TestBurstWithOneSlowWorkerRunsEachMessageOnce guards against claiming more messages than a worker can handle within
// the lease. Their leases would expire, and messages would run twice or never.
func TestBurstWithOneSlowWorkerRunsEachMessageOnce(t *testing.T) {
	t.Parallel()
	srv, j := redistest.Shared(t), newJournal()
	q := open(t, srv.URL()).Queue(newQueueName(t))
	const burst = 100
	msgs := make([]later.Outgoing, burst)
	for i := range msgs {
		msgs[i].Payload = []byte(doWorkFor + "20ms") // 2 s in total, twice the lease
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

// lapsed returns two deliveries of a message: one to a process whose lease has ended, and the redelivery to another
// process.
func lapsed(t *testing.T, q, other *later.Queue) (late, holder *later.Delivery) {
	t.Helper()
	send(t, q, "wanted by two")
	late = receive(t, q, 1, later.Lease(300*time.Millisecond))[0]
	holder = receive(t, other, 1)[0] // arrives when the first lease has ended
	if holder.ID != late.ID || holder.Attempt != 2 {
		t.Fatalf("the other process received %s, attempt %d; want %s, attempt 2", holder.ID, holder.Attempt, late.ID)
	}
	return late, holder
}

func wantLeaseLost(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, later.ErrLeaseLost) {
		t.Errorf("%s returned %v; want ErrLeaseLost", what, err)
	}
}

func TestLateAckIsRefusedAndTheNewHolderKeepsTheMessage(t *testing.T) {
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
		t.Errorf("ack by the holder: %v", err)
	}

	late, holder = lapsed(t, q, other)
	if err := holder.Ack(bounded(t)); err != nil {
		t.Errorf("ack by the holder: %v", err)
	}
	wantLeaseLost(t, "an ack after the holder's", late.Ack(bounded(t)))
	wantEmpty(t, q, srv.Client(t), 0)
}

func TestLateNackCreatesNoSecondCopy(t *testing.T) {
	t.Parallel()
	srv, name := redistest.Shared(t), newQueueName(t)
	q, other := open(t, srv.URL()).Queue(name), open(t, srv.URL()).Queue(name)
	rdb := srv.Client(t)

	late, holder := lapsed(t, q, other)
	wantLeaseLost(t, "a late nack", late.Nack(bounded(t), 0, errors.New("too late")))
	if found := locations(t, rdb, name); len(found) != 1 || found[holder.ID] != "lease" {
		t.Errorf("after the late nack Redis holds %v; want the message under its lease", found)
	}
	if err := holder.Ack(bounded(t)); err != nil {
		t.Errorf("ack by the holder: %v", err)
	}
	wantEmpty(t, q, rdb, 0)

	late, holder = lapsed(t, q, other)
	if err := holder.Ack(bounded(t)); err != nil {
		t.Errorf("ack by the holder: %v", err)
	}
	wantLeaseLost(t, "a nack after the holder's ack", late.Nack(bounded(t), 0, errors.New("too late")))
	wantEmpty(t, q, rdb, 0)
}

func TestPanicDoesNotKillWorker(t *testing.T) {
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
	for _, part := range []string{panicValue, "e2e.handle", "consumer_test.go"} {
		if !strings.Contains(info.LastError, part) {
			t.Errorf("the last error lacks %q:\n%s", part, info.LastError)
		}
	}
	worker.drain()
	wantEmpty(t, q, srv.Client(t), 1)
}
