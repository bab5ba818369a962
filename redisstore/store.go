// Package redisstore stores Later's messages in Redis or Valkey 7.0 or later: a single server, Sentinel or a Cluster.
// Every transition is one Lua script (lua/*.lua) on the keys of one queue (keys.go), which share a hash tag. Idle
// processes learn of work without polling (wake.go).
//
// It imports store and go-redis, and nothing of clients or workers.
package redisstore

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// DefaultPrefix is the default prefix of every key.
const DefaultPrefix = "later:"

// DefaultRetry is how long a call is retried by default while the server is unavailable.
const DefaultRetry = 10 * time.Second

// Store is the Redis engine. Create it with New, or from a URL with store.Open.
type Store struct {
	rdb           redis.UniversalClient
	ownsClient    bool
	shortOnLines  bool // short calls use lines, which hooks of the client do not see
	keys          keyTable
	scripts       scripts
	log           *slog.Logger
	allowEviction bool
	retryFor      time.Duration
	nilOption     bool // see ConfigError

	outageLogged    atomic.Bool // set once an outage is logged
	preflightDone   atomic.Bool
	preflightLock   chan struct{} // holds a token during the preflight check
	registered      sync.Map      // names of queues registered by this process
	registeredCount atomic.Int64  // of registrations since the map was cleared, at least their number
	mute            atomic.Int64  // when remark is due, in ns since 1970; 0 if this process may notify others

	closing        context.Context
	closeWith      context.CancelFunc
	waker          waker
	dedicatedConns dedicatedConns // of durable sends
	replicaCounts  replicaCounts
	lines          lines
	sessions       sessions
	watchers       watchers
	silent         atomic.Bool // set once it is logged that this process may not publish events
}

var _ store.Store = (*Store)(nil)

// Option changes a Store's defaults.
type Option func(*Store)

// Prefix sets the prefix of every key: up to 64 bytes without control characters and braces, which mark Redis
// Cluster's hash tag. The default is DefaultPrefix.
func Prefix(prefix string) Option { return func(s *Store) { s.keys.prefix = prefix } }

// WithLogger sets the logger. The default, also for nil, is slog.Default(). It also receives the log of go-redis, at
// debug level. go-redis has one logger for the whole process: the last store's, or the one that redis.SetLogger sets
// later.
func WithLogger(log *slog.Logger) Option {
	return func(s *Store) {
		if log != nil {
			s.log = log
		}
	}
}

// AllowEviction accepts a server with a maxmemory-policy that may evict keys. Such a server can lose any message, or a
// part of a queue's bookkeeping, without any error.
func AllowEviction() Option { return func(s *Store) { s.allowEviction = true } }

// RetryFor sets how long a call is retried while the server cannot be reached or cannot serve it. A shorter deadline
// of the call's context takes precedence. Below zero means not at all. The default is DefaultRetry. A call that the
// server may have executed is repeated for 5 minutes at most, because the server does not remember it for ever.
func RetryFor(d time.Duration) Option { return func(s *Store) { s.retryFor = d } }

// New returns a Store over a go-redis client. The caller keeps ownership: Close does not close the client. New does
// not connect; the first call does, and returns ErrUnsupported if the server is too old or may evict keys, and
// ErrMisconfigured if it is a node of a Cluster and rdb is not a *redis.ClusterClient.
//
// later.New, ConfigError and every call return an error if rdb or an option is not allowed: ErrInvalid, or
// ErrUnsupported for a *redis.Ring, which moves queues to other servers when one is away.
//
// Sends with a context that can end use up to four further connections with the client's options, which the client's
// hooks do not see, unless it is a client of a Cluster or of Sentinel. A store that waits for messages opens one more
// connection with the client's options, or one to each primary of a Cluster, and listens to a channel of its own there.
func New(rdb redis.UniversalClient, opts ...Option) *Store {
	s := &Store{
		rdb:           rdb,
		keys:          keyTable{prefix: DefaultPrefix},
		scripts:       production(),
		log:           slog.Default(),
		retryFor:      DefaultRetry,
		preflightLock: make(chan struct{}, 1),
	}
	for _, o := range opts {
		if o == nil {
			s.nilOption = true
			continue
		}
		o(s)
	}
	setDriverLog(s.log)
	s.closing, s.closeWith = context.WithCancel(context.Background())
	s.waker.init(s)
	return s
}

// Close ends every Wait and Watcher, and closes the client if the store was opened from a URL.
func (s *Store) Close() error {
	s.waker.close()
	s.closeWith()
	s.watchers.close()
	s.dedicatedConns.close()
	s.lines.close()
	if s.ownsClient {
		return s.rdb.Close()
	}
	return nil
}
