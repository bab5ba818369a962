package redisstore

import (
	"context"
	"crypto/tls"
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

// misconfiguredPrefixes are the errors of a server that refuses this client: its password, its user's permissions, its
// database, its connection, or a client for a single server at a node of a Cluster (CROSSSLOT). go-redis removes a
// leading "ERR ".
var misconfiguredPrefixes = []string{"NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "AUTH", "invalid password",
	"DB index is out of range", "invalid DB index", "SELECT is not allowed", "unknown command",
	"Client sent AUTH", "This instance has cluster support disabled", "CROSSSLOT"}

func isMisconfigured(err error) bool {
	for _, prefix := range misconfiguredPrefixes {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	_, ok := errors.AsType[tls.RecordHeaderError](err) // the server does not speak TLS
	return ok
}

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
	case redis.HasErrorPrefix(err, "OOM"):
		return store.ErrFull, false
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return store.ErrCorrupt, false
	case redis.HasErrorPrefix(err, "max number of clients reached"):
		return store.ErrUnavailable, true
	case isMisconfigured(err):
		return store.ErrMisconfigured, false
	}
	if redisErr, ok := errors.AsType[redis.Error](err); ok && redisErr != nil {
		return store.ErrUnavailable, false // MISCONF and the like last until the server is mended
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
	if redis.HasErrorPrefix(err, "READONLY") {
		err = fmt.Errorf("the server has become a replica: open its primary instead; %s: %w", followingClients, err)
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// mayHaveExecuted reports whether the server may have executed a call that returned err: the call was sent, and got no
// reply.
func mayHaveExecuted(err error) bool {
	if _, refused := errors.AsType[*store.Error](err); refused {
		return false
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		return false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return false
	}
	return !errors.Is(err, redis.ErrClosed) && !errors.Is(err, redis.ErrPoolTimeout)
}

// closedError returns the error of a call that Close ended: ErrClosed if the call was certainly not executed, and
// ErrUnavailable if unknown, the error of an earlier attempt, leaves that open.
func closedError(unknown error) error {
	if unknown == nil {
		return store.ErrClosed
	}
	return wrap(store.ErrUnavailable, fmt.Errorf("the store was closed before it knew the outcome: %w", unknown))
}

// retry repeats f until it succeeds, the context ends or the store's retry limit has passed, and for maxRetry at most
// after an attempt that may have been executed: the server does not remember it for ever.
func (s *Store) retry(ctx context.Context, f func(ctx context.Context) (any, error)) (any, error) {
	var began, until time.Time
	var unknown error           // of the last attempt that may have been executed
	var mayBeExecuted time.Time // start of the first of them
	pause := minBackoff
	for {
		asked := time.Now()
		v, err := f(ctx)
		if err == nil {
			if !began.IsZero() && s.outageLogged.Swap(false) {
				s.log.Info("later: Redis is available again")
			}
			return v, nil
		}
		if mayHaveExecuted(err) {
			unknown = err
			if mayBeExecuted.IsZero() {
				mayBeExecuted = asked
			}
		}
		if s.closing.Err() != nil {
			return nil, closedError(unknown)
		}
		kind, tryAgain := classify(err)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), wrap(kind, err))
		}
		now := time.Now()
		if began.IsZero() {
			began, until = now, now.Add(s.retryFor)
		}
		if !tryAgain && unknown != nil && !mayHaveExecuted(err) {
			// This attempt was refused, but an earlier one may have been executed, which these kinds of error deny.
			return nil, wrap(store.ErrUnavailable, fmt.Errorf("%w; a repetition was refused: %v", unknown, err))
		}
		if !tryAgain || now.After(until) || !mayBeExecuted.IsZero() && now.Sub(mayBeExecuted) > maxRetry {
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
			return nil, closedError(unknown)
		}
	}
}
