package redisstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	beatEvery     = 3 * time.Second
	brokenAfter   = time.Second      // a promise that is overdue by so much is not relied on any more
	deadAfter     = 6 * time.Second  // a process without a beat for so long is dead
	forgetProcess = 15 * time.Minute // when a dead process is forgotten
	listedFor     = 24 * time.Hour   // when the lists of an unused queue vanish
	lookBatch     = 100              // queues in one request
	lookPause     = 20 * time.Millisecond
	maxLookPause  = 10 * lookPause
	listenIdle    = 20 * time.Second // a connection without waiting queues is closed after this time
	listenRetry   = 50 * time.Millisecond
	maxRetryPause = 2 * time.Second
	deniedRetry   = time.Minute
	deafAfter     = 10 * time.Second
	mutedFor      = time.Hour
	quitTimeout   = 2 * time.Second
)

// wakeServer is the waker's state of one server, which is one primary in a Cluster: the connection that listens to this
// process's channel, and a goroutine that keeps its places in the lists of the server's queues. Both run while queues
// wait. All but ctx, channel and the atomic fields is guarded by waker.mu.
type wakeServer struct {
	w       *waker
	at      serverAddr
	channel string
	clock   serverClock
	queues  int // its queues in waker.queues
	used    time.Time

	running   bool
	ctx       context.Context
	cancel    context.CancelFunc
	work      chan struct{} // has a token while there are pending queues
	reconnect chan struct{} // has a token when the connection must be replaced

	listening bool
	epoch     int  // number of connections so far
	denied    bool // this process may not listen
	muted     bool // another one may not publish
	down      time.Time
	pinged    atomic.Int64 // number of own messages heard

	pending []*queueWake // to be listed or removed
	missed  bool         // a request failed, so that queues may need one that are not pending
	members int          // number of processes
	deaths  int          // number of dead processes seen so far
	dead    []string     // the processes that died last
}

// serverAddr identifies a server.
type serverAddr struct {
	addr string        // "" unless it is part of a Cluster
	node *redis.Client // likewise nil
}

// serverOf returns the server of a queue's keys. It decides by the client's type whether there is a Cluster.
func (s *Store) serverOf(ctx context.Context, queue string) serverAddr {
	return s.serverOfKey(ctx, s.keys.of(queue).wake)
}

// SameServer implements store.Placer. Only a Cluster has several servers.
func (s *Store) SameServer(ctx context.Context, queue, other string) bool {
	return s.serverOf(ctx, queue).addr == s.serverOf(ctx, other).addr
}

// ServerOf implements store.Locator.
func (s *Store) ServerOf(ctx context.Context, queue string) string {
	return s.serverOf(ctx, queue).addr
}

func (s *Store) serverOfKey(ctx context.Context, key string) serverAddr {
	if rdb, ok := s.rdb.(*redis.ClusterClient); ok {
		if node, err := rdb.MasterForKey(ctx, key); err == nil {
			return serverAddr{node.Options().Addr, node}
		}
	}
	return serverAddr{}
}

// channelPrefix precedes the names of all channels.
func (s *Store) channelPrefix() string { return s.keys.prefix + "wake:" }

// processesKey returns the key that has the beats of the processes that listen on a server. In a Cluster its hash tag
// is the first number with a slot on that server.
func (s *Store) processesKey(ctx context.Context, at serverAddr) string {
	key := s.keys.prefix + "processes"
	for i := 0; at.node != nil && i < 10_000; i++ {
		tagged := key + ":{" + strconv.Itoa(i) + "}"
		if s.serverOfKey(ctx, tagged).addr == at.addr {
			return tagged
		}
	}
	return key
}

func newWakeServer(w *waker, at serverAddr) *wakeServer {
	return &wakeServer{w: w, at: at, channel: w.s.channelPrefix() + newLease(), work: make(chan struct{}, 1),
		reconnect: make(chan struct{}, 1), members: 1}
}

// start starts the goroutines, unless they run. The lock is held.
func (v *wakeServer) start() {
	v.used = time.Now()
	if v.running || v.w.closed || v.w.s.isCluster() && v.at.node == nil {
		return
	}
	v.running, v.down = true, v.used
	v.ctx, v.cancel = context.WithCancel(v.w.s.closing)
	v.w.done.Go(v.listen)
	v.w.done.Go(v.keep)
}

// stop ends them. The lock is held.
func (v *wakeServer) stop() {
	if v.running {
		v.cancel()
	}
}

