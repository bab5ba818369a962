package later

import (
	"context"
	"errors"
	"time"

	"github.com/laterq/later/store"
)

// Ping returns nil if the store serves calls now: in a Cluster, all of its primaries do. Use it for a readiness probe.
// It does not retry, and returns when ctx ends, for example after a second; a server that hangs is noticed only then.
//
// Errors: ErrUnavailable, ErrMisconfigured, ErrUnauthenticated, ErrForbidden, ErrUnsupported, ErrClosed, the cause of
// ctx.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.calls.Done()
	if p, ok := c.store.(store.Pinger); ok {
		return p.Ping(ctx)
	}
	_, err := c.store.Stats(ctx, "ping")
	return err
}

// WaitForStore has Open wait for a store that does not answer yet, for example because it starts at the same time as
// the program, or because another process has the embedded store open. Open tries again until d has passed or its
// context ends, and then returns the last error. d is more than 0.
func WaitForStore(d time.Duration) Option { return waitForStore(d) }

type waitForStore time.Duration

func (w waitForStore) applyClient(o *options) error {
	if w <= 0 {
		return store.Invalid("WaitForStore is %v: give more than 0", time.Duration(w))
	}
	if o.wait > 0 {
		return twice("WaitForStore")
	}
	o.wait = time.Duration(w)
	return nil
}

const (
	minOpenPause = 50 * time.Millisecond
	maxOpenPause = time.Second
)

// openStore opens the store at url, and tries again if it is to wait for it.
func openStore(ctx context.Context, url string, o *options) (store.Store, error) {
	began, logged := time.Now(), false
	for pause := minOpenPause; ; pause = min(2*pause, maxOpenPause) {
		s, err := store.Open(ctx, url, store.OpenConfig{Logger: o.logger})
		if err == nil && logged {
			o.logger.Info("later: the store is open", "after", time.Since(began).Round(time.Millisecond))
		}
		left := o.wait - time.Since(began)
		if err == nil || !errors.Is(err, ErrUnavailable) || left <= 0 {
			return s, err
		}
		if !logged {
			logged = true
			o.logger.Warn("later: waiting for the store", "store", store.RedactURL(url), "limit", o.wait, "error", err)
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}
