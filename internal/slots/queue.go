package slots

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

const (
	// prefetchWindow is how much work a queue prefetches.
	prefetchWindow = 20 * time.Millisecond
	// MaxPrefetch is the maximum number of messages of a queue that are claimed or being claimed ahead of a
	// free slot. It is four claims' worth, so that one is handled while two are fetched before fewer than half
	// of them are left.
	MaxPrefetch = 4 * store.MaxBatch
	// MaxBuffered is how long a message may wait in a buffer before it is released for other workers.
	MaxBuffered = time.Second
	// maxSettling is the number of settles in flight above which a queue stops claiming.
	maxSettling = 4 * store.MaxBatch
	// minAhead is the minimum room for a second claim while one is in flight.
	minAhead = store.MaxBatch / 2
	// keptBuffer is the capacity up to which an empty buffer is kept. A queue that is idle costs little memory.
	keptBuffer = 32
)

// Config is the limits of a queue.
type Config struct {
	Weight, Priority int
	Concurrency      int // slots that it may hold
	MaxPrefetch      int // messages in its buffer; 0 or less for none
	// BatchSize is the number of messages for one slot, and BatchWait how long a batch that is not full waits for more.
	// Together makes one task of the messages of a batch that are still held, or returns nil if there are none. It is
	// called with the lock of the Scheduler held, and nil if each message has a slot of its own.
	BatchSize int
	BatchWait time.Duration
	Together  func([]Task) Task
	// FetchAhead starts a goroutine that calls ReserveAhead until that returns nil. It is called with the lock held.
	FetchAhead func()
}

// Queue is the state of one queue. Its fields below settling are guarded by Scheduler.mu.
type Queue struct {
	Config
	settling atomic.Int64 // settles in flight

	forming       *formingBatch // nil when no batch waits for messages
	held          int           // slots of running handlers and the fetcher
	given         int           // slots assigned to the fetcher and not yet used
	want          int           // further slots that the fetcher can use
	turn          turn          // when its turn for a slot is
	claim         Reservation   // of the fetcher's claim in flight
	suspect       bool          // the last claim failed; see claim.go
	backlog       bool          // the last claim reported that it left messages behind
	limited       bool          // the last claim reported that the queue has a flow
	unsorted      bool          // and that messages are left to sort by key
	coming        int           // room reserved in the buffer by claims in flight
	buffer        fifo
	handlerTime   time.Duration // moving average; 0 before the first
	fetcher       waitSlot
	ahead         waitSlot
	fetchingAhead bool               // fetchAhead runs
	endWait       context.CancelFunc // ends the fetcher's Wait; nil when it does not wait
}

// waitSlot is where a fetcher waits until it may claim.
type waitSlot struct {
	asleep bool
	signal chan struct{}
}

func newWaitSlot() waitSlot { return waitSlot{signal: make(chan struct{}, 1)} }

// wake wakes the fetcher that waits. Scheduler.mu is held.
func (s *waitSlot) wake() {
	if s.asleep {
		s.asleep = false
		select {
		case s.signal <- struct{}{}:
		default:
		}
	}
}

// NewQueue returns a Queue for New.
func NewQueue(cfg Config) *Queue {
	cfg.BatchSize = max(1, cfg.BatchSize)
	return &Queue{Config: cfg, fetcher: newWaitSlot()}
}

// take returns the next buffered task that is still held, or the first task of the next batch, or nil.
func (q *Queue) take() Task {
	if q.Together != nil {
		return q.takeBatch()
	}
	for q.buffer.len() > 0 {
		if t := q.pop(); t.Begin() {
			return t
		}
	}
	return nil
}

// pop removes the first task from the buffer.
func (q *Queue) pop() Task {
	t := q.buffer.pop()
	q.shrinkBuffer()
	return t
}

// shrinkBuffer frees the memory of a large buffer after a burst.
func (q *Queue) shrinkBuffer() {
	if q.buffer.len() == 0 && cap(q.buffer.tasks) > keptBuffer {
		q.buffer = fifo{}
	}
}

// room returns the number of messages to prefetch now. It is 0 while the buffer, including messages being
// claimed, is more than half full, so that claims stay large. A forming batch has room for its missing messages.
func (q *Queue) room() int {
	if q.forming != nil {
		return q.missing()
	}
	if q.limited && q.unsorted && q.coming == 0 {
		return 1 // a claim sorts messages, so that keys take turns, even if no handler is free
	}
	if q.handlerTime == 0 || q.suspect || q.limited {
		return 0
	}
	target := max(0, min(int(prefetchWindow*time.Duration(q.held)/q.handlerTime), q.MaxPrefetch))
	filled := q.buffer.len() + q.coming
	if filled > target/2 {
		return 0
	}
	return target - filled
}

// mayFetchAhead reports whether a second claim is worthwhile. A queue with a single handler gets its messages
// in order, so it has one claim at a time.
func (q *Queue) mayFetchAhead() bool {
	return q.backlog && q.Concurrency > 1 && q.MaxPrefetch > 0 && q.coming > 0 &&
		q.settling.Load() < maxSettling && q.room() >= minAhead
}

// fetchesKnown reports whether the fetcher is busy fetching messages that the last claim left behind, for which
// there are slots. That lasts a claim, and no longer than the patience with it (claim.go).
func (q *Queue) fetchesKnown() bool {
	return q.backlog && !q.fetcher.asleep && q.held < q.Concurrency
}

// recordRun adds a handler's running time to the moving average. The average rises faster than it falls, so
// that prefetching ends with the first slow message.
func (q *Queue) recordRun(ran time.Duration) {
	ran = max(ran, 1)
	if q.handlerTime == 0 || ran > q.handlerTime*8 {
		q.handlerTime = ran
		return
	}
	q.handlerTime += (ran - q.handlerTime) / 8
}

// fifo is a first-in, first-out queue of tasks.
type fifo struct {
	tasks []Task
	head  int
}

func (f *fifo) len() int { return len(f.tasks) - f.head }

func (f *fifo) first() Task { return f.tasks[f.head] }

func (f *fifo) push(tasks []Task) {
	kept := copy(f.tasks, f.tasks[f.head:])
	clear(f.tasks[kept:])
	f.tasks, f.head = append(f.tasks[:kept], tasks...), 0
}

func (f *fifo) pop() Task {
	t := f.tasks[f.head]
	f.tasks[f.head] = nil
	f.head++
	return t
}
