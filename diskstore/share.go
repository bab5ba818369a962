package diskstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/laterq/later/internal/remote"
	"github.com/laterq/later/store"
)

// The processes that open one directory by its URL share it. One of them has it open, and serves the others at a socket
// in the directory. When it ends, one of the others opens the directory and the rest follow: each call without a reply
// is repeated there, as the same request, which the store remembers (sessions.go).

const (
	// answerWithin is how long a process that has the directory open may take to listen at the socket, when another one
	// opens the directory, and takeOverWithin the same when a call is under way.
	answerWithin   = time.Second
	takeOverWithin = 10 * time.Second

	minOpenPause = time.Millisecond
	maxOpenPause = 16 * time.Millisecond
)

// openShared returns a store that this process or another one has open.
func openShared(ctx context.Context, dir string, log *slog.Logger, opts ...Option) (*remote.Client, error) {
	s := &sharing{dir: dir, log: log, opts: opts}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return remote.NewClient(s, log, takeOverWithin), nil
}

// sharing finds the process that has a directory open, or becomes it. It implements remote.Router.
type sharing struct {
	dir  string
	log  *slog.Logger
	opts []Option

	ending context.Context
	end    context.CancelCauseFunc
	loops  sync.WaitGroup

	mu      sync.Mutex
	current *remote.Target // nil when it is not known
	found   bool           // current was known before
	holding *holding       // nil unless this process has the directory open
	search  *search        // nil when none is under way
}

// start finds the process that has the directory open, or becomes it. A deadline limits how long others take to answer,
// which they do soon or not at all, and not how long this process takes to open a large store.
func (s *sharing) start(ctx context.Context) error {
	s.ending, s.end = context.WithCancelCause(context.Background())
	if _, err := s.Target(context.WithoutCancel(ctx), nil); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// search is a search for the process that has the directory open.
type search struct {
	done   chan struct{}
	target *remote.Target
	err    error
}

// Target implements remote.Router.
func (s *sharing) Target(ctx context.Context, lost *remote.Target) (*remote.Target, error) {
	s.mu.Lock()
	if s.current != nil && s.current == lost {
		lost.Close()
		s.current = nil
	}
	current, found := s.current, s.search
	switch {
	case s.ending.Err() != nil:
		s.mu.Unlock()
		return nil, store.ErrClosed
	case current == nil && found == nil:
		found = &search{done: make(chan struct{})}
		s.search = found
		s.loops.Go(func() { s.find(found) })
	}
	s.mu.Unlock()
	if current != nil {
		return current, nil
	}
	select {
	case <-found.done:
		return found.target, found.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %s", store.ErrUnavailable, s.describeHolder())
	}
}

// find searches, and lets the waiting calls go.
func (s *sharing) find(f *search) {
	defer close(f.done)
	s.mu.Lock()
	within := answerWithin
	if s.found {
		within = takeOverWithin
	}
	s.mu.Unlock()
	var h *holding
	f.target, h, f.err = s.connect(within)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.holding, s.search = f.target, h, nil
	s.found = s.found || f.err == nil
}

// connect returns the process that has the directory open, or opens it, in which case it returns a holding too.
func (s *sharing) connect(within time.Duration) (*remote.Target, *holding, error) {
	until := time.Now().Add(within)
	for pause := minOpenPause; ; pause = min(2*pause, maxOpenPause) {
		conn, err := dialSocket(s.ending, s.dir)
		if err == nil {
			conn.Close()
			return remote.NewSocketTarget(func(ctx context.Context) (net.Conn, error) {
				return dialSocket(ctx, s.dir)
			}, s.describeHolder), nil, nil
		}
		h, err := s.hold()
		if err == nil {
			return &remote.Target{Local: h.store}, h, nil
		}
		if _, held := errors.AsType[*HeldError](err); !held {
			return nil, nil, err
		} else if time.Now().After(until) {
			return nil, nil, fmt.Errorf("%w; %s", err, s.describeHolder())
		}
		again := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-again.C:
		case <-s.ending.Done():
			again.Stop()
			return nil, nil, store.ErrClosed
		}
	}
}

// Close implements remote.Router.
func (s *sharing) Close() error {
	s.mu.Lock()
	s.end(store.ErrClosed)
	s.mu.Unlock()
	s.loops.Wait()
	if s.holding != nil {
		return s.holding.close()
	}
	if s.current != nil {
		s.current.Close()
	}
	return nil
}

// holding is a directory that this process has open and serves to others.
type holding struct {
	store    *Store
	listener net.Listener // nil if others cannot connect
	server   *remote.Server
	http     *http.Server
	loops    sync.WaitGroup
	closing  chan struct{}
}

// hold opens the directory. Others can connect as soon as it is locked, and are served when it is open.
func (s *sharing) hold() (*holding, error) {
	h := &holding{closing: make(chan struct{})}
	listen := func(dir string) {
		var err error
		if h.listener, err = listenSocket(dir); err != nil {
			s.log.Warn("later: other processes cannot share the store", "dir", dir, "cause", err)
		}
	}
	var err error
	h.store, err = Open(s.dir, append(s.opts[:len(s.opts):len(s.opts)], whenLocked(listen))...)
	if err != nil {
		if h.listener != nil {
			h.listener.Close() // and the socket stays, since it may be that of another process by now
		}
		return nil, err
	}
	if h.listener != nil {
		h.server = remote.NewServer(h.store, s.log, true)
		h.server.MaxInFlight(h.store.inFlight)
		h.http = &http.Server{Handler: h.server, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
		h.loops.Go(func() { h.http.Serve(h.listener) })
		h.loops.Go(h.endServing)
	}
	return h, nil
}

// endServing waits until the store stops or is closed, and then has others look for another process that serves them.
func (h *holding) endServing() {
	select {
	case <-h.store.failed:
	case <-h.closing:
	}
	removeSocket(h.listener)
	h.server.Close()
	h.http.Close()
}

// close lets the calls of others end, and then closes the store for the next process.
func (h *holding) close() error {
	close(h.closing)
	h.loops.Wait()
	return h.store.Close()
}
