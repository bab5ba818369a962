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
	firstPause   = 5 * time.Millisecond
	longestPause = 500 * time.Millisecond
	sayAfter     = time.Second // an outage that lasts so long is logged, once
)

// transient are the errors that a server gives while it starts, fails over or moves a slot.
var transient = []string{"LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "MOVED", "ASK", "BUSY", "NOREPLICAS", "UNBLOCKED"}

// classify tells an error's kind, and whether trying again can help.
func classify(err error) (kind *store.Error, again bool) {
	if e, ok := errors.AsType[*store.Error](err); ok {
		return e, false
	}
	for _, prefix := range transient {
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
		return store.ErrUnavailable, false // NOAUTH, NOPERM, MISCONF and the like: somebody has to change something
	}
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, net.ErrClosed) {
		return store.ErrUnavailable, true
	}
	return store.ErrUnavailable, false
}

// wrap gives an error its kind.
func wrap(kind *store.Error, err error) error {
	if errors.Is(err, kind) {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// retry repeats f until it is answered, the context ends or the store's limit is over.
func (s *Store) retry(ctx context.Context, f func(ctx context.Context) (any, error)) (any, error) {
	var began, until time.Time
	pause := firstPause
	for {
		v, err := f(ctx)
		if err == nil {
			if !began.IsZero() && s.away.Swap(false) {
				s.log.Info("later: Redis serves again")
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
		s.lookAround(ctx, err)
		if now.Sub(began) > sayAfter && !s.away.Swap(true) {
			s.log.Warn("later: Redis does not serve, trying on", "error", err)
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, longestPause)
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), wrap(kind, err))
		case <-s.closing.Done():
			return nil, store.ErrClosed
		}
	}
}
