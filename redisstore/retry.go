package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

const (
	minBackoff     = 5 * time.Millisecond
	maxBackoff     = 500 * time.Millisecond
	logOutageAfter = time.Second // an outage is logged once, after this time
)

// transientPrefixes are the errors of a server that is starting, failing over or moving a slot.
var transientPrefixes = []string{"LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "MOVED", "ASK",
	"BUSY", "NOREPLICAS", "UNBLOCKED"}

// classify returns an error's kind and reports whether a retry can succeed.
func classify(err error) (kind *store.Error, again bool) {
	if e, ok := errors.AsType[*store.Error](err); ok {
		return e, false
	}
	for _, prefix := range transientPrefixes {
		if redis.HasErrorPrefix(err, prefix) {
			return store.ErrUnavailable, true
		}
	}
	switch {
	case errors.Is(err, redis.ErrClosed):
		return store.ErrClosed, false
	case redis.IsOOMError(err):
		return store.ErrFull, false
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return store.ErrCorrupt, false
	case redis.IsMaxClientsError(err):
		return store.ErrUnavailable, true
	}
	if redisErr, ok := errors.AsType[redis.Error](err); ok && redisErr != nil {
		return store.ErrUnavailable, false // NOAUTH, NOPERM, MISCONF and the like need a change of configuration
	}
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, net.ErrClosed) {
		return store.ErrUnavailable, true
	}
	return store.ErrUnavailable, false
}

// wrap adds a kind to an error.
func wrap(kind *store.Error, err error) error {
	if errors.Is(err, kind) {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// retry repeats f until it succeeds, the context ends or the store's retry limit has passed.
func (s *Store) retry(ctx context.Context, f func(ctx context.Context) (any, error)) (any, error) {
	var began, until time.Time
	pause := minBackoff
	for {
		v, err := f(ctx)
		if err == nil {
			if !began.IsZero() && s.outageLogged.Swap(false) {
				s.log.Info("later: Redis is available again")
			}
			return v, nil
		}
		if s.closing.Err() != nil {
			return nil, store.ErrClosed
		}
		kind, tryAgain := classify(err)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), wrap(kind, err))
		}
		now := time.Now()
		if began.IsZero() {
			began, until = now, now.Add(s.retryFor)
		}
		if !tryAgain || now.After(until) {
			return nil, wrap(kind, err)
		}
		s.reloadSlots(ctx, err)
		if now.Sub(began) > logOutageAfter && !s.outageLogged.Swap(true) {
			s.log.Warn("later: Redis is unavailable, retrying", "error", err)
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, maxBackoff)
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), wrap(kind, err))
		case <-s.closing.Done():
			return nil, store.ErrClosed
		}
	}
}
