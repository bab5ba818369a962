package slots

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/store"
)

// message is a Task that ends when it is told to.
type message struct {
	queue *Queue
	begun atomic.Bool // or lost
	run   func()
	rest  func()
}

func (m *message) Slots() *Queue      { return m.queue }
func (m *message) Arrived() time.Time { return time.Time{} }
func (m *message) Begin() bool        { return !m.begun.Swap(true) }
func (m *message) Ran() time.Duration { return 0 }
func (m *message) Exited()            {}

func (m *message) Run() (rest func()) {
	if m.run != nil {
		m.run()
	}
	return m.rest
}

func messages(q *Queue, n int, run func()) []Task {
	all := make([]Task, n)
	for i := range all {
		all[i] = &message{queue: q, run: run}
	}
	return all
}

func newTestQueue(priority, concurrency int) *Queue {
	return NewQueue(Config{Weight: 1, Priority: priority, Concurrency: concurrency, MaxPrefetch: 10})
}

func TestSchedulerDoesNotRunALostBufferedMessage(t *testing.T) {
	q := newTestQueue(0, 1)
	s := New(1, 0, []*Queue{q}, func() {})
	var ran []int
	tasks := messages(q, 3, nil)
	for i, m := range tasks {
		m.(*message).run = func() {
			ran = append(ran, i)
			if i == 0 {
				tasks[1].(*message).begun.Store(true) // as a heartbeat does for a cancelled message
			}
		}
	}
	r := s.Reserve(t.Context(), q)
	if r == nil || r.slots != 1 || r.room != 0 || r.Max != 1 {
		t.Fatalf("reserved %+v", r)
	}
	s.Deliver(t.Context(), q, r, tasks, true, &store.Claim{})
	s.Wait()
	if fmt.Sprint(ran) != "[0 2]" {
		t.Errorf("the messages %v ran; want the first and the last", ran)
	}
	if s.Handlers() != 0 || s.free != 1 {
		t.Errorf("%d handlers run and %d slots are free at the end; want 0 and 1", s.Handlers(), s.free)
	}
}

// The rest of a task may take as long as a call to the store, so it holds no slot. Its goroutine then waits for the
// next task, until Stop.
func TestRestOfATaskHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(0, 1)
		s := New(1, 0, []*Queue{q}, func() {})
		done := make(chan struct{})
		var steps, goroutines []string
		step := func(text string) func() {
			return func() {
				stack := make([]byte, 64) // begins with the goroutine's number
				stack = stack[:runtime.Stack(stack, false)]
				steps, goroutines = append(steps, text), append(goroutines, strings.Fields(string(stack))[1])
			}
		}
		deliver := func(run, rest func()) {
			tasks := messages(q, 1, run)
			tasks[0].(*message).rest = rest
			s.Deliver(t.Context(), q, s.Reserve(t.Context(), q), tasks, true, &store.Claim{})
			synctest.Wait()
		}
		deliver(step("first"), func() {
			<-done
			step("rest of the first")()
		})
		deliver(step("second"), step("rest of the second"))
		close(done)
		synctest.Wait()
		deliver(step("third"), nil)
		want := "[first second rest of the second rest of the first third]"
		if got := fmt.Sprint(steps); got != want {
			t.Errorf("the steps were %s; want %s", got, want)
		}
		if goroutines[4] != goroutines[1] {
			t.Errorf("the goroutines were %v; want the third task on the one that became free first", goroutines)
		}
		s.Stop()
		s.Wait()
	}) // fails if a goroutine remains
}

// Between the check whether the worker drains and the delivery there must be no gap, in which a message would
// be buffered that nobody handles or releases.
func TestSchedulerDeliversNothingOnceTheDrainHasBegun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := newTestQueue(0, 2)
	s := New(2, 0, []*Queue{q}, func() {})
	r := s.Reserve(ctx, q)
	tasks := messages(q, 3, func() { t.Error("a task was started") })
	cancel()
	if left := s.Stop(); len(left) != 0 {
		t.Errorf("Stop returned %d tasks before the delivery", len(left))
	}
	if unwanted := s.Deliver(ctx, q, r, tasks, false, &store.Claim{}); len(unwanted) != 3 || q.buffer.len() != 0 {
		t.Errorf("%d tasks were returned and %d buffered; want 3 and 0", len(unwanted), q.buffer.len())
	}
	if s.free != 2 || q.held != 0 || q.coming != 0 {
		t.Errorf("%d slots are free, %d held, room for %d is reserved; want 2, 0, 0", s.free, q.held, q.coming)
	}
}

// The second queue joins when half of the limit has passed. It must not begin the time of the first one anew.
func TestPriorityStarvationTimeIsThatOfTheFirstQueueOfALevelThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		high, first, second := newTestQueue(1, 1), newTestQueue(0, 1), newTestQueue(0, 1)
		const limit = 4 * time.Second
		turns := newTurns([]*Queue{high, first, second}, limit)
		turns.update(high, true)
		turns.update(first, true)
		time.Sleep(limit / 2)
		turns.update(second, true)
		time.Sleep(limit/2 - 1)
		if got := turns.first(); got != high {
			t.Error("a lower queue has its turn before the limit")
		}
		time.Sleep(time.Nanosecond)
		if got := turns.first(); got != first {
			t.Error("the lower queues have no turn when the first of them has waited for the limit")
		}
		turns.taken(first)
		if got := turns.first(); got != high {
			t.Error("the time does not begin anew after a turn")
		}
	})
}

// BenchmarkSchedulerSlot measures how a slot passes from one message to the next, next to idle queues and among
// queues that all want it.
func BenchmarkSchedulerSlot(b *testing.B) {
	for _, c := range []struct{ queues, busy int }{{1, 1}, {10_000, 1}, {10_000, 10_000}} {
		b.Run(fmt.Sprintf("%d of %d queues busy", c.busy, c.queues), func(b *testing.B) {
			queues, tasks := make([]*Queue, c.queues), make([][]Task, c.queues)
			for i := range queues {
				queues[i] = NewQueue(Config{Weight: 1, Concurrency: 1})
				tasks[i] = messages(queues[i], 1, nil)
			}
			s := New(1, 0, queues, func() {})
			for i, q := range queues[:c.busy] {
				q.buffer.push(tasks[i])
				s.update(q)
			}
			var running Task
			s.distribute(&running)
			for b.Loop() {
				m := running.(*message)
				m.begun.Store(false)
				m.queue.buffer.push([]Task{m})
				running = s.next(m)
			}
		})
	}
}
