package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

const (
	// rememberFor is how long a reply is remembered at least, and maxRetry how long a client repeats a call. The
	// difference is for attempts that arrive late.
	rememberFor = 10 * time.Minute
	maxRetry    = 5 * time.Minute
	// maxRemembered is how many bytes of replies are remembered before older ones are forgotten early.
	maxRemembered = 32 << 20
)

var errPanicked = errors.New("the call panicked")

// memory makes sure that each call that changes something is executed once, however often its request arrives. It keeps
// the last reply of each session, since a session makes one call at a time. Sessions that were not used for a turn are
// forgotten.
type memory struct {
	mu     sync.Mutex
	turned time.Time
	recent map[string]*remembered // by session, since the last turn
	old    map[string]*remembered // in the turn before
	bytes  int                    // of recent
}

// remembered is the last call of a session.
type remembered struct {
	number int64
	done   chan struct{} // closed when the next fields are set
	result result
	size   int // of the reply, once it counts

	attempts int // that may deliver the reply
}

// result is the remembered outcome of a call.
type result struct {
	reply []byte // nil if there will be none
	// undo undoes the call, and returns the reply for a repetition. It is nil if there is nothing to undo.
	undo func() (reply []byte)
}

// do returns the reply of a request. It executes the request unless that was done before, or is being done; execute
// goes on when ctx ends. It answers this attempt.
func (m *memory) do(ctx context.Context, r store.Request, execute func() result) (response, error) {
	call, isFirst := m.call(r)
	switch {
	case call == nil:
		return response{}, fmt.Errorf("%w: request %d of a session arrived after a later one", store.ErrUnavailable,
			r.Number)
	case isFirst:
		defer m.finished(r.Session, call)
		call.result = execute()
	default:
		select {
		case <-call.done:
		case <-ctx.Done():
			return response{}, context.Cause(ctx)
		}
		if call.result.reply == nil {
			return response{}, fmt.Errorf("%w: %w", store.ErrUnavailable, errPanicked)
		}
	}
	answer := response{body: call.result.reply}
	if call.result.undo != nil {
		answer.undelivered = func() { m.undelivered(r.Session, call) }
	}
	return answer, nil
}

// undelivered notes that the reply of an attempt could not be delivered. If that was the last one which could deliver
// it, and the session has not gone on, the call is undone. A repetition that arrives during the undo waits.
func (m *memory) undelivered(session string, call *remembered) {
	m.mu.Lock()
	call.attempts--
	at := m.recent
	if at[session] == nil {
		at = m.old
	}
	if call.attempts > 0 || at[session] != call {
		m.mu.Unlock()
		return
	}
	if undone := at[session]; m.recent[session] == undone {
		m.bytes -= undone.size
	}
	undone := &remembered{number: call.number, done: make(chan struct{})}
	m.recent[session] = undone
	m.mu.Unlock()
	defer m.finished(session, undone)
	undone.result.reply = call.result.undo()
}

// call returns the call of a request and reports whether it is to be executed. It returns nil if a later one was made.
func (m *memory) call(r store.Request) (call *remembered, isFirst bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.recent == nil || now.Sub(m.turned) > rememberFor || m.bytes > maxRemembered {
		m.old, m.recent, m.bytes, m.turned = m.recent, map[string]*remembered{}, 0, now
	}
	last := m.recent[r.Session]
	if last == nil {
		last = m.old[r.Session]
	} else if last.number < r.Number {
		m.bytes -= last.size
	}
	switch {
	case last == nil || last.number < r.Number:
		call = &remembered{number: r.Number, done: make(chan struct{}), attempts: 1}
		m.recent[r.Session] = call
		return call, true
	case last.number == r.Number:
		last.attempts++
		return last, false
	}
	return nil, false
}

func (m *memory) finished(session string, call *remembered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.recent[session] == call {
		call.size = len(call.result.reply)
		m.bytes += call.size
	}
	close(call.done)
}
