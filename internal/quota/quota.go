// Package quota divides what a server has a limited number of, such as places or bytes, between those who ask for it.
// It imports the standard library only. Start with Quota.
package quota

import (
	"context"
	"sync"
)

// Quota is a number of places or bytes that callers share. Each may hold half of what the others leave, so one that
// takes all it can get leaves half for the next one. Its methods can be called at the same time.
type Quota[K comparable] struct {
	limit int64

	mu    sync.Mutex
	taken int64
	by    map[K]int64
	given chan struct{} // closed by the next Give; nil unless somebody waits for that
}

// New returns a quota of limit places or bytes.
func New[K comparable](limit int64) *Quota[K] { return &Quota[K]{limit: limit, by: map[K]int64{}} }

// Refusal says why a quota refused a caller.
type Refusal int

// The refusals.
const (
	// None is no refusal: the caller has what it asked for.
	None Refusal = iota
	// Greedy refuses a caller that would hold more than its share.
	Greedy
	// Exhausted refuses a caller because there is not enough left for anybody.
	Exhausted
)

// Take takes n, or nothing if it returns a refusal. The caller gives back what it has taken.
func (q *Quota[K]) Take(who K, n int64) Refusal {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.take(who, n)
}

// Wait is Take, but waits until ctx ends for what is taken now. There is no order among those who wait.
func (q *Quota[K]) Wait(ctx context.Context, who K, n int64) Refusal {
	for {
		q.mu.Lock()
		why := q.take(who, n)
		if why != None && q.given == nil {
			q.given = make(chan struct{})
		}
		given := q.given
		q.mu.Unlock()
		if why == None || n > (q.limit+1)/2 {
			return why
		}
		select {
		case <-given:
		case <-ctx.Done():
			return why
		}
	}
}

func (q *Quota[K]) take(who K, n int64) Refusal {
	held := q.by[who]
	switch {
	case q.taken+n > q.limit:
		return Exhausted
	case held+n > (q.limit-(q.taken-held)+1)/2:
		return Greedy
	}
	q.taken += n
	q.by[who] = held + n
	return None
}

// Give gives back n that a caller has taken.
func (q *Quota[K]) Give(who K, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken -= n
	if q.by[who] -= n; q.by[who] == 0 {
		delete(q.by, who)
	}
	if q.given != nil {
		close(q.given)
		q.given = nil
	}
}

// Limit returns the number of places or bytes.
func (q *Quota[K]) Limit() int64 { return q.limit }

// Taken returns how many are taken.
func (q *Quota[K]) Taken() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken
}
