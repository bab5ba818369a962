package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// A call that moves messages between sub-queues waits until a failover keeps all that it read and wrote, because the
// next step relies on that: until a replica has it, if the server has replicas, or else its own disk, if it
// can confirm that (WAITAOF). As for a durable send, it must be one connection, and the script must write, so that the
// wait covers what others wrote before (durable.go). Each script of these calls writes the format that the name has, if
// it has nothing else to write.

// safelyWithin is how long such a call waits.
const safelyWithin = 5 * time.Second

// runSafely executes a call like run, and then waits.
func (s *Store) runSafely(ctx context.Context, queue string, c *call) (any, error) {
	c.safe = true
	return s.run(ctx, queue, c)
}

// doSafely executes a call once and waits.
func (s *Store) doSafely(ctx context.Context, c *call) (any, error) {
	from, err := s.nodeFor(ctx, c.args[3].(string))
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
	reply, replicas, err := conn.callAndAsk(ctx, c)
	if n, refused := reply.(int64); err == nil && !(refused && n < 0) {
		err = conn.waitSafely(ctx, s.closing, replicas)
	}
	late, isLate := err.(lateError)
	healthy = err == nil || isLate
	switch {
	case isLate:
		return nil, fmt.Errorf("the change is in the memory of the server, but %w: %w", late, store.ErrUnavailable)
	case err != nil:
		s.reloadSlots(ctx, err)
		return nil, err
	}
	return reply, nil
}

// callAndAsk executes the script and asks how many replicas the server has.
func (conn *dedicatedConn) callAndAsk(ctx context.Context, c *call) (reply any, replicas int, err error) {
	args := c.arguments()
	for {
		limited, cancel := conn.limit(ctx, 0)
		pipe := conn.client.Pipeline()
		script := redis.NewCmd(limited, args...)
		info := redis.NewStringCmd(limited, "INFO", "replication")
		pipe.BatchProcess(limited, script, info)
		pipe.Exec(limited) // each command holds its error
		cancel()
		if err := script.Err(); redis.HasErrorPrefix(err, "NOSCRIPT") && args[0] == "evalsha" {
			args = append([]any(nil), args...)
			args[0], args[1] = "eval", c.script.body
			continue
		} else if err != nil {
			return nil, 0, err
		}
		if err := info.Err(); err != nil && !forbidden(err) {
			return nil, 0, brokenWait{err}
		}
		return script.Val(), onlineReplicas(info.Val()), nil
	}
}

// onlineReplicas returns the number of replicas in a reply to INFO that receive every write.
func onlineReplicas(info string) (n int) {
	for line := range strings.Lines(info) {
		name, state, _ := strings.Cut(line, ":")
		number, ok := strings.CutPrefix(name, "slave")
		if _, err := strconv.Atoi(number); ok && err == nil && strings.Contains(state, "state=online") {
			n++
		}
	}
	return n
}

// lateError is the error of a wait that ended without a confirmation.
type lateError string

func (l lateError) Error() string { return string(l) }

// waitSafely waits until a replica, or else the disk, has all that the connection wrote.
func (conn *dedicatedConn) waitSafely(ctx, closing context.Context, replicas int) error {
	if replicas == 0 && conn.confirmMode != confirmAOF || conn.noWait {
		return nil
	}
	what := "no replica has it"
	if replicas == 0 {
		what = "the disk does not have it"
	}
	for until := time.Now().Add(safelyWithin); ; {
		slice := max(min(time.Until(until), waitSlice), time.Millisecond)
		limited, cancel := conn.limit(ctx, slice)
		cmd := redis.NewCmd(limited, "WAIT", 1, store.Millis(slice))
		if replicas == 0 {
			cmd = redis.NewCmd(limited, "WAITAOF", 1, 0, store.Millis(slice))
		}
		_ = conn.client.Process(limited, cmd) // the command holds its error
		cancel()
		reached, err := readProgress(cmd)
		switch {
		case err != nil:
			return brokenWait{err}
		case replicas > 0 && reached.replicas > 0, replicas == 0 && reached.disk:
			return nil
		case ctx.Err() != nil:
			return brokenWait{context.Cause(ctx)}
		case closing.Err() != nil:
			return brokenWait{store.ErrClosed}
		case time.Now().After(until):
			return lateError(fmt.Sprintf("%s after %v: look at the replication and the disk of the server", what,
				safelyWithin))
		}
	}
}
