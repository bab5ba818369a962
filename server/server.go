// Package server serves the queues of a client over HTTP, for programs in any language: an http.Handler with the routes
// under /v1, their OpenAPI description and, through package access, who may use which of them. It is built on the root
// package and imports no engine.
//
// Start with New. Each file has the routes of one subject; route.go has the code that all routes share.
package server

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/changelog"
	"github.com/laterq/later/internal/quota"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// stallTimeout is how long a client may take to send the body of a request, or the next part of a stream, and to take a
// reply.
const stallTimeout = 30 * time.Second

// Config has the options of a Server. The zero Config is ready to use.
type Config struct {
	// Logger logs each change with its sender, and the failures inside the server. Default: slog.Default().
	Logger *slog.Logger
	// MaxWaits is the number of requests that may wait for messages or events at the same time. Further requests are
	// answered with the status 503. Each sender may have half of the waits that the others leave. Default: 20,000.
	MaxWaits int
	// Version is that of the program, for the description of the API. Default: "unknown".
	Version string
	// Store is the kind of the client's store, such as redis, embedded, memory or remote, for senders that ask for it.
	// Default: "unknown".
	Store string
	// Finished names queues. The server keeps their last finished messages once WatchFinished is called.
	Finished FinishedConfig
}

// Server is an http.Handler for the HTTP API of one client. Create it with New, and call Close when done. Its methods
// are safe for concurrent use.
//
// A Server authenticates no caller: each program that reaches it can do everything. Put the Handler of an
// access.Control before it, or your own that sets access.NewContext.
type Server struct {
	client *later.Client
	cfg    Config
	log    *slog.Logger
	mux    *http.ServeMux
	api    huma.API
	// description is the OpenAPI description as JSON.
	description []byte

	// ending is cancelled when Close begins, so that requests which wait return.
	ending context.Context
	end    context.CancelFunc
	open   sync.WaitGroup // requests, operations and feeds
	gate   sync.RWMutex   // held by Close, so that no request begins while it waits for open
	feeds  feeds

	waits, streams, transfers, finds, running, matched, watched share
	bodies, decoded, replies                                    share
	cpu                                                         quota.CPU[access.Sender]

	// heartbeat is heartbeatEvery but in tests.
	heartbeat time.Duration

	zipped atomic.Int32 // streams

	operations operations
	overviews  overviews
	problems   sharedProblems
	receivers  receivers
	samples    samples
	changes    changelog.Log
	undos      undos
	finished   finishedLists
	started    time.Time
}

// New returns a server of the queues of a client. The caller closes the client, after the server. New returns
// ErrInvalid when the client is nil or the configuration is not allowed.
func New(c *later.Client, cfg Config) (*Server, error) {
	switch {
	case c == nil:
		return nil, store.Invalid("client is nil: give one that later.Open returned")
	case cfg.MaxWaits < 0:
		return nil, store.Invalid("MaxWaits is %d: give 1 or more, or 0 for %d", cfg.MaxWaits, defaultMaxWaits)
	}
	if err := cfg.Finished.complete(); err != nil {
		return nil, err
	}
	cfg.MaxWaits = cmp.Or(cfg.MaxWaits, defaultMaxWaits)
	cfg.Version, cfg.Store = cmp.Or(cfg.Version, "unknown"), cmp.Or(cfg.Store, "unknown")
	s := &Server{client: c, cfg: cfg, log: cfg.Logger, mux: http.NewServeMux(),
		heartbeat: heartbeatEvery, started: time.Now(),
		waits:     newShare(int64(cfg.MaxWaits), "requests wait already"),
		streams:   newShare(maxStreams, "messages are streamed by other requests already"),
		transfers: newShare(maxTransfers, "exports and imports run already"),
		finds:     newShare(maxFinds, "searches of all queues run already"),
		running:   newShare(maxRunning, "operations run already"),
		matched:   newShare(maxMatchedBytes, "bytes of matches are held by operations already"),
		watched:   newShare(maxOverviews, "different overviews are watched already"),
		cpu:       quota.NewCPU[access.Sender](quota.ProcessCPU),
		bodies:    newShare(maxBodyBytes, "bytes of requests are read already"),
		decoded:   newShare(maxDecodedBytes, "bytes of requests are decoded already"),
		replies:   newShare(maxReplyBytes, "bytes of replies have not been taken yet"),
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.operations.server = s
	s.finished.FinishedConfig, s.finished.maxBytes = cfg.Finished, maxFinishedBytes
	s.ending, s.end = context.WithCancel(context.Background())
	s.changes.Store, s.changes.Logger = c.Store(), s.log
	s.changes.Ending, s.changes.Start = s.ending.Done(), s.startWriting
	s.api = humago.New(s.mux, apiConfig(cfg.Version))
	s.api.UseMiddleware(s.prepare)
	for _, register := range []func(*Server){
		registerSend, registerReceive, registerLeases, registerMessages, registerQueues, registerBulk,
		registerOperations, registerTopics, registerSubscriptions, registerSchedules, registerSeries,
		registerWorkers, registerOverview, registerFind, registerProblems, registerDeadErrors, registerEvents,
		registerTransfer, registerChanges, registerInfo, registerDueQueues, registerFinished,
	} {
		register(s)
	}
	s.finishDescription()
	s.mux.HandleFunc("/", s.unknownRoute)
	return s, nil
}

// Values of headers, so that setting them allocates nothing.
var noStore, noSniff, isJSON = []string{"no-store"}, []string{"nosniff"}, []string{jsonType}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.gate.RLock()
	s.open.Add(1)
	s.gate.RUnlock()
	defer s.open.Done()
	withDeadlines(w, r, s.answer)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	switch err := cmp.Or(checkPath(r), checkBody(r)); {
	case err != nil:
		s.reply(w, r, 0, nil, err)
	case r.Method == http.MethodGet:
		g := &getReply{ResponseWriter: w, request: r}
		s.mux.ServeHTTP(g, r)
		g.decide()
	case !s.sendFast(w, r):
		s.mux.ServeHTTP(w, r)
	}
}

// Close ends requests that wait for messages or events, and returns when all requests have been answered. Call it
// before http.Server.Shutdown, which would wait for them. Later requests that would wait are refused with ErrClosed.
func (s *Server) Close() {
	s.gate.Lock()
	defer s.gate.Unlock()
	s.end()
	s.open.Wait()
	s.undos.close()
	s.changes.Flush()
}

// startWriting runs a function that writes changes, and has Close wait for it. It returns false once Close has begun.
func (s *Server) startWriting(write func()) bool {
	if !s.gate.TryRLock() {
		return false
	}
	defer s.gate.RUnlock()
	if s.ending.Err() != nil {
		return false
	}
	s.open.Go(write)
	return true
}
