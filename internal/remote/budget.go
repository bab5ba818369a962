package remote

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/laterq/later/store"
)

// A server limits the bytes of the calls that it handles at a time, so that a crowd of large ones does not take the
// memory of its process. A call that does not fit waits with its client: a large request is read only when there is
// room for it, and a call with a large reply is executed only then. Settles and extends have room of their own, because
// a lease depends on them, and small calls are not counted.

const (
	// DefaultInFlight is how many bytes a server has in flight at most, unless MaxInFlight says otherwise.
	DefaultInFlight = 256 << 20
	// MinInFlight is the smallest limit. It has room for one call of each kind.
	MinInFlight = 64 << 20

	// largeFrame is how many bytes of a request or a reply are not counted.
	largeFrame = 64 << 10
	// copies is how often the bytes of a request are in memory at a time: as they were decoded, as the store encodes
	// them, and in the batch that it writes.
	copies = 3
)

// budgets are the parts of a server's bytes in flight.
type budgets struct {
	requests *budget
	settles  *budget // of Settle and Extend
	replies  *budget
}

func newBudgets(limit int64) budgets {
	return budgets{requests: &budget{free: limit / 2, size: limit / 2},
		settles: &budget{free: limit / 4, size: limit / 4}, replies: &budget{free: limit / 4, size: limit / 4}}
}

// budget is a number of bytes, which calls take in the order of their requests.
type budget struct {
	size int64

	mu      sync.Mutex
	free    int64
	waiting []*claimant
}

// claimant waits for a part of a budget.
type claimant struct {
	n     int64
	given chan struct{} // closed when it has it
}

// take waits until n bytes are free, and returns how many it has taken: n, or the whole budget if n is more.
func (b *budget) take(ctx context.Context, n int64) (taken int64, err error) {
	n = min(n, b.size)
	b.mu.Lock()
	if len(b.waiting) == 0 && b.free >= n {
		b.free -= n
		b.mu.Unlock()
		return n, nil
	}
	c := &claimant{n, make(chan struct{})}
	b.waiting = append(b.waiting, c)
	b.mu.Unlock()
	select {
	case <-c.given:
		return n, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, c); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	} else {
		b.free += n
	}
	b.serve() // a smaller one behind it may fit now
	return 0, fmt.Errorf("%w: the server has too many bytes in flight: %w", store.ErrUnavailable, context.Cause(ctx))
}

// give gives n bytes back.
func (b *budget) give(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.serve()
}

// serve admits waiting calls as far as there is room.
func (b *budget) serve() {
	for len(b.waiting) > 0 && b.waiting[0].n <= b.free {
		c := b.waiting[0]
		b.waiting = b.waiting[1:]
		b.free -= c.n
		close(c.given)
	}
}
