package redisstore

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/laterq/later/store"
)

const (
	laneLife    = time.Minute // then a lane is made anew, so that changed settings of the server are noticed
	spareLanes  = 4           // of a node, kept open while they are not used
	defaultRead = 3 * time.Second
)

// A lane is one connection on which durable sends write and wait. It is never exchanged for another one: when the
// connection is gone the lane is over, and with it what it was waiting for.
type lane struct {
	node   *laneNode
	client *redis.Client
	born   time.Time
	read   time.Duration // how long a reply may take, beside what is waited for

	confirms confirms
	refused  string // why the server cannot confirm what needs its own disk, "" when it can
}

// confirms is by what a server tells that a write is safe.
type confirms uint8

const (
	byReplicas confirms = iota // WAIT; nothing is known of its own disk
	byAOF                      // WAITAOF
	byReply                    // WAIT for replicas; its own disk has what it answered, by appendfsync always
)

// lanes are those of all nodes.
type lanes struct {
	mu     sync.Mutex
	closed bool
	nodes  map[string]*laneNode // by address
}

type laneNode struct {
	spare []*lane
	taken chan struct{} // holds a token for each lane in use: not more than the client's pool has connections
}

// errLaneOver is how dialing a lane again fails.
var errLaneOver = &net.OpError{Op: "dial", Err: errors.New("this connection of durable sends is over, another one will be made")}

// take gives a lane to the server of a client, and waits while too many are in use. It must be given back.
func (ls *lanes) take(ctx context.Context, from *redis.Client) (*lane, error) {
	n, err := ls.node(from)
	if err != nil {
		return nil, err
	}
	select {
	case n.taken <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ls.mu.Lock()
	var l *lane
	for len(n.spare) > 0 && l == nil {
		l = n.spare[len(n.spare)-1]
		n.spare = n.spare[:len(n.spare)-1]
		if time.Since(l.born) > laneLife {
			l.client.Close()
			l = nil
		}
	}
	ls.mu.Unlock()
	if l == nil {
		if l, err = newLane(ctx, from); err != nil {
			<-n.taken
			return nil, err
		}
		l.node = n
	}
	return l, nil
}

func (ls *lanes) node(from *redis.Client) (*laneNode, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return nil, store.ErrClosed
	}
	n := ls.nodes[from.Options().Addr]
	if n == nil {
		n = &laneNode{taken: make(chan struct{}, max(1, from.Options().PoolSize))}
		if ls.nodes == nil {
			ls.nodes = map[string]*laneNode{}
		}
		ls.nodes[from.Options().Addr] = n
	}
	return n, nil
}

// giveBack keeps a healthy lane for the next send.
func (ls *lanes) giveBack(l *lane, healthy bool) {
	ls.mu.Lock()
	keep := healthy && !ls.closed && len(l.node.spare) < spareLanes
	if keep {
		l.node.spare = append(l.node.spare, l)
	}
	ls.mu.Unlock()
	if !keep {
		l.client.Close()
	}
	<-l.node.taken
}

// close closes the lanes that are not in use; the others close when they are given back.
func (ls *lanes) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, n := range ls.nodes {
		for _, l := range n.spare {
			l.client.Close()
		}
		n.spare = nil
	}
}

// newLane connects, with the client's options, and asks what the server can confirm.
func newLane(ctx context.Context, from *redis.Client) (*lane, error) {
	opt := *from.Options()
	l := &lane{born: time.Now(), read: opt.ReadTimeout}
	if l.read <= 0 {
		l.read = defaultRead
	}
	dial, dialed := opt.Dialer, false
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dialed {
			return nil, errLaneOver
		}
		dialed = true
		return dial(ctx, network, addr)
	}
	opt.PoolSize, opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns, opt.PipelinePoolSize = 1, 0, 1, 0, -1
	opt.MaxRetries, opt.DialerRetries = -1, 1
	opt.ConnMaxIdleTime, opt.ConnMaxLifetime = -1, -1
	opt.ReadTimeout, opt.ContextTimeoutEnabled = -1, true // each read has a limit of its own
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.ClientSideCacheConfig, opt.ClientSideCache = nil, nil
	if opt.ClientName != "" {
		opt.ClientName += "-durable"
	}
	l.client = redis.NewClient(&opt)
	if err := l.probe(ctx); err != nil {
		l.client.Close()
		return nil, err
	}
	return l, nil
}

// limit bounds a call of the lane, which may wait for a while; not by the caller's context, since a call that is
// given up leaves open what became of it.
func (l *lane) limit(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), wait+l.read)
}

// probe finds out what the server can confirm.
func (l *lane) probe(ctx context.Context) error {
	ctx, cancel := l.limit(ctx, time.Second)
	defer cancel()
	pipe := l.client.Pipeline()
	aof := pipe.Do(ctx, "WAITAOF", 1, 0, 1)
	wait := pipe.Do(ctx, "WAIT", 0, 1)
	pipe.Exec(ctx) // each command has its error
	err := aof.Err()
	switch {
	case err == nil:
		l.confirms = byAOF
		return nil
	case strings.Contains(err.Error(), "replica instances"):
		return &net.OpError{Op: "dial", Err: err} // it was demoted: another server is the primary, or soon will be
	case wait.Err() != nil && !forbidden(wait.Err()):
		return wait.Err()
	case strings.Contains(err.Error(), "appendonly"):
		l.refused = "the server keeps no append-only file: run CONFIG SET appendonly yes (and set it in its configuration)"
	case !forbidden(err):
		return err
	default:
		if err := l.probeFsync(ctx); err != nil {
			return err
		}
	}
	if err := wait.Err(); err != nil && l.confirms == byReplicas {
		l.refused = "the server forbids WAIT and WAITAOF (" + err.Error() + "): allow one of them"
	}
	return nil
}

// probeFsync looks whether a server without WAITAOF fsyncs before it answers.
func (l *lane) probeFsync(ctx context.Context) error {
	const without = "the server has no WAITAOF, which came with Redis 7.2 and Valkey 7.2, "
	cmd := l.fsyncCommand(ctx)
	switch err := l.client.Process(ctx, cmd); {
	case err != nil && forbidden(err):
		l.refused = without + "and forbids CONFIG, so it is unknown whether it fsyncs before it answers"
	case err != nil:
		return err
	case fsyncsAlways(cmd.Val()):
		l.confirms = byReply
	default:
		l.refused = without + "and does not fsync before it answers: run CONFIG SET appendonly yes, CONFIG SET appendfsync always and " +
			"CONFIG SET no-appendfsync-on-rewrite no (and set them in its configuration)"
	}
	return nil
}

func (l *lane) fsyncCommand(ctx context.Context) *redis.MapStringStringCmd {
	return redis.NewMapStringStringCmd(ctx, "CONFIG", "GET", "appendonly", "appendfsync", "no-appendfsync-on-rewrite")
}

// fsyncsAlways: replies are written after the fsync of what they answer (flushAppendOnlyFile in Redis' beforeSleep),
// unless a rewrite is under way and the server was told not to fsync then.
func fsyncsAlways(config map[string]string) bool {
	return config["appendonly"] == "yes" && config["appendfsync"] == "always" && config["no-appendfsync-on-rewrite"] == "no"
}
