package redisstore

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/laterq/later/store"
)

const (
	maxConnAge         = time.Minute // older idle ones are closed, so that changed server settings are noticed
	maxIdleConns       = 4           // per node
	defaultReadTimeout = 3 * time.Second
)

// dedicatedConn is one connection for durable sends, which write and wait on it. It never reconnects: when the
// connection breaks, the dedicatedConn is closed, and the wait on it fails.
type dedicatedConn struct {
	node        *nodeConns
	client      *redis.Client
	createdAt   time.Time
	readTimeout time.Duration // time allowed for a reply, in addition to the wait

	confirmMode confirmMode
	refused     string // why the server cannot confirm writes to its own disk, "" if it can
	noWait      bool   // WAIT and WAITAOF are forbidden, so the server cannot confirm writes to replicas either
}

// confirmMode is how the server confirms that a write is safe.
type confirmMode uint8

const (
	confirmReplicas confirmMode = iota // WAIT; nothing is known about the server's own disk
	confirmAOF                         // WAITAOF
	confirmReply                       // WAIT for replicas; with appendfsync always, a reply implies the server's disk
)

// dedicatedConns are the connections to all nodes.
type dedicatedConns struct {
	mu     sync.Mutex
	closed bool
	nodes  map[string]*nodeConns // by address
}

type nodeConns struct {
	idle  []*dedicatedConn
	inUse chan struct{} // a token for each connection in use, at most the client's PoolSize
}

// errConnClosed is returned when a client with one connection would dial again.
var errConnClosed = &net.OpError{Op: "dial", Err: errors.New("the connection is closed")}

// acquire returns a connection to the server of a client, waiting while too many are in use. The caller must release
// it.
func (d *dedicatedConns) acquire(ctx context.Context, from *redis.Client) (*dedicatedConn, error) {
	n, err := d.node(from)
	if err != nil {
		return nil, err
	}
	select {
	case n.inUse <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	d.mu.Lock()
	var conn *dedicatedConn
	for len(n.idle) > 0 && conn == nil {
		conn = n.idle[len(n.idle)-1]
		n.idle = n.idle[:len(n.idle)-1]
		if time.Since(conn.createdAt) > maxConnAge {
			conn.client.Close()
			conn = nil
		}
	}
	d.mu.Unlock()
	if conn == nil {
		if conn, err = newDedicatedConn(ctx, from); err != nil {
			<-n.inUse
			return nil, err
		}
		conn.node = n
	}
	return conn, nil
}

func (d *dedicatedConns) node(from *redis.Client) (*nodeConns, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, store.ErrClosed
	}
	n := d.nodes[from.Options().Addr]
	if n == nil {
		n = &nodeConns{inUse: make(chan struct{}, max(1, from.Options().PoolSize))}
		if d.nodes == nil {
			d.nodes = map[string]*nodeConns{}
		}
		d.nodes[from.Options().Addr] = n
	}
	return n, nil
}

// release keeps a healthy connection for the next send.
func (d *dedicatedConns) release(conn *dedicatedConn, healthy bool) {
	d.mu.Lock()
	keep := healthy && !d.closed && len(conn.node.idle) < maxIdleConns
	if keep {
		conn.node.idle = append(conn.node.idle, conn)
	}
	d.mu.Unlock()
	if !keep {
		conn.client.Close()
	}
	<-conn.node.inUse
}

// close closes the idle connections. The others are closed when they are released.
func (d *dedicatedConns) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, n := range d.nodes {
		for _, conn := range n.idle {
			conn.client.Close()
		}
		n.idle = nil
	}
}

// newDedicatedConn connects with the client's options and asks for the confirmations that the server can give.
func newDedicatedConn(ctx context.Context, from *redis.Client) (*dedicatedConn, error) {
	opt := dedicatedOptions(from, "-durable", func(conn net.Conn) net.Conn { return conn })
	conn := &dedicatedConn{createdAt: time.Now(), readTimeout: opt.ReadTimeout}
	if conn.readTimeout <= 0 {
		conn.readTimeout = defaultReadTimeout
	}
	opt.ReadTimeout = -1 // each read has its own timeout
	conn.client = redis.NewClient(opt)
	if err := conn.probe(ctx); err != nil {
		conn.client.Close()
		return nil, err
	}
	return conn, nil
}

