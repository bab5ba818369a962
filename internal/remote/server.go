package remote

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"sync"

	"github.com/laterq/later/internal/codec"
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

	memory   memory
	closing  context.Context
	shutdown context.CancelFunc

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup
	waits   map[string]*waiting // by the id that the client gave
	watches map[string]*watch   // by the id that the client gave

	connections map[*connection]struct{} // that carry calls
	serving     sync.WaitGroup           // of connections
}

// NewServer returns a server of a store, which the caller closes after the server. With sameMachine its clients are on
// this machine and may act for its user, so they may have the store write backups, and their connections carry calls
// without HTTP.
func NewServer(s store.Store, log *slog.Logger, sameMachine bool) *Server {
	server := &Server{store: s, log: log, sameMachine: sameMachine, waits: map[string]*waiting{},
		watches: map[string]*watch{}, connections: map[*connection]struct{}{}}
	server.closing, server.shutdown = context.WithCancel(context.Background())
	return server
}

// Close ends what waits for something to happen, and returns when all calls have been answered. Calls that arrive later
// are refused, and clients repeat them elsewhere.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.shutdown()
	s.calls.Wait()
	s.mu.Lock()
	for c := range s.connections {
		c.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// enter begins a call. It reports whether the server is open.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.calls.Add(1)
	}
	return !s.closed
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
	case r.Header.Get("Content-Type") != MediaType:
		http.Error(w, "bodies have the type "+MediaType, http.StatusUnsupportedMediaType)
	case connects:
		s.serveConnection(w)
	case !s.enter():
		http.Error(w, "the server is shutting down", http.StatusServiceUnavailable)
	default:
		defer s.calls.Done()
		s.serve(op, w, r)
	}
}

// bodies are reused for requests, since decoding copies what it needs.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

func (s *Server) serve(op endpoint, w http.ResponseWriter, r *http.Request) {
	buffer := bodies.Get().(*[]byte)
	defer bodies.Put(buffer)
	body, err := readAll(http.MaxBytesReader(w, r.Body, maxRequest), (*buffer)[:0], r.ContentLength)
	*buffer = body
	if err == nil {
		err = op.serve(s, w, r, body)
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		http.Error(w, tooLarge.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil && r.Context().Err() == nil { // else nobody waits
		http.Error(w, err.Error(), statusOf(err))
	}
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
	if k != waits {
		return call{ctx, func() {}}
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	stop := context.AfterFunc(s.closing, cancel)
	return call{ctx, func() {
		stop()
		cancel()
	}}
}

// reply answers a request by a call.
func (s *Server) reply(w http.ResponseWriter, r *http.Request, op callable, body []byte) error {
	if op.takesLong() {
		frames, err := newFrameWriter(w)
		if err != nil {
			return err
		}
		defer frames.end()
		answer, err := op.call(r.Context(), s, body)
		if err != nil {
			return err
		}
		frames.sendLast(answer) // if that fails the client asks again
		return nil
	}
	answer, err := op.call(r.Context(), s, body)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", MediaType)
	header.Set("Content-Length", strconv.Itoa(len(answer)))
	w.Write(answer) // if that fails the client asks again
	return nil
}
