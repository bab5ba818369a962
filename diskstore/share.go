package diskstore

import (
	"cmp"
	"container/list"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/internal/remote"
	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
)

// The processes that open one directory by its URL share it. One of them has it open, and serves the others at a socket
// in the directory. When it ends, one of the others opens the directory and the rest follow: each call without a reply
// is repeated there, as the same request, which the store remembers (share.go).

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

// connect returns the target of calls. That is the holder, or this process if none has the directory open: connect then
// opens it, and returns a holding too.
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
			return &remote.Target{Local: h.sharded}, h, nil
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
	sharded  store.Store  // the same with the shards of its queues
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
	h.sharded = shard.New(h.store, s.log)
	if h.listener != nil {
		h.server = remote.NewServer(h.sharded, s.log, true)
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
	return h.sharded.Close()
}

// A call with a store.Request is executed once. The result of the last request of each session is written with the
// changes of the call, so it is known exactly if they are, also to the next process that opens the directory. Of a
// claim the messages are left out, because the lease leads to them. Calls that would have the same result again are not
// remembered: a claim that finds nothing, and an extension that reports nothing.

// rememberRequests is how long a request is remembered after its session's last one. Callers repeat theirs for less.
const rememberRequests = 10 * time.Minute

// lastRequest is the last request of a session.
type lastRequest struct {
	store.Request
	at    int64  // when it was executed
	reply []byte // its result, encoded
}

// requestMemory belongs to the writer.
type requestMemory struct {
	bySession map[string]*list.Element
	byTime    list.List // of *lastRequest, the first executed first
}

// claimReply is the remembered part of a claim.
type claimReply struct {
	Claim store.Claim // without Messages
	Lease string      // that holds them
	Fence int64       // of its messages with a key
}

// executeOnce executes a step, unless it was executed before as the same request: then it returns the result of that.
func executeOnce[T any](ctx context.Context, t *tx, q *queue, step func(t *tx, q *queue) (T, error)) (result T,
	err error) {
	r, ok := store.RequestOf(ctx)
	if !ok {
		return step(t, q)
	}
	last := t.s.requests.last(r.Session)
	switch {
	case last == nil || last.Number < r.Number:
		if result, err = step(t, q); err == nil {
			remember(t, r, &result)
		}
		return result, err
	case last.Number > r.Number:
		return result, fmt.Errorf("%w: request %d of a session arrived after a later one", store.ErrUnavailable,
			r.Number)
	}
	if claim, ok := any(&result).(*store.Claim); ok {
		*claim, err = t.recallClaim(q, last.reply)
	} else {
		err = codec.Decode(last.reply, &result)
	}
	return result, err
}

func (m *requestMemory) last(session string) *lastRequest {
	if e := m.bySession[session]; e != nil {
		return e.Value.(*lastRequest)
	}
	return nil
}

// remember writes a request and its result, with the changes of the call.
func remember[T any](t *tx, r store.Request, result *T) {
	e := &lastRequest{Request: r, at: t.now}
	switch of := any(result).(type) {
	case *store.Claim:
		if len(of.Messages)+len(of.Died)+len(of.Dropped) == 0 {
			return
		}
		kept := claimReply{Claim: *of}
		if kept.Claim.Messages = nil; len(of.Messages) > 0 {
			kept.Lease = of.Messages[0].Receipt.Lease
			for _, m := range of.Messages {
				kept.Fence = max(kept.Fence, m.Fence)
			}
		}
		e.reply = codec.Append(nil, &kept)
	case *[]store.ExtendResult:
		if !slices.ContainsFunc(*of, func(r store.ExtendResult) bool { return len(r.Lost) > 0 }) {
			return
		}
	}
	if e.reply == nil {
		e.reply = codec.Append(nil, result)
	}
	t.value = binary.AppendUvarint(appendTime(t.value[:0], e.at), uint64(r.Number))
	t.value = append(t.value, e.reply...)
	t.set(appendIDKey(t.key[:0], 0, kindRequest, r.Session), t.value)
	t.s.requests.add(e)
	t.forgetRequests()
}

