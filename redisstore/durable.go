package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// A durable send runs its script and then waits, on the same connection, until what that connection wrote has
// arrived where it was asked to: by WAITAOF where the server has it and keeps an append-only file, else by WAIT. Both
// cover all that the server wrote up to the connection's last write (redis.io/docs/latest/commands/wait and
// waitaof). So a send that finds all its messages there writes a field of the queue's meta again, and is confirmed
// as those messages are.
//
// It must be the same connection: another one may lead to a server that was promoted meanwhile and never had the
// write. So these sends have connections of their own, which also keeps them from holding up others (lane.go).

// waitSlice is the longest one wait; between two, the caller's context and the store's end are looked at.
const waitSlice = time.Second

// confirmation is what a call waits for once its script is done.
type confirmation struct {
	asked store.Durability
	key   string // one of the queue's, by which a Cluster's node is found
	until time.Time
	reply any   // of the script; nil until it is done
	err   error // ErrNotDurable, when the wait is over
}

// confirm has a call wait until what it wrote is durable.
func (c *call) confirm(asked store.Durability) {
	c.confirmed = &confirmation{asked: asked, key: c.args[3].(string)}
}

// doDurably runs a call once and waits. It gives the script's reply once the script is done and the wait is over,
// however that ended. An error means that the connection broke before: the call is made again.
func (s *Store) doDurably(ctx context.Context, c *call) (any, error) {
	w := c.confirmed
	from, err := s.laneSource(ctx, w.key)
	if err != nil {
		return nil, err
	}
	l, err := s.lanes.take(ctx, from)
	if err != nil {
		s.lookAround(ctx, err)
		return nil, err
	}
	healthy := false
	defer func() { s.lanes.giveBack(l, healthy) }()
	if err := l.can(w.asked); err != nil {
		healthy = true
		if w.reply == nil {
			return nil, err
		}
		// An earlier try wrote, and the server can no longer confirm.
		w.err = fmt.Errorf("message is in the server's memory, but %s: %w", err, store.ErrNotDurable)
		return w.reply, nil
	}
	reached, err := l.send(ctx, c)
	if err == nil && reached == nil {
		healthy = true
		return w.reply, nil // the script wrote nothing
	}
	if err == nil {
		err = l.wait(ctx, s.closing, w, reached)
	}
	if err != nil {
		s.lookAround(ctx, err)
		return nil, err
	}
	healthy = true
	return w.reply, nil
}

// can refuses what the server can never confirm.
func (l *lane) can(asked store.Durability) error {
	forbidden := l.confirms == byReplicas && strings.Contains(l.refused, "forbids WAIT")
	if l.refused == "" || asked.Replicas > 0 && !forbidden {
		return nil
	}
	if asked.Replicas > 0 {
		return fmt.Errorf("%s: %w", l.refused, store.ErrUnsupported)
	}
	return fmt.Errorf("%s, or ask for replicas: %w", l.refused, store.ErrUnsupported)
}

// progress is how far a write has come.
type progress struct {
	disk     bool // fsynced by the server itself
	replicas int
}

// send runs the script, and the first part of the wait in the same round trip. The progress is nil when the
// script wrote nothing.
func (l *lane) send(ctx context.Context, c *call) (*progress, error) {
	w := c.confirmed
	reply, reached, err := l.sendAs(ctx, c, c.args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args := append([]any(nil), c.args...)
		args[0], args[1] = "eval", c.script.body
		reply, reached, err = l.sendAs(ctx, c, args)
	}
	if err != nil {
		return nil, err
	}
	if _, refused := reply.(int64); refused {
		w.reply = reply
		return nil, nil
	}
	w.reply = reply
	return reached, nil
}

func (l *lane) sendAs(ctx context.Context, c *call, args []any) (any, *progress, error) {
	w := c.confirmed
	slice := min(w.asked.Timeout, waitSlice)
	ctx, cancel := l.limit(ctx, slice)
	defer cancel()
	pipe := l.client.Pipeline()
	script := redis.NewCmd(ctx, args...)
	wait := l.waitCommand(ctx, w.asked, slice)
	pipe.BatchProcess(ctx, script, wait)
	if w.until.IsZero() {
		w.until = time.Now().Add(w.asked.Timeout)
	}
	pipe.Exec(ctx) // each command has its error
	if err := script.Err(); err != nil {
		w.until = time.Time{}
		return nil, nil, err
	}
	reached, err := readProgress(wait)
	if err != nil {
		w.reply = script.Val()
		return nil, nil, broken{err}
	}
	return script.Val(), reached, nil
}

