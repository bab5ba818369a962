package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// A call that moves messages between sub-queues waits until a failover keeps all that it read and wrote, because the
// next step relies on that: until a replica has it, if the server has replicas, or else its own disk, if it
// can confirm that (WAITAOF). As for a durable send, it must be one connection, and the script must write, so that the
// wait covers what others wrote before (durable.go). Each script of these calls writes the format that the name has, if
// it has nothing else to write.
//
// A primary that was frozen, or cut off, does not know yet that a replica has replaced it. If it has other replicas,
// one of them may confirm what is lost with it, and if it has none left, it looks like a server without any. So a
// server confirms nothing for a while after this process has noticed that it has fewer replicas.

// safelyWithin is how long such a call waits.
const safelyWithin = 5 * time.Second

// replicasRemembered is how long a server confirms nothing after this process has noticed that it has lost a replica.
// When a replica is promoted, the others follow it within seconds.
const replicasRemembered = time.Minute

// replicaCounts has the numbers of replicas that this process has seen, by the replication id of their server. A
// replica has another id once it is promoted.
type replicaCounts struct {
	mu sync.Mutex
	of map[string]replicaCount
}

type replicaCount struct {
	n    int
	lost time.Time // when the process noticed that the server has fewer, zero if it does not
}

// maxReplicaCounts is how many servers are remembered, about.
const maxReplicaCounts = 1000

// check records what a server says of its replicas. It returns an error if it had more, unless this was noticed a while
// ago. It takes a server that does not name its history of writes as it is.
func (c *replicaCounts) check(info replication) error {
	if info.id == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	count, now := c.of[info.id], time.Now()
	if fewer := info.online < count.n; fewer && count.lost.IsZero() {
		count.lost = now
	} else if !fewer || now.Sub(count.lost) >= replicasRemembered {
		count = replicaCount{n: info.online}
	}
	if c.of == nil || len(c.of) >= maxReplicaCounts {
		c.of = map[string]replicaCount{}
	}
	c.of[info.id] = count
	if count.lost.IsZero() {
		return nil
	}
	return lateError(fmt.Sprintf("the server has %d replicas, and had %d: if no other one has replaced it, it confirms "+
		"changes again in %v", info.online, count.n, replicasRemembered-now.Sub(count.lost).Truncate(time.Second)))
}

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
	reply, info, err := conn.callAndAsk(ctx, c)
	if n, refused := reply.(int64); err == nil && !(refused && n < 0) {
		err = s.confirm(ctx, conn, info)
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

// confirm waits until a failover keeps the writes of a connection. info has the replicas of its server at their time.
func (s *Store) confirm(ctx context.Context, conn *dedicatedConn, info replication) error {
	if err := s.replicaCounts.check(info); err != nil {
		return err
	}
	info, err := conn.waitSafely(ctx, s.closing, info)
	if err != nil {
		return err
	}
	return s.replicaCounts.check(info)
}

// callAndAsk executes the script and asks which replicas the server has.
func (conn *dedicatedConn) callAndAsk(ctx context.Context, c *call) (reply any, of replication, err error) {
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
			return nil, of, err
		}
		if err := info.Err(); err != nil && !forbidden(err) {
			return nil, of, brokenWait{err}
		}
		return script.Val(), readReplication(info.Val()), nil
	}
}

// replication is what a server says of its replicas.
type replication struct {
	id     string // of its history of writes
	online int    // replicas that receive every write
}

// readReplication reads a reply to INFO.
func readReplication(info string) (of replication) {
	fields := infoFields(info)
	for name, value := range fields {
		number, ok := strings.CutPrefix(name, "slave")
		if _, err := strconv.Atoi(number); ok && err == nil && strings.Contains(value, "state=online") {
			of.online++
		}
	}
	of.id = fields["master_replid"]
	return of
}

// lateError is the error of a wait that ended without a confirmation.
type lateError string

func (l lateError) Error() string { return string(l) }

// waitSafely waits until a replica, or else the disk, has all that the connection wrote, and returns which replicas the
// server has afterwards.
func (conn *dedicatedConn) waitSafely(ctx, closing context.Context, before replication) (replication, error) {
	replicas := before.online
	if replicas == 0 && conn.confirmMode != confirmAOF || conn.noWait {
		return before, nil
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
		pipe, info := conn.client.Pipeline(), redis.NewStringCmd(limited, "INFO", "replication")
		pipe.BatchProcess(limited, cmd, info)
		pipe.Exec(limited) // each command holds its error
		cancel()
		reached, err := readProgress(cmd)
		if err == nil && info.Err() != nil && !forbidden(info.Err()) {
			err = info.Err()
		}
		switch {
		case err != nil:
			return before, brokenWait{err}
		case replicas > 0 && reached.replicas > 0, replicas == 0 && reached.disk:
			return readReplication(info.Val()), nil
		case ctx.Err() != nil:
			return before, brokenWait{context.Cause(ctx)}
		case closing.Err() != nil:
			return before, brokenWait{store.ErrClosed}
		case time.Now().After(until):
			return before, lateError(fmt.Sprintf("%s after %v: look at the replication and the disk of the server", what,
				safelyWithin))
		}
	}
}
