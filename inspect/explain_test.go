package inspect

import (
	"testing"
	"time"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

func TestExplanationCountsTheWorkersThatMayClaim(t *testing.T) {
	for queue, want := range map[string][2]int{
		"q": {4, 2}, "other": {1, 1}, reserved.Schedules: {5, 3}, "topic:t": {5, 3},
	} {
		e := Explanation{Queue: queue, ID: "a"}
		workers := []fleet.Info{
			{Name: "running", State: fleet.Running, Queues: []string{"q"}, QueueCount: 1,
				Held: []fleet.Held{{Queue: "q", ID: "b"}, {Queue: "r", ID: "a"}}},
			{State: fleet.Paused, Queues: []string{"p", "q"}, QueueCount: 2},
			{State: fleet.Draining, Queues: []string{"q"}, QueueCount: 1},
			{State: fleet.Running, Queues: []string{"p"}, QueueCount: 1000}, // more than it names
			{State: fleet.Running, Queues: []string{"p"}, QueueCount: 1},
		}
		loads := newLoads(workers)
		of := loads.of(queue)
		e.heldBy(workers, func(h *fleet.Held) bool { return h.ID == e.ID })
		if of.workers != want[0] || of.running != want[1] || e.Worker != "" {
			t.Errorf("%s: %d workers, %d running, held by %q; want %v", queue, of.workers, of.running, e.Worker, want)
		}
	}
}

// Explanation names the worker with the message in flight of the key, as far as workers have reported it.
func TestExplanationNamesTheWorkerOfTheKey(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	key := store.KeyState{Key: "k", KeyFlow: store.KeyFlow{Concurrency: 1}, Leased: 1, Waiting: 2}
	e := Explanation{Queue: "q", ID: "a", Reason: WhyLimited, Key: &key, Now: now}
	for _, test := range []struct {
		held []fleet.Held
		want string
	}{
		{nil, "its key k has 1 of 1 messages in flight, and 2 of its messages wait"},
		{[]fleet.Held{{Queue: "r", Key: "k"}, {Queue: "q", Key: "l"}},
			"its key k has 1 of 1 messages in flight, and 2 of its messages wait"},
		{[]fleet.Held{{Queue: "q", ID: "b", Key: "k", Since: now.Add(-3 * time.Second)}},
			"its key k has 1 of 1 messages in flight, for 3 s at worker w1, and 2 of its messages wait"},
	} {
		e.heldBy([]fleet.Info{{Name: "w1", Held: test.held}}, func(h *fleet.Held) bool { return h.Key == key.Key })
		if got := e.Text(time.UTC); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