// dedicatedOptions returns the options of a client with one connection, which is dialed once and used as wrap returns
// it.
func dedicatedOptions(from *redis.Client, suffix string, wrap func(net.Conn) net.Conn) *redis.Options {
	opt := *from.Options()
	dial := opt.Dialer
	var dialed atomic.Bool // go-redis tries again on a goroutine of its own
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dialed.Load() {
			return nil, errConnClosed
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if dialed.Swap(true) {
			conn.Close()
			return nil, errConnClosed
		}
		return wrap(withDeadlines(conn)), nil
	}
	opt.ReadTimeout, opt.WriteTimeout = timeoutAsGiven(opt.ReadTimeout), timeoutAsGiven(opt.WriteTimeout)
	opt.PoolSize, opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns, opt.PipelinePoolSize = 1, 0, 1, 0, -1
	opt.MaxRetries, opt.DialerRetries = -1, 1
	opt.ConnMaxIdleTime, opt.ConnMaxLifetime = -1, -1
	opt.ContextTimeoutEnabled = true
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.ClientSideCacheConfig, opt.ClientSideCache = nil, nil
	if opt.ClientName != "" {
		opt.ClientName += suffix
	}
	return &opt
}

// timeoutAsGiven returns the option of a client with a timeout: a client has 0 for -1, no timeout, and -1 for -2, no
// deadlines.
func timeoutAsGiven(d time.Duration) time.Duration {
	if d <= 0 {
		d--
	}
	return d
}

// limit bounds a call that may wait for a while. It ignores cancellation of the caller's context, because the outcome
// of an abandoned call would be unknown.
func (conn *dedicatedConn) limit(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), wait+conn.readTimeout)
}

// probe determines the confirmations that the server can give.
func (conn *dedicatedConn) probe(ctx context.Context) error {
	ctx, cancel := conn.limit(ctx, time.Second)
	defer cancel()
	pipe := conn.client.Pipeline()
	aof := pipe.Do(ctx, "WAITAOF", 1, 0, 1)
	wait := pipe.Do(ctx, "WAIT", 0, 1)
	pipe.Exec(ctx) // each command holds its error
	err := aof.Err()
	switch {
	case err == nil:
		conn.confirmMode = confirmAOF
		return nil
	case strings.Contains(err.Error(), "replica instances"):
		return &net.OpError{Op: "dial", Err: err} // demoted: another server is or soon will be the primary
	case wait.Err() != nil && !forbidden(wait.Err()):
		return wait.Err()
	case strings.Contains(err.Error(), "appendonly"):
		conn.refused = "the server keeps no append-only file: run CONFIG SET appendonly yes (and set it in its " +
			"configuration)"
	case !forbidden(err):
		return err
	default:
		if err := conn.probeFsync(ctx); err != nil {
			return err
		}
	}
	if err := wait.Err(); err != nil && conn.confirmMode == confirmReplicas {
		conn.noWait = true
		conn.refused = "the server forbids WAIT and WAITAOF (" + err.Error() + "): allow one of them"
	}
	return nil
}

// probeFsync checks whether a server without WAITAOF fsyncs before it replies.
func (conn *dedicatedConn) probeFsync(ctx context.Context) error {
	const without = "the server has no WAITAOF, which came with Redis 7.2 and Valkey 7.2, "
	cmd := conn.fsyncCommand(ctx)
	switch err := conn.client.Process(ctx, cmd); {
	case err != nil && forbidden(err):
		conn.refused = without + "and forbids CONFIG, so it is unknown whether it fsyncs before it answers"
	case err != nil:
		return err
	case fsyncsAlways(cmd.Val()):
		conn.confirmMode = confirmReply
	default:
		conn.refused = without + "and does not fsync before it answers: run CONFIG SET appendonly yes, " +
			"CONFIG SET appendfsync always and CONFIG SET no-appendfsync-on-rewrite no (and set them in its " +
			"configuration)"
	}
	return nil
}

func (conn *dedicatedConn) fsyncCommand(ctx context.Context) *redis.MapStringStringCmd {
	return redis.NewMapStringStringCmd(ctx, "CONFIG", "GET", "appendonly", "appendfsync", "no-appendfsync-on-rewrite")
}

// fsyncsAlways reports whether the server fsyncs before it replies: it writes replies after the fsync of their writes
// (flushAppendOnlyFile in Redis' beforeSleep), unless a rewrite is in progress and no-appendfsync-on-rewrite is set.
func fsyncsAlways(config map[string]string) bool {
	return config["appendonly"] == "yes" && config["appendfsync"] == "always" &&
		config["no-appendfsync-on-rewrite"] == "no"
}