func (m *requestMemory) add(e *lastRequest) {
	if before := m.bySession[e.Session]; before != nil {
		m.byTime.Remove(before)
	}
	if m.bySession == nil {
		m.bySession = map[string]*list.Element{}
	}
	m.bySession[e.Session] = m.byTime.PushBack(e)
}

// forgetRequests forgets up to two requests, so that their number is bounded by the time.
func (t *tx) forgetRequests() {
	m := &t.s.requests
	for range 2 {
		first := m.byTime.Front()
		e := first.Value.(*lastRequest)
		if age := t.now - e.at; max(age, -age) <= rememberRequests.Milliseconds() {
			return
		}
		m.byTime.Remove(first)
		delete(m.bySession, e.Session)
		t.remove(appendIDKey(t.key[:0], 0, kindRequest, e.Session))
	}
}

// parseRequest reads the value of a session's key.
func parseRequest(session string, value []byte) (*lastRequest, error) {
	if len(value) > timeLength {
		number, n := binary.Uvarint(value[timeLength:])
		if n > 0 && int64(number) > 0 {
			return &lastRequest{Request: store.Request{Session: session, Number: int64(number)}, at: readTime(value),
				reply: slices.Clone(value[timeLength+n:])}, nil
		}
	}
	return nil, corrupt("the last request of session %q is %x", session, value)
}

// isRequest reports whether a session has such a value.
func isRequest(session string, value []byte) bool {
	_, err := parseRequest(session, value)
	return err == nil
}

// loadRequests reads the last requests. One that cannot be read is as good as forgotten.
func (s *Store) loadRequests(r *reader) (err error) {
	var all []*lastRequest
	for session, value := range r.keys(&err, 0, kindRequest, "") {
		if e, bad := parseRequest(session, value); bad == nil {
			all = append(all, e)
		} else {
			s.logger.Warn("later: a session is forgotten", "dir", s.dir, "cause", bad)
		}
	}
	slices.SortFunc(all, func(a, b *lastRequest) int { return cmp.Compare(a.at, b.at) })
	for _, e := range all {
		s.requests.add(e)
	}
	return err
}

// recallClaim returns the result of a claim. Its messages are the ones that its lease still holds.
func (t *tx) recallClaim(q *queue, reply []byte) (store.Claim, error) {
	var kept claimReply
	if err := codec.Decode(reply, &kept); err != nil {
		return store.Claim{}, err
	}
	c := kept.Claim
	l := q.leases[kept.Lease]
	if l == nil {
		c.Deadline = time.Time{}
		return c, nil
	}
	if err := t.flush(); err != nil {
		return store.Claim{}, err
	}
	for _, m := range l.members {
		if m == nil {
			continue
		}
		claimed, ok, err := t.recallMember(q, m)
		if err != nil {
			return store.Claim{}, err
		}
		if ok {
			if claimed.Key != "" {
				claimed.Fence = kept.Fence
			}
			c.Messages = append(c.Messages, claimed)
		}
	}
	c.Deadline = store.Time(l.deadline)
	return c, nil
}

// recallMember returns a message that a lease holds, as it was claimed. It returns false for one that cannot be read,
// which comes again when the lease ends.
func (t *tx) recallMember(q *queue, m *member) (claimed store.Claimed, ok bool, err error) {
	due, attempts, text := m.record.due, m.record.attempts, ""
	if m.follows {
		due, attempts, text, ok, err = t.original(q.number, m.id)
	} else {
		var whole bool
		text, whole, ok, err = t.envelope(q.number, m.id)
		ok = ok && whole
	}
	if err != nil || !ok {
		return claimed, false, err
	}
	claimed = store.Claimed{
		Receipt: store.Receipt{Lease: m.lease.id, ID: m.id},
		Due:     store.Time(due),
		Attempt: attempts + 1,
	}
	if envelope.Decode(text, &claimed.Message) != nil {
		return claimed, false, nil
	}
	claimed.ID = m.id
	return claimed, true, nil
}
