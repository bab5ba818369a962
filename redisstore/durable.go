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

// A durable send runs its script and then waits, on the same connection, until everything that the connection wrote has
// reached the requested disks and replicas: with WAITAOF if the server has it and keeps an append-only file, otherwise
// with WAIT. Both cover everything the server wrote up to the connection's last write
// (redis.io/docs/latest/commands/wait and waitaof). A send of duplicates only therefore rewrites a field of the queue's
// meta, and is confirmed together with the original messages.
//
// It must be the same connection: another one may lead to a server that was promoted since and never received the
// write. Durable sends therefore use dedicated connections, which also keeps them from delaying other calls
// (dedicated_conn.go).

// waitSlice is the longest single wait. Between waits, the caller's context and the closing of the store are checked.
const waitSlice = time.Second

// confirmation is the condition that a call waits for after its script.
type confirmation struct {
	asked store.Durability
	key   string // of the queue, to find its node in a Cluster
	until time.Time
	reply any   // of the script, nil until it has run
	err   error // ErrNotDurable if the wait ended without confirmation
}

// confirm makes a call wait until its writes are durable.
func (c *call) confirm(asked store.Durability) {
	c.confirmed = &confirmation{asked: asked, key: c.args[3].(string)}
}

// doDurably executes a call once and waits. It returns the script's reply once the wait is over, with or without
// confirmation. An error means that the connection broke before that, and the call must be repeated.
func (s *Store) doDurably(ctx context.Context, c *call) (any, error) {
	w := c.confirmed
	from, err := s.nodeFor(ctx, w.key)
	if err != nil {
		return nil, err
	}
	conn, err := s.dedicatedConns.acquire(ctx, from)
	if err != nil {
		s.reloadSlots(ctx, err)
		return nil, err
	}
	healthy := false
	defer func() { s.dedicatedConns.release(conn, healthy) }()
	if err := conn.canConfirm(w.asked); err != nil {
		healthy = true
		if w.reply == nil {
			return nil, err
		}
		// An earlier attempt wrote, and the server can no longer confirm.
		w.err = fmt.Errorf("message is in the server's memory, but %s: %w", err, store.ErrNotDurable)
		return w.reply, nil
	}
	reached, err := conn.send(ctx, c)
	if err == nil && reached == nil {
		healthy = true
		return w.reply, nil // the script wrote nothing
	}
	if err == nil {
		err = conn.wait(ctx, s.closing, w, reached)
	}
	if err != nil {
		s.reloadSlots(ctx, err)
		return nil, err
	}
	healthy = true
	return w.reply, nil
}

// canConfirm returns an error if the server can never give the requested confirmation.
func (conn *dedicatedConn) canConfirm(asked store.Durability) error {
	switch {
	case conn.refused == "" || asked.Replicas > 0 && !conn.noWait:
		return nil
	case asked.Replicas > 0:
		return fmt.Errorf("%s: %w", conn.refused, store.ErrUnsupported)
	}
	return fmt.Errorf("%s, or ask for replicas: %w", conn.refused, store.ErrUnsupported)
}

// progress is how far a write has got.
type progress struct {
	disk     bool // fsynced by the server itself
	replicas int
}

