package later

import (
	"context"
	"log/slog"
	"time"

	"github.com/laterq/later/store"
)

// levelOf returns the level that is configured, or else a default.
func levelOf(configured slog.Leveler, otherwise slog.Level) slog.Level {
	if configured == nil {
		return otherwise
	}
	return configured.Level()
}

// logFailure logs a failed attempt after which the message is delivered again.
func (t *task) logFailure(delay time.Duration, err error) {
	r := t.lease.qw.run
	level := levelOf(r.cfg.FailureLevel, slog.LevelDebug)
	if r.log.Enabled(context.Background(), level) {
		r.log.Log(context.Background(), level, "later: an attempt failed",
			"queue", t.Queue, "id", t.ID, "attempt", t.Attempt, "of", t.MaxAttempts, "again_in", delay, "error", err)
	}
}

// logDeath logs that a message became dead because of how it was settled.
func (r *run) logDeath(queue, id string, attempt, of int, err error) {
	if of == 0 {
		of = store.DefaultMaxAttempts
	}
	r.log.Log(context.Background(), levelOf(r.cfg.DeathLevel, slog.LevelWarn), "later: a message is dead",
		"queue", queue, "id", id, "attempt", attempt, "of", of, "error", err)
}

// logDeaths logs that a claim found messages expired or out of attempts, with the id of the first.
func (r *run) logDeaths(qw *queueWorker, ids []string) {
	if len(ids) > 0 {
		r.log.Log(context.Background(), levelOf(r.cfg.DeathLevel, slog.LevelWarn),
			"later: messages are dead, expired or out of attempts",
			"queue", qw.queue.name, "messages", len(ids), "first", ids[0])
	}
}
