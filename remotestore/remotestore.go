// Package remotestore is Later's engine over the network: a Store calls a Handler in another process, which serves a
// store of any engine. Import it, or package later, for the URL schemes http and https. Of Later, it imports the store
// contract and internal/remote, which is the protocol.
//
// # URLs
//
//	https://later.example:7600                a server
//	https://:TOKEN@later.example:7600         with a token
//	https://user:password@later.example:7600  with basic authentication
//	https://later.example/queues              below a path, as behind a proxy
//	http://127.0.0.1:7600                     without TLS: who reads the network can use the store
//
// Special characters in a user, a password or a token are percent-encoded: @ is %40, / is %2F. These parameters may
// follow an https URL after ?, joined by &:
//
//	parameter          default    meaning
//	tls_ca             (system)   PEM file of certificates to trust instead of the system's
//	tls_cert, tls_key  (none)     PEM files of the client's certificate and key
//
// # Durability
//
// The same as from the engine behind the Handler. While a Wait, a Watcher or another long call lasts, the Handler sends
// a sign of life every second, and a client that receives none for 2.5 seconds continues on another connection. A
// client and a Handler of different versions of the protocol return ErrUnsupported before the first call. While nothing
// answers a call is repeated, for 10 seconds unless RetryFor says otherwise. A repeated call takes effect once, also
// when the Handler's process was killed in between and another one answers: Redis and the embedded store remember it.
// The messages of a Claim are released if its reply cannot be delivered, which counts no attempt. Report is not
// repeated. On Redis, a repeated Delete may remove messages that were sent in between, and a repeated Remove reports
// the messages that it removed before as left.
//
// # Cost
//
// A call is one HTTP/1.1 request. Each Wait and each Watcher keeps a connection and a goroutine on both sides, and the
// Handler writes to it every second.
package remotestore

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/laterq/later/internal/remote"
	"github.com/laterq/later/store"
)

// Path is where a Handler is mounted, below the path of the URL that opens it.
const Path = remote.Path

// MediaType is the type of the bodies of requests and replies. It names the version of the protocol.
const MediaType = remote.MediaType

// DefaultRetry is how long a call is repeated by default while nothing answers.
const DefaultRetry = 10 * time.Second

func init() {
	store.Register("http", open)
	store.Register("https", open)
}

// Store is a store that a Handler in another process serves. It implements store.Store and the optional interfaces of
// all engines, and returns ErrUnsupported for interfaces that the engine behind the Handler does not have.
type Store struct{ *remote.Client }

// Option changes a Store that New returns.
type Option func(*options)

type options struct {
	log      *slog.Logger
	retryFor time.Duration
	tls      *tls.Config
}

// WithLogger sets the logger. The default, also for nil, is slog.Default().
func WithLogger(log *slog.Logger) Option {
	return func(o *options) {
		if log != nil {
			o.log = log
		}
	}
}

// RetryFor sets how long a call is repeated while nothing answers, 5 minutes at most. A shorter deadline of the call's
// context takes precedence. Below zero means not at all. The default is DefaultRetry.
func RetryFor(d time.Duration) Option { return func(o *options) { o.retryFor = d } }

// WithTLS sets the configuration for https. The default, also for nil, trusts the authorities that the machine trusts.
func WithTLS(config *tls.Config) Option { return func(o *options) { o.tls = config } }

// New returns the store at a URL. It does not connect; the first call does. New returns an ErrInvalid if the URL is not
// one of a server.
func New(text string, opts ...Option) (*Store, error) {
	o := options{log: slog.Default(), retryFor: DefaultRetry}
	for i, opt := range opts {
		if opt == nil {
			return nil, store.Invalid("option %d is nil: leave it out", i)
		}
		opt(&o)
	}
	u, config, err := parseURL(text, o.tls)
	if err != nil {
		return nil, err
	}
	return &Store{remote.NewClient(router{remote.NewTarget(u, config)}, o.log, o.retryFor)}, nil
}

// open connects to the server, so that a wrong URL or server is reported immediately.
func open(ctx context.Context, text string, cfg store.OpenConfig) (store.Store, error) {
	s, err := New(text, WithLogger(cfg.Logger))
	if err != nil {
		return nil, err
	}
	if err := s.Ping(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// router sends all calls to one server.
type router struct{ target *remote.Target }

func (r router) Target(context.Context, *remote.Target) (*remote.Target, error) { return r.target, nil }

func (r router) Close() error {
	r.target.Close()
	return nil
}

// Handler serves a store to Stores in other processes. Mount it at Path. It is for trusted programs: a client that can
// reach it may do everything with the store. Middleware around it must pass on Flush.
type Handler struct{ *remote.Server }

// Change is an administrative change of a client: a purge, replay, import or removal of messages, or a pause, resume,
// retention or deletion of a queue. Sending, working, and changes of single messages are not.
type Change = remote.Change

// HandlerOption changes a Handler that NewHandler returns.
type HandlerOption func(*Handler)

// OnChange has f called after each Change, with the context of its request. A purge of many messages is several.
func OnChange(f func(ctx context.Context, change Change)) HandlerOption {
	return func(h *Handler) { h.Server.OnChange = f }
}

// MaxInFlight limits the memory that large calls take in the Handler's process. A call that does not fit waits, and is
// repeated by its client if that takes long; settles and extends have a quarter of the limit for themselves. The
// default is 256 MiB, and less than 64 MiB is as much as that.
func MaxInFlight(bytes int64) HandlerOption { return func(h *Handler) { h.Server.MaxInFlight(bytes) } }

// NewHandler returns a Handler of a store. Close it before the store: it ends every Wait and Watcher, and returns when
// all calls have been answered.
func NewHandler(s store.Store, log *slog.Logger, opts ...HandlerOption) (*Handler, error) {
	if s == nil {
		return nil, store.Invalid("store is nil: give one")
	}
	if c, ok := s.(store.Configured); ok {
		if err := c.ConfigError(); err != nil {
			return nil, fmt.Errorf("store to serve: %w", err)
		}
	}
	if log == nil {
		log = slog.Default()
	}
	h := &Handler{remote.NewServer(s, log, false)}
	for i, opt := range opts {
		if opt == nil {
			return nil, store.Invalid("option %d is nil: leave it out", i)
		}
		opt(h)
	}
	return h, nil
}

var _ http.Handler = (*Handler)(nil)