// deaf reports whether notifications may not arrive. The lock is held.
func (v *wakeServer) deaf() bool {
	return v.running && (v.denied || v.muted || !v.listening && time.Since(v.down) > deafAfter)
}

// mustLook reports whether a queue has to be listed, or may list dead processes. The lock is held.
func (v *wakeServer) mustLook(q *queueWake) bool {
	return v.listening && len(q.waiters) > 0 && (q.listing != listed || len(v.dead) > 0 && q.deaths != v.deaths)
}

// attend has the keeping goroutine list or remove this process. The lock is held.
func (v *wakeServer) attend(q *queueWake) {
	if v.start(); v.running && !q.queued {
		q.queued = true
		v.pending = append(v.pending, q)
		signal(v.work)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// listen receives messages until the server is not used any more. It replaces a connection that fails.
func (v *wakeServer) listen() {
	for retry := (listenRetries{}); v.ctx.Err() == nil; {
		began := time.Now()
		err := v.receive()
		v.w.mu.Lock()
		if v.listening {
			v.listening, v.down = false, time.Now()
		}
		denied := forbidden(err)
		if denied && !v.denied && v.ctx.Err() == nil {
			v.w.s.log.Warn("later: the Redis user may not listen to channels, so messages can be 0.1 s late, or more: "+
				channelsHelp+v.w.s.keys.prefix+"*", "error", err)
		}
		if v.denied = denied; denied {
			v.w.hasten()
		}
		v.w.mu.Unlock()
		if v.ctx.Err() != nil {
			return
		}
		if !denied {
			v.w.s.log.Debug("later: listening for messages failed, retrying", "error", err)
		}
		retry.wait(v.ctx, began, err)
	}
}

// listenRetries paces attempts to listen that fail. It doubles its pause until an attempt lasts.
type listenRetries struct{ pause time.Duration }

// wait waits after an attempt that began at a time and ended with an error, or until the end of ctx.
func (r *listenRetries) wait(ctx context.Context, began time.Time, err error) {
	if r.pause == 0 || time.Since(began) > maxRetryPause {
		r.pause = listenRetry
	}
	wait := r.pause/2 + rand.N(r.pause)
	if r.pause = min(2*r.pause, maxRetryPause); forbidden(err) {
		wait = deniedRetry
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

// receive listens on one connection until it fails.
func (v *wakeServer) receive() error {
	s := v.w.s
	subscribe := s.rdb.Subscribe
	if v.at.node != nil {
		subscribe = v.at.node.Subscribe
	}
	connection := subscribe(v.ctx, v.channel)
	defer connection.Close()
	ended := make(chan struct{})
	defer close(ended)
	select { // a token of an earlier connection
	case <-v.reconnect:
	default:
	}
	v.w.done.Go(func() {
		select {
		case <-v.reconnect:
		case <-v.ctx.Done():
		case <-ended:
		}
		connection.Close()
	})
	for {
		message, err := connection.Receive(v.ctx)
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			v.connected()
		case *redis.Message:
			v.heard(m.Payload)
		}
	}
}

// connected is called when this process listens. Earlier notifications are lost, so it looks at every queue.
func (v *wakeServer) connected() {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	v.listening, v.denied = true, false
	v.epoch++
	v.relist()
}

// relist looks at every queue. The lock is held.
func (v *wakeServer) relist() {
	for _, q := range v.w.queues {
		if q.server == v {
			q.listing = min(q.listing, maybeListed)
			v.w.settle(q)
		}
	}
}

// heard handles a message: empty if it is this process's own, or else a time in ms, with three more digits if it is not
// whole, and the key that lists it. If the queue has moved, a word is in place of the time.
func (v *wakeServer) heard(payload string) {
	if payload == "" {
		v.pinged.Add(1)
		return
	}
	w := v.w
	due, key, _ := strings.Cut(payload, " ")
	name, part, ok := v.w.s.keys.queueOf(key)
	if !ok || part != "wake" {
		return
	}
	if due == movedMessage {
		v.movedAway(name)
		return
	}
	ms, fraction, exact := strings.Cut(due, ".")
	if !exact {
		fraction = "000"
	}
	us, err := strconv.ParseInt(ms+fraction, 10, 64)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	q := w.queues[name]
	if q == nil {
		q = w.queue(name, v.at)
	}
	w.hear(q, time.UnixMicro(us))
}