// wait waits on until all is confirmed, or time, context or store are over, which w.err then says.
func (l *lane) wait(ctx, closing context.Context, w *confirmation, reached *progress) error {
	for {
		if reached.replicas >= w.asked.Replicas && (reached.disk || l.confirms == byReplicas) {
			return nil
		}
		left := time.Until(w.until)
		if deadline, ok := ctx.Deadline(); ok {
			left = min(left, time.Until(deadline))
		}
		switch {
		case ctx.Err() != nil:
			w.err = l.notDurable(w, reached, context.Cause(ctx))
		case closing.Err() != nil:
			w.err = l.notDurable(w, reached, store.ErrClosed)
		case left <= 0 || l.confirms == byReply && !reached.disk:
			w.err = l.notDurable(w, reached, nil)
		}
		if w.err != nil {
			return nil
		}
		slice := max(min(left, waitSlice), time.Millisecond)
		limited, cancel := l.limit(ctx, slice)
		cmd := l.waitCommand(limited, w.asked, slice)
		_ = l.client.Process(limited, cmd) // the command has its error
		cancel()
		var err error
		if reached, err = readProgress(cmd); err != nil {
			return broken{err}
		}
	}
}

// waitCommand is the command by which the server confirms.
func (l *lane) waitCommand(ctx context.Context, asked store.Durability, slice time.Duration) redis.Cmder {
	switch {
	case l.confirms == byAOF:
		return redis.NewCmd(ctx, "WAITAOF", 1, asked.Replicas, store.Millis(slice))
	case asked.Replicas == 0:
		return l.fsyncCommand(ctx)
	}
	return redis.NewCmd(ctx, "WAIT", asked.Replicas, store.Millis(slice))
}

func readProgress(cmd redis.Cmder) (*progress, error) {
	if err := cmd.Err(); err != nil {
		return nil, err
	}
	switch cmd := cmd.(type) {
	case *redis.MapStringStringCmd:
		return &progress{disk: fsyncsAlways(cmd.Val())}, nil
	case *redis.Cmd:
		switch reply := cmd.Val().(type) {
		case int64: // of WAIT; what the server's own disk has is known by its settings
			return &progress{disk: true, replicas: int(reply)}, nil
		case []any:
			disk, ok1 := reply[0].(int64)
			replicas, ok2 := reply[1].(int64)
			if ok1 && ok2 {
				return &progress{disk: disk > 0, replicas: int(replicas)}, nil
			}
		}
	}
	return nil, fmt.Errorf("%s has an unknown reply: %w", cmd.Name(), store.ErrUnsupported)
}

// notDurable says how far the write got.
func (l *lane) notDurable(w *confirmation, reached *progress, cause error) error {
	var far []string
	if !reached.disk {
		far = append(far, "not fsynced")
	}
	if n := w.asked.Replicas; n > 0 && l.confirms == byAOF {
		far = append(far, fmt.Sprintf("fsynced by %d of %d replicas (one with appendonly no never is)", reached.replicas, n))
	} else if n > 0 {
		far = append(far, fmt.Sprintf("acknowledged by %d of %d replicas", reached.replicas, n))
	}
	text := fmt.Sprintf("message is in the primary's memory, but %s within %v", strings.Join(far, " and "), w.asked.Timeout)
	if cause != nil {
		return fmt.Errorf("%s (%w): %w", text, cause, store.ErrNotDurable)
	}
	return fmt.Errorf("%s; sending it again with the same id waits on: %w", text, store.ErrNotDurable)
}

// broken is a wait that the server refused or that was not answered, after the script was done. The whole call is
// made again: the server may have been demoted. What the server said is of no use to classify.
type broken struct{ cause error }

func (b broken) Error() string { return "waiting for durability: " + b.cause.Error() }
func (broken) Timeout() bool   { return false }
func (broken) Temporary() bool { return true }

// laneSource gives the client of the server that has the queue.
func (s *Store) laneSource(ctx context.Context, key string) (*redis.Client, error) {
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		return rdb, nil
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, key)
	}
	return nil, fmt.Errorf("durable sends need a *redis.Client or *redis.ClusterClient, and this store has a %T: %w",
		s.rdb, store.ErrUnsupported)
}

// lookAround has a Cluster's client look where the slots are now, after an error that says it knows no longer. While a
// slot moves, the node it comes from and the one it goes to both send away what needs keys that are not there; such
// a call is made again until the slot has moved.
func (s *Store) lookAround(ctx context.Context, err error) {
	rdb, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return
	}
	if _, answered := errors.AsType[redis.Error](err); !answered || redis.HasErrorPrefix(err, "MOVED") ||
		redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "READONLY") || redis.HasErrorPrefix(err, "CLUSTERDOWN") {
		rdb.ReloadState(ctx)
	}
}
