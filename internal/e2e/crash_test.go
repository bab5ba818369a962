package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

func TestProducerKilledAtAnyPointLeavesNothingPartlySent(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	srv, j := redistest.Shared(t), newJournal()
	q := open(t, srv.URL()).Queue(newQueueName(t))
	rdb := srv.Client(t)
	for round := range 6 {
		name := fmt.Sprint("producer", round)
		victim := start(t, j, name, producer{URL: srv.URL(), Queue: q.Name(), Name: name})
		j.await(t, 1+random.IntN(1000), event{From: name, Kind: later.EventSent})
		victim.kill()

		found := locations(t, rdb, q.Name())
		for _, e := range j.find(event{Kind: later.EventSent}) {
			if found[e.ID] == "" {
				t.Errorf("message %s was acknowledged and is missing", e.ID)
			}
		}
		// The next rounds then find messages in all locations.
		if err := receive(t, q, 3)[0].Bury(bounded(t), nil); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
	}
}

func TestConsumerKilledInItsHandlerLeavesTheMessageToAnother(t *testing.T) {
	t.Parallel()
	srv, j := redistest.Shared(t), newJournal()
	q := open(t, srv.URL()).Queue(newQueueName(t))
	role := consumer{URL: srv.URL(), Queues: []string{q.Name()}, Lease: 2 * time.Second}
	victim := startConsumer(t, j, "victim", role)
	id := send(t, q, doBlock)
	j.await(t, 1, event{From: "victim", Kind: later.EventStarted, ID: id, Attempt: 1})

	heir := startConsumer(t, j, "heir", role)
	heir.release()
	victim.kill()
	j.await(t, 1, event{From: "heir", Kind: later.EventAcked, ID: id, Attempt: 2})
	heir.drain()
	wantEmpty(t, q, srv.Client(t), 0)
}

func TestPoisonMessageIsDeadAfterItsAttempts(t *testing.T) {
	t.Parallel()
	srv, j := redistest.Shared(t), newJournal()
	q := open(t, srv.URL()).Queue(newQueueName(t))
	role := consumer{URL: srv.URL(), Queues: []string{q.Name()}, Concurrency: 2, Lease: time.Second}
	const attempts, others = 3, 40
	var poison string
	for i := range others {
		if i == others/2 {
			poison = send(t, q, doDie, later.MaxAttempts(attempts))
		}
		send(t, q, doNothing)
	}

	for attempt := 1; attempt <= attempts; attempt++ {
		victim := startConsumer(t, j, fmt.Sprint("victim", attempt), role)
		victim.awaitExit()
		if n := len(j.find(event{Kind: later.EventStarted, ID: poison})); n != attempt {
			t.Fatalf("the poison message started %d times; want %d", n, attempt)
		}
	}
	survivor := startConsumer(t, j, "survivor", role)
	j.await(t, 1, event{From: "survivor", Kind: later.EventDied, ID: poison})
	last := send(t, q, doNothing)
	j.await(t, 1, event{From: "survivor", Kind: later.EventAcked, ID: last})
	survivor.drain()

	info := get(t, q, poison)
	if info.State != later.StateDead || info.DeadReason != later.DeadLeaseExpired || info.Attempts != attempts {
		t.Errorf("the poison message is %s, %s, after %d attempts; want dead, lease_expired, %d",
			info.State, info.DeadReason, info.Attempts, attempts)
	}
	started := map[string]bool{}
	for _, e := range j.find(event{Kind: later.EventStarted}) {
		started[e.ID] = true
	}
	if len(started) != others+2 {
		t.Errorf("%d messages were handled; want all %d", len(started), others+2)
	}
	wantEmpty(t, q, srv.Client(t), 1)
}