// send runs the script and the first part of the wait in one round trip. The progress is nil if the script wrote
// nothing.
func (conn *dedicatedConn) send(ctx context.Context, c *call) (*progress, error) {
	w := c.confirmed
	reply, reached, err := conn.sendAs(ctx, c, c.arguments())
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args := append([]any(nil), c.arguments()...)
		args[0], args[1] = "eval", c.script.body
		reply, reached, err = conn.sendAs(ctx, c, args)
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

func (conn *dedicatedConn) sendAs(ctx context.Context, c *call, args []any) (any, *progress, error) {
	w := c.confirmed
	slice := min(w.asked.Timeout, waitSlice)
	ctx, cancel := conn.limit(ctx, slice)
	defer cancel()
	pipe := conn.client.Pipeline()
	script := redis.NewCmd(ctx, args...)
	wait := conn.waitCommand(ctx, w.asked, slice)
	pipe.BatchProcess(ctx, script, wait)
	if w.until.IsZero() {
		w.until = time.Now().Add(w.asked.Timeout)
	}
	pipe.Exec(ctx) // each command holds its error
	if err := script.Err(); err != nil {
		w.until = time.Time{}
		return nil, nil, err
	}
	reached, err := readProgress(wait)
	if err != nil {
		w.reply = script.Val()
		return nil, nil, brokenWait{err}
	}
	return script.Val(), reached, nil
}

// wait waits until everything is confirmed. If the time, the context or the store ends first, it sets w.err.
func (conn *dedicatedConn) wait(ctx, closing context.Context, w *confirmation, reached *progress) error {
	for {
		if reached.replicas >= w.asked.Replicas && (reached.disk || conn.confirmMode == confirmReplicas) {
			return nil
		}
		left := time.Until(w.until)
		if deadline, ok := ctx.Deadline(); ok {
			left = min(left, time.Until(deadline))
		}
		switch {
		case ctx.Err() != nil:
			w.err = conn.notDurable(w, reached, context.Cause(ctx))
		case closing.Err() != nil:
			w.err = conn.notDurable(w, reached, store.ErrClosed)
		case left <= 0 || conn.confirmMode == confirmReply && !reached.disk:
			w.err = conn.notDurable(w, reached, nil)
		}
		if w.err != nil {
			return nil
		}
		slice := max(min(left, waitSlice), time.Millisecond)
		limited, cancel := conn.limit(ctx, slice)
		cmd := conn.waitCommand(limited, w.asked, slice)
		_ = conn.client.Process(limited, cmd) // the command holds its error
		cancel()
		var err error
		if reached, err = readProgress(cmd); err != nil {
			return brokenWait{err}
		}
	}
}

// waitCommand returns the command that makes the server confirm.
func (conn *dedicatedConn) waitCommand(ctx context.Context, asked store.Durability, slice time.Duration) redis.Cmder {
	switch {
	case conn.confirmMode == confirmAOF:
		return redis.NewCmd(ctx, "WAITAOF", 1, asked.Replicas, store.Millis(slice))
	case asked.Replicas == 0:
		return conn.fsyncCommand(ctx)
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
		case int64: // of WAIT; the settings determine whether the server's own disk has it
			return &progress{disk: true, replicas: int(reply)}, nil
		case []any:
			disk, ok1 := reply[0].(int64)
			replicas, ok2 := reply[1].(int64)
			if ok1 && ok2 {
				return &progress{disk: disk > 0, replicas: int(replicas)}, nil
			}
		}
	}
	return nil, fmt.Errorf("unexpected reply to %s: %w", cmd.Name(), store.ErrUnsupported)
}

// notDurable returns an error that states how far the write got.
func (conn *dedicatedConn) notDurable(w *confirmation, reached *progress, cause error) error {
	var progressText []string
	if !reached.disk {
		progressText = append(progressText, "not fsynced")
	}
	if n := w.asked.Replicas; n > 0 && conn.confirmMode == confirmAOF {
		progressText = append(progressText,
			fmt.Sprintf("fsynced by %d of %d replicas (one with appendonly no never is)", reached.replicas, n))
	} else if n > 0 {
		progressText = append(progressText, fmt.Sprintf("acknowledged by %d of %d replicas", reached.replicas, n))
	}
	text := fmt.Sprintf("message is in the primary's memory, but %s within %v", strings.Join(progressText, " and "),
		w.asked.Timeout)
	if cause != nil {
		return fmt.Errorf("%s (%w): %w", text, cause, store.ErrNotDurable)
	}
	return fmt.Errorf("%s; to keep waiting, send it again with the same id: %w", text, store.ErrNotDurable)
}

// brokenWait is a wait that the server refused or did not answer after the script had run. The whole call is
// repeated, because the server may have been demoted. The server's error is of no use for classification, so it is
// not wrapped.
type brokenWait struct{ cause error }

func (b brokenWait) Error() string { return "waiting for durability: " + b.cause.Error() }
func (brokenWait) Timeout() bool   { return false }
func (brokenWait) Temporary() bool { return true }

// nodeFor returns the client of the server that has the queue.
func (s *Store) nodeFor(ctx context.Context, key string) (*redis.Client, error) {
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		return rdb, nil
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, key)
	}
	return nil, fmt.Errorf("durable sends and shards need a *redis.Client or *redis.ClusterClient, and this store has a "+
		"%T: %w", s.rdb, store.ErrUnsupported)
}

// reloadSlots makes a Cluster's client reload the slots after an error that suggests they have changed. While a slot
// moves, both its source and its target node redirect calls with missing keys; such a call is repeated until the slot
// has moved.
func (s *Store) reloadSlots(ctx context.Context, err error) {
	rdb, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return
	}
	if _, answered := errors.AsType[redis.Error](err); !answered || redis.HasErrorPrefix(err, "MOVED") ||
		redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "READONLY") ||
		redis.HasErrorPrefix(err, "CLUSTERDOWN") {
		rdb.ReloadState(ctx)
	}
}
