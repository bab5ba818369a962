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
	maxRemembered = 64 << 20
)

var errPanicked = errors.New("the call panicked")

// memory has each call that changes something executed once, however often its request arrives. It keeps the last reply
// of each session, since a session makes one call at a time. What has not been used for a turn is forgotten.
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
	done   chan struct{} // closed when reply is set
	reply  []byte        // nil if there will be none
	size   int           // of the reply, once it counts
}

// do returns the reply of a request. It executes the request unless that was done before, or is being done; execute
// goes on when ctx ends.
func (m *memory) do(ctx context.Context, r store.Request, execute func() []byte) ([]byte, error) {
	call, isFirst := m.call(r)
	switch {
	case call == nil:
		return nil, fmt.Errorf("%w: request %d of a session arrived after a later one", store.ErrUnavailable, r.Number)
	case isFirst:
		defer m.finished(r.Session, call)
		call.reply = execute()
		return call.reply, nil
	}
	select {
	case <-call.done:
		if call.reply == nil {
			return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, errPanicked)
		}
		return call.reply, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
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
		call = &remembered{number: r.Number, done: make(chan struct{})}
		m.recent[r.Session] = call
		return call, true
	case last.number == r.Number:
		return last, false
	}
	return nil, false
}

func (m *memory) finished(session string, call *remembered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.recent[session] == call {
		call.size = len(call.reply)
		m.bytes += call.size
	}
	close(call.done)
}
