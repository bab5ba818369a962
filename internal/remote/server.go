package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
)

// Server serves a store to Clients. Mount it at Path.
type Server struct {
	// OnChange is called after each administrative change, with the context of its request, if it is not nil. Set it
	// before the first request.
	OnChange func(ctx context.Context, change Change)

	store       store.Store
	log         *slog.Logger
	sameMachine bool
	budgets     budgets

	stopShards func() // ends moves of the store over an engine; nil if it was over one before

	memory   memory
	closing  context.Context
	shutdown context.CancelFunc

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup      // that are executed
	replies int                 // of calls that have not been answered
	idle    chan struct{}       // closed when no call is left; nil until Close waits for that
	waits   map[string]*waiting // by the id that the client gave
	watches map[string]*watch   // by the id that the client gave

	connections map[*connection]struct{} // that carry calls
	serving     sync.WaitGroup           // of connections
}

// NewServer returns a server of a store, which the caller closes after the server. With sameMachine its clients are on
// this machine and may act for its user, so they may have the store write backups, and their connections carry calls
// without HTTP.
func NewServer(s store.Store, log *slog.Logger, sameMachine bool) *Server {
	over := shard.New(s, log)
	server := &Server{store: over, log: log, sameMachine: sameMachine, waits: map[string]*waiting{},
		watches: map[string]*watch{}, connections: map[*connection]struct{}{}, budgets: newBudgets(DefaultInFlight)}
	server.closing, server.shutdown = context.WithCancel(context.Background())
	if over != s {
		server.stopShards = func() { shard.Stop(over) }
	}
	return server
}

// MaxInFlight limits the bytes of the large calls that the server handles at a time, as they are in its memory. The
// default is DefaultInFlight, and less than MinInFlight is as much as that. Call it before the first request.
func (s *Server) MaxInFlight(bytes int64) { s.budgets = newBudgets(max(bytes, MinInFlight)) }

// budgetOf returns the budget for the bytes of an operation's request.
func (s *Server) budgetOf(op endpoint) *budget {
	if op == endpoint(opSettle) || op == endpoint(opExtend) {
		return s.budgets.settles
	}
	return s.budgets.requests
}

// closeWithin is how long clients may take to read their replies when the server closes. One that has stopped must not
// hold up the others.
const closeWithin = time.Second

// Close ends calls that wait for an event, and returns when all calls have been executed and answered. It does not wait
// longer than closeWithin for clients that do not read their replies. Calls that arrive later are refused, and clients
// repeat them elsewhere.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.shutdown()
	s.calls.Wait()
	s.awaitReplies()
	s.mu.Lock()
	for c := range s.connections {
		c.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
	if s.stopShards != nil {
		s.stopShards()
	}
}

func (s *Server) awaitReplies() {
	s.mu.Lock()
	idle := make(chan struct{})
	if s.replies == 0 {
		close(idle)
	} else {
		s.idle = idle
	}
	s.mu.Unlock()
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// enter begins a call; executed and then replied end it. It reports whether the server is open.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.calls.Add(1)
		s.replies++
	}
	return !s.closed
}

// executed says that a call needs the store no longer.
func (s *Server) executed() { s.calls.Done() }

// execute executes a call. It has been executed also if it panics, which an HTTP server survives.
func (s *Server) execute(ctx context.Context, op callable, buffer *[]byte) (response, error) {
	defer s.executed()
	return op.call(ctx, s, buffer)
}

// replied says that a call was answered, or cannot be.
func (s *Server) replied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replies--; s.replies == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	op, connects := endpoints[name], name == connectPath && s.sameMachine
	switch {
	case op == nil && !connects, op == opBackup && !s.sameMachine:
		http.Error(w, "there is no such operation here", http.StatusNotFound)
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "operations are POSTs", http.StatusMethodNotAllowed)
	case connects && !hasOurVersion(r), !connects && r.Header.Get("Content-Type") != MediaType:
		refuseVersion(w, r)
	case connects:
		s.serveConnection(w)
	default:
		s.serve(op, w, r)
	}
}

// bodies are reused for requests, since decoding copies its results.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// maxPooled is how many bytes a buffer in bodies has at most.
const maxPooled = 1 << 20

func putBody(buffer *[]byte) {
	emptyBody(buffer)
	bodies.Put(buffer)
}

// emptyBody frees the memory of a large body.
func emptyBody(buffer *[]byte) {
	if cap(*buffer) > maxPooled {
		*buffer = nil
	}
}

