// Package quota divides limited resources of a server, such as places or bytes, between its callers.
// It imports the standard library only. Start with Quota; CPU is one of them.
package quota

import (
	"context"
	"slices"
	"sync"
)

// maxWaiting is the number of calls of Wait that one caller can have at a time.
const maxWaiting = 128

// Quota is a number of places or bytes that callers share. Each may hold half of the rest, so one that
// takes all it can get leaves half for the next one. Its methods can be called at the same time.
type Quota[K comparable] struct {
	limit int64

	mu      sync.Mutex
	taken   int64
	by      map[K]int64
	waiting map[K][]*waiter // in order of arrival
	turns   []K             // the callers of waiting; the first one is next
}

// waiter is a call of Wait.
type waiter struct {
	n     int64
	taken chan struct{} // closed when the waiter has its n places
}

// New returns a quota of limit places or bytes.
func New[K comparable](limit int64) *Quota[K] {
	return &Quota[K]{limit: limit, by: map[K]int64{}, waiting: map[K][]*waiter{}}
}

// Refusal says why a quota refused a caller.
type Refusal int

// The refusals.
const (
	// None means that the caller has the places it asked for.
	None Refusal = iota
	// Greedy refuses a caller that would hold more than its share, or waits too often already.
	Greedy
	// Exhausted refuses a caller because too few places are left.
	Exhausted
)

// Take takes n places. If it returns a refusal, it has taken none. The caller gives the places back.
func (q *Quota[K]) Take(who K, n int64) Refusal {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.take(who, n)
}

// Wait is Take, but waits for places that are taken until ctx ends. Callers take turns, and the calls of one caller are
// served in order of arrival. A caller can have 128 waiting calls.
func (q *Quota[K]) Wait(ctx context.Context, who K, n int64) Refusal {
	q.mu.Lock()
	calls := q.waiting[who]
	why := Greedy
	if len(calls) == 0 {
		why = q.take(who, n)
	}
	if why == None || n > (q.limit+1)/2 || len(calls) == maxWaiting {
		q.mu.Unlock()
		return why
	}
	w := &waiter{n, make(chan struct{})}
	q.waiting[who] = append(calls, w)
	if len(calls) == 0 {
		q.turns = append(q.turns, who)
	}
	q.mu.Unlock()
	select {
	case <-w.taken:
		return None
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-w.taken:
		return None
	default:
	}
	i := slices.Index(q.waiting[who], w)
	q.waiting[who] = slices.Delete(q.waiting[who], i, i+1)
	if len(q.waiting[who]) == 0 {
		q.endTurn(slices.Index(q.turns, who))
	}
	q.serve() // the next call of this caller may be for less
	return why
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
	q.serve()
}

// serve takes for callers that wait, each in turn, until there is not enough for any of them.
func (q *Quota[K]) serve() {
	for passed := 0; passed < len(q.turns) && q.taken < q.limit; {
		who := q.turns[0]
		calls := q.waiting[who]
		q.turns = append(q.turns[1:], who)
		if q.take(who, calls[0].n) != None {
			passed++
			continue
		}
		passed = 0
		close(calls[0].taken)
		if q.waiting[who] = calls[1:]; len(calls) == 1 {
			q.endTurn(len(q.turns) - 1)
		}
	}
}

// endTurn removes the i-th caller after the last of its waiting calls.
func (q *Quota[K]) endTurn(i int) {
	delete(q.waiting, q.turns[i])
	q.turns = slices.Delete(q.turns, i, i+1)
}

// Limit returns the number of places or bytes.
func (q *Quota[K]) Limit() int64 { return q.limit }

// Taken returns how many are taken.
func (q *Quota[K]) Taken() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken
}
