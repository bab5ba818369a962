package later

import (
	"context"
	"time"

	"github.com/laterq/later/store"
)

const (
	// prefetchWindow is how much work a queue prefetches.
	prefetchWindow = 20 * time.Millisecond
	// maxPrefetch is the maximum number of messages of a queue that are claimed or being claimed ahead of a
	// free slot. It is four claims' worth, so that one is handled while two are fetched before fewer than half
	// of them are left.
	maxPrefetch = 4 * store.MaxBatch
	// maxSettling is the number of settles in flight above which a queue stops claiming.
	maxSettling = 4 * store.MaxBatch
	// minAhead is the minimum room for a second claim while one is in flight.
	minAhead = store.MaxBatch / 2
	// keptBuffer is the capacity up to which an empty buffer is kept. A queue that is idle costs little memory.
	keptBuffer = 32
)

// queueShare is the scheduling state of one queue, guarded by scheduler.mu.
type queueShare struct {
	weight, limit int
	priority      int
	maxPrefetch   int
	batchSize     int           // messages for one slot: 1, or the size of a batch
	forming       *formingBatch // of a batch handler; nil when none waits for messages
	held          int           // slots of running handlers and the fetcher
	given         int           // slots assigned to the fetcher and not yet used
	want          int           // further slots that the fetcher can use
	turn          turn          // when its turn for a slot is
	claim         reservation   // of the fetcher's claim in flight
	suspect       bool          // the last claim failed; see worker_claim.go
	backlog       bool          // the last claim reported that it left messages behind
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

// wake wakes the fetcher that waits. scheduler.mu is held.
func (s *waitSlot) wake() {
	if s.asleep {
		s.asleep = false
		select {
		case s.signal <- struct{}{}:
		default:
		}
	}
}

func newQueueShare(cfg QueueConfig, maxPrefetch int) queueShare {
	return queueShare{
		weight: cfg.Weight, priority: cfg.Priority, limit: cfg.Concurrency, maxPrefetch: maxPrefetch,
		batchSize: 1, fetcher: newWaitSlot(),
	}
}

// take returns the next buffered task that is still held, or the first task of the next batch, or nil.
func (qw *queueWorker) take() *task {
	if qw.batch != nil {
		return qw.takeBatch()
	}
	for qw.buffer.len() > 0 {
		if t := qw.pop(); t.begin() {
			return t
		}
	}
	return nil
}

// pop removes the first task from the buffer.
func (qw *queueWorker) pop() *task {
	t := qw.buffer.pop()
	qw.shrinkBuffer()
	return t
}

// shrinkBuffer frees the memory of a large buffer after a burst.
func (qw *queueWorker) shrinkBuffer() {
	if qw.buffer.len() == 0 && cap(qw.buffer.tasks) > keptBuffer {
		qw.buffer = fifo{}
	}
}

// room returns the number of messages to prefetch now. It is 0 while the buffer, including messages being
// claimed, is more than half full, so that claims stay large. A forming batch has room for what is missing.
func (qw *queueWorker) room() int {
	if qw.forming != nil {
		return qw.missing()
	}
	if qw.handlerTime == 0 || qw.suspect {
		return 0
	}
	target := max(0, min(int(prefetchWindow*time.Duration(qw.held)/qw.handlerTime), qw.maxPrefetch))
	filled := qw.buffer.len() + qw.coming
	if filled > target/2 {
		return 0
	}
	return target - filled
}

// mayFetchAhead reports whether a second claim is worthwhile. A queue with a single handler gets its messages
// in order, so it has one claim at a time.
func (qw *queueWorker) mayFetchAhead() bool {
	return qw.backlog && qw.limit > 1 && qw.maxPrefetch > 0 && qw.coming > 0 &&
		qw.settling.Load() < maxSettling && qw.room() >= minAhead
}

// fetchesKnown reports whether the fetcher is busy fetching messages that the last claim left behind, for which
// there are slots. That lasts a claim, and no longer than the patience with it (worker_claim.go).
func (qw *queueWorker) fetchesKnown() bool {
	return qw.backlog && !qw.fetcher.asleep && qw.held < qw.limit
}

// recordRun adds a handler's running time to the moving average. The average rises faster than it falls, so
// that prefetching ends with the first slow message.
func (qw *queueWorker) recordRun(ran time.Duration) {
	ran = max(ran, 1)
	if qw.handlerTime == 0 || ran > qw.handlerTime*8 {
		qw.handlerTime = ran
		return
	}
	qw.handlerTime += (ran - qw.handlerTime) / 8
}

// fifo is a first-in, first-out queue of tasks.
type fifo struct {
	tasks []*task
	head  int
}

func (f *fifo) len() int { return len(f.tasks) - f.head }

func (f *fifo) first() *task { return f.tasks[f.head] }

func (f *fifo) push(tasks []*task) {
	kept := copy(f.tasks, f.tasks[f.head:])
	clear(f.tasks[kept:])
	f.tasks, f.head = append(f.tasks[:kept], tasks...), 0
}

func (f *fifo) pop() *task {
	t := f.tasks[f.head]
	f.tasks[f.head] = nil
	f.head++
	return t
}
