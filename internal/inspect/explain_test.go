package inspect

import (
	"testing"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/reserved"
)

func TestExplanationCountsTheWorkersThatMayClaim(t *testing.T) {
	for queue, want := range map[string][2]int{"q": {4, 2}, "other": {1, 1}, reserved.Schedules: {5, 3}, "topic:t": {5, 3}} {
		e := Explanation{Queue: queue, ID: "a"}
		for _, w := range []fleet.Info{
			{Name: "running", State: fleet.Running, Queues: []string{"q"}, QueueCount: 1,
				Held: []fleet.Held{{Queue: "q", ID: "b"}, {Queue: "r", ID: "a"}}},
			{State: fleet.Paused, Queues: []string{"p", "q"}, QueueCount: 2},
			{State: fleet.Draining, Queues: []string{"q"}, QueueCount: 1},
			{State: fleet.Running, Queues: []string{"p"}, QueueCount: 1000}, // more than it names
			{State: fleet.Running, Queues: []string{"p"}, QueueCount: 1},
		} {
			e.addWorker(&w)
		}
		if e.Workers != want[0] || e.Running != want[1] || e.Worker != "" {
			t.Errorf("%s: %d workers, %d running, held by %q; want %v", queue, e.Workers, e.Running, e.Worker, want)
		}
	}
}
