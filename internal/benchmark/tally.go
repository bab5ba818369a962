package benchmark

import (
	"sync/atomic"
	"time"
)

// tally records which messages were handled. It ignores messages of other workloads.
type tally struct {
	seen    []atomic.Uint64
	n       int64
	begin   time.Time
	handled atomic.Int64 // counts each message once
	doubles atomic.Int64
	early   atomic.Int64
	lastAt  atomic.Int64 // since begin, when the last message was handled
	all     chan struct{}
}

func newTally(n int) *tally {
	return &tally{seen: make([]atomic.Uint64, (n+63)/64), n: int64(n), begin: time.Now(), all: make(chan struct{})}
}

// record counts a message at the start of its handler and returns how late it is. first is false for a repeated message
// or one of another workload.
func (t *tally) record(payload []byte) (late time.Duration, first bool) {
	number, due, ok := readPayload(payload)
	if !ok || int64(number) >= t.n {
		return 0, false
	}
	bit := uint64(1) << (number % 64)
	if t.seen[number/64].Or(bit)&bit != 0 {
		t.doubles.Add(1)
		return 0, false
	}
	if !due.IsZero() {
		if late = time.Since(due); late < 0 {
			t.early.Add(1)
		}
	}
	if t.handled.Add(1) == t.n {
		t.lastAt.Store(int64(time.Since(t.begin)))
		close(t.all)
	}
	return late, true
}

// took returns the time from the start until the last message was handled, or until now if some are missing.
func (t *tally) took() time.Duration {
	if at := t.lastAt.Load(); at > 0 {
		return time.Duration(at)
	}
	return time.Since(t.begin)
}