// roomWithin is how long a request waits for room before it is refused, so that its client, which hears nothing until
// then, asks again.
const roomWithin = replyWithin / 2

func (s *Server) serve(op endpoint, w http.ResponseWriter, r *http.Request) {
	buffer := bodies.Get().(*[]byte)
	defer func() { putBody(buffer) }()
	taken, err := s.admit(op, r)
	budget := s.budgetOf(op)
	defer func() { budget.give(taken) }()
	if err == nil {
		*buffer, err = readAll(http.MaxBytesReader(w, r.Body, maxRequest), (*buffer)[:0], r.ContentLength)
	}
	if err == nil && !s.enter() {
		err = fmt.Errorf("%w: the server is shutting down", store.ErrUnavailable)
	} else if err == nil {
		defer s.replied()
		err = op.serve(s, w, r, buffer)
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		http.Error(w, tooLarge.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil && r.Context().Err() == nil { // else the caller has gone
		status := statusOf(err)
		problem.SetRetryAfter(w.Header(), status)
		http.Error(w, err.Error(), status)
	}
}

// admit waits for room for a large request.
func (s *Server) admit(op endpoint, r *http.Request) (taken int64, err error) {
	n := min(r.ContentLength, maxRequest)
	if n < 0 {
		n = maxRequest // of unknown length
	}
	if n <= largeFrame {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), roomWithin)
	defer cancel()
	return s.budgetOf(op).take(ctx, n*copies)
}

// statusOf returns the status of a call that is not answered by the store.
func statusOf(err error) int {
	if errors.Is(err, codec.ErrMalformed) || errors.Is(err, store.ErrInvalid) {
		return http.StatusBadRequest
	}
	if errors.Is(err, errCannotFlush) {
		return http.StatusNotImplemented
	}
	return http.StatusServiceUnavailable
}

// readAll appends all of r to b. length is how much that is, or below zero if unknown.
func readAll(r io.Reader, b []byte, length int64) ([]byte, error) {
	if length > 0 && length <= maxReply && int64(cap(b)) <= length {
		b = make([]byte, 0, length+1) // with room to see the end
	}
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// call is a context for an operation; end frees it.
type call struct {
	ctx context.Context
	end func()
}

// reading returns the context of a call that need not go on when its client is gone.
func (s *Server) reading(ctx context.Context, patient bool, k kind) call {
	if patient {
		ctx = store.Patient(ctx)
	}
	cancel := func() {}
	switch k {
	case waits:
		ctx, cancel = context.WithTimeout(ctx, maxWait)
	case long:
		ctx, cancel = context.WithCancel(ctx)
	default:
		return call{ctx, cancel}
	}
	stop := context.AfterFunc(s.closing, cancel)
	return call{ctx, func() {
		stop()
		cancel()
	}}
}

// reply answers a request by a call.
func (s *Server) reply(w http.ResponseWriter, r *http.Request, op callable, buffer *[]byte) error {
	if op.takesLong() {
		return s.replyInFrames(w, r, op, buffer)
	}
	if op.undoes() && r.Context().Err() != nil {
		s.executed()
		return context.Cause(r.Context())
	}
	answer, err := s.execute(r.Context(), op, buffer)
	if err != nil {
		return err
	}
	defer answer.free()
	header := w.Header()
	header.Set("Content-Type", MediaType)
	header.Set("Content-Length", strconv.Itoa(len(answer.body)))
	if err := writeAll(w, answer.body); err != nil || r.Context().Err() != nil {
		answer.undo()
	}
	return nil
}

// replyInFrames answers a request for a call that may take long.
func (s *Server) replyInFrames(w http.ResponseWriter, r *http.Request, op callable, buffer *[]byte) error {
	frames, err := newFrameWriter(w)
	if err != nil {
		s.executed()
		return err
	}
	defer frames.end()
	answer, err := s.execute(r.Context(), op, buffer)
	if err != nil {
		return err
	}
	defer answer.free()
	frames.sendLast(answer.body) // if that fails the client asks again
	return nil
}

// writeAll writes a response. A large one has to progress within maxSilence; a small one fits the buffers of the
// network.
func writeAll(w http.ResponseWriter, body []byte) error {
	control := http.NewResponseController(w)
	for len(body) > largeFrame {
		control.SetWriteDeadline(time.Now().Add(maxSilence)) // not all writers can
		n, err := w.Write(body[:maxWrite])
		if err != nil {
			return err
		}
		body = body[n:]
		if len(body) <= largeFrame {
			defer control.SetWriteDeadline(time.Time{})
		}
	}
	_, err := w.Write(body)
	return err
}
