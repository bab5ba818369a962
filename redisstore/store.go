// Package redisstore keeps Later's messages in Redis or Valkey, 7.0 or later: alone, under Sentinel or in a
// Cluster. Every transition is one Lua script (lua/*.lua) on one queue's keys (keys.go), which all have one hash
// tag. wake.go is how idle processes learn of work without polling.
//
// It imports store and go-redis, and knows neither clients nor workers.
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

// DefaultPrefix begins every key.
const DefaultPrefix = "later:"

// DefaultRetry is how long a call is repeated while the server cannot be reached.
const DefaultRetry = 10 * time.Second

// Store is the Redis engine. Make it with New or by a URL with store.Open.
type Store struct {
	rdb           redis.UniversalClient
	ownsClient    bool
	keys          keyTable
	scripts       *scripts
	log           *slog.Logger
	allowEviction bool
	retryFor      time.Duration

	away       atomic.Bool // an outage was logged
	checked    atomic.Bool
	checking   chan struct{} // holds a token while somebody checks the server
	cluster    atomic.Bool   // the server is part of a Cluster
	registered sync.Map      // names of queues that this process has registered

	closing   context.Context
	closeWith context.CancelFunc
	waker     waker
	lanes     lanes // connections of durable sends
	callers   callers
}

var _ store.Store = (*Store)(nil)

// Option changes a Store's defaults.
type Option func(*Store)

// WithPrefix begins every key with prefix instead of DefaultPrefix: up to 64 bytes without braces, which are
// Redis Cluster's hash tag, and control characters. Another one is ErrInvalid at the first call.
func WithPrefix(prefix string) Option { return func(s *Store) { s.keys.prefix = prefix } }

// WithLogger tells where to log; by default slog.Default().
func WithLogger(log *slog.Logger) Option { return func(s *Store) { s.log = log } }

// AllowEviction uses a server whose maxmemory-policy may evict keys. Such a server can lose any message, or a
// part of a queue's bookkeeping, without an error anywhere.
func AllowEviction() Option { return func(s *Store) { s.allowEviction = true } }

// WithRetry tells how long a call is repeated while the server cannot be reached or cannot serve; a shorter
// deadline of the call's context comes first. The default is DefaultRetry.
func WithRetry(d time.Duration) Option { return func(s *Store) { s.retryFor = d } }

// New makes a Store over a go-redis client, which stays the caller's: Close does not close it. New does not
// reach the server; the first call does, and refuses one that is too old or may evict keys (ErrUnsupported).
// The store opens one more connection, with the client's options, on which it waits for messages; over a client
// that is neither a *redis.Client nor a *redis.ClusterClient it waits on that client's own connections, of which
// there must be more than one. A *redis.Ring is refused, since it moves queues about when a server is away.
func New(rdb redis.UniversalClient, opts ...Option) *Store {
	s := &Store{
		rdb:      rdb,
		keys:     keyTable{prefix: DefaultPrefix},
		scripts:  production,
		log:      slog.Default(),
		retryFor: DefaultRetry,
		checking: make(chan struct{}, 1),
	}
	for _, o := range opts {
		o(s)
	}
	s.closing, s.closeWith = context.WithCancel(context.Background())
	s.waker.init(s)
	return s
}

// Close ends every Wait, and closes the client if the store was opened by URL.
func (s *Store) Close() error {
	s.waker.close()
	s.closeWith()
	s.lanes.close()
	if s.ownsClient {
		return s.rdb.Close()
	}
	return nil
}
