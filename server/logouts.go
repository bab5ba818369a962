package server

import (
	"context"
	"errors"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/server/access"
)

// Logouts returns the record of ended logins that all servers of a client's store share. Each ended login is a message
// in an internal queue. Its id is the id of the session, and it is due when the login would have ended by itself.
func Logouts(c *later.Client) access.Revocations { return &logouts{c.Queue(reserved.Logouts)} }

type logouts struct{ queue *later.Queue }

// Revoke also removes the messages of sessions that would have ended by now.
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
