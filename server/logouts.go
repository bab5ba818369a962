package server

import (
	"context"
	"errors"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/server/access"
)

// Logouts returns what all servers of a client's store know of logins that were ended: a message each in an internal
// queue, which has the id of the session and is due when the login would have ended by itself.
func Logouts(c *later.Client) access.Revocations { return &logouts{c.Queue(reserved.Logouts)} }

type logouts struct{ queue *later.Queue }

// Revoke also removes those of sessions that have ended by themselves.
func (l *logouts) Revoke(ctx context.Context, session string, until time.Time) error {
	_, err := l.queue.Send(ctx, nil, later.At(until), later.WithID(session))
	if err == nil {
		_, err = l.queue.Purge(ctx, later.StateReady)
	}
	if errors.Is(err, later.ErrDuplicate) {
		return nil
	}
	return err
}

func (l *logouts) Revoked(ctx context.Context, session string) (bool, error) {
	_, err := l.queue.Get(ctx, session)
	if errors.Is(err, later.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
