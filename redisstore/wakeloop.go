package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

const (
	blockTimeout = 10 * time.Second // maximum duration of a blocking read
	loopIdle     = 2 * blockTimeout // a loop without waiters ends after this time
	loopMinPause = 50 * time.Millisecond
	loopMaxPause = 2 * time.Second
)

// wakeLoop blocks on the markers of its queues on its own connection. One loop serves all queues, except in a
// Cluster, where the keys of a command must be on one node and each queue has its own loop.
type wakeLoop struct {
	w          *waker
	name       string
	ctx        context.Context
	stop       context.CancelFunc
	control    string // a key that unblocks the read when a queue is added
	wanted     map[string]*queueWake
	blocked    map[string]bool // names covered by the read in progress
	unblocking bool
	used       time.Time
	ended      chan struct{}
}

// listen makes sure that a loop blocks on the queue's marker. The lock is held.
func (w *waker) listen(q *queueWake) {
	group := ""
	if w.s.cluster.Load() {
		group = q.name
	}
	l := w.loops[group]
	if l == nil {
		l = &wakeLoop{w: w, name: group, wanted: map[string]*queueWake{}, ended: make(chan struct{})}
		if group == "" {
			l.control = w.s.keys.prefix + "interrupt:" + newLease()
		}
		l.ctx, l.stop = context.WithCancel(w.s.closing)
		w.loops[group] = l
		w.done.Go(l.run)
	}
	l.used = time.Now()
	l.wanted[q.name] = q
	if l.blocked != nil && !l.blocked[q.name] && !l.unblocking && l.control != "" {
		l.unblocking = true
		w.done.Go(func() {
			if l.unblock() != nil {
				w.mu.Lock()
				l.unblocking = false
				w.mu.Unlock()
			}
		})
	}
}

// forget removes a queue from the keys of the next read. The lock is held.
func (w *waker) forget(q *queueWake) {
	for _, l := range w.loops {
		delete(l.wanted, q.name)
	}
}

// unblock ends the blocking read. The control key is deleted when it is popped, or else expires.
func (l *wakeLoop) unblock() error {
	ctx, cancel := context.WithTimeout(l.ctx, time.Second)
	defer cancel()
	_, err := l.w.s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, l.control, redis.Z{Score: 0, Member: "m"})
		p.PExpire(ctx, l.control, 2*blockTimeout)
		return nil
	})
	return err
}

// interrupt ends the loop. It unblocks the read, so that the read cannot pop a marker that is put back later. If that
// fails, it closes the connection.
func (l *wakeLoop) interrupt() {
	answered := false
	if l.control != "" {
		answered = l.unblock() == nil
	} else { // in a Cluster: by the queue's own marker, which is put back afterwards
		answered, _ = l.w.put(l.name, 0)
	}
	if answered {
		select {
		case <-l.ended:
		case <-time.After(time.Second):
		}
	}
	l.stop()
}

// next returns the keys to block on and the queue of each. It returns no keys if the loop must end.
func (l *wakeLoop) next() (keys []string, queues map[string]string) {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := 0
	queues = map[string]string{}
	l.blocked = map[string]bool{}
	for name, q := range l.wanted {
		waiting += len(q.waiters)
		key := w.s.keys.of(name).wake
		keys = append(keys, key)
		queues[key] = name
		l.blocked[name] = true
	}
	if waiting > 0 {
		l.used = time.Now()
	}
	if w.closed || l.ctx.Err() != nil || len(keys) == 0 || time.Since(l.used) > loopIdle {
		delete(w.loops, l.name)
		return nil, nil
	}
	if l.control != "" {
		keys = append(keys, l.control)
	}
	l.unblocking = false
	return keys, queues
}

func (l *wakeLoop) run() {
	defer close(l.ended)
	defer l.stop()
	s := l.w.s
	var blocking *redis.Client // nil to block on the shared client
	closeBlocking := func() {
		if blocking != nil {
			blocking.Close()
			blocking = nil
		}
	}
	defer closeBlocking()
	pause := loopMinPause
	for {
		keys, queues := l.next()
		if keys == nil {
			return
		}
		if blocking == nil {
			var err error
			if blocking, err = s.blockingClient(l.ctx, keys[0]); err != nil {
				if !l.failed(err, &pause) {
					return
				}
				continue
			}
		}
		key, due, err := l.pop(blocking, keys)
		switch {
		case err == nil:
			pause = loopMinPause
			if queue, ok := queues[key]; ok {
				l.w.markerPopped(queue, due)
			}
		case errors.Is(err, redis.Nil):
			pause = loopMinPause
		default:
			closeBlocking()
			if !l.failed(err, &pause) {
				return
			}
		}
	}
}

// pop blocks until a marker is set. Closing the connection ends it early.
func (l *wakeLoop) pop(blocking *redis.Client, keys []string) (key string, due time.Time, err error) {
	var rdb redis.Cmdable = l.w.s.rdb
	if blocking != nil {
		rdb = blocking
		interrupted := context.AfterFunc(l.ctx, func() { blocking.Close() })
		defer interrupted()
	}
	z, err := rdb.BZPopMin(l.ctx, blockTimeout, keys...).Result()
	if err != nil {
		return "", due, err
	}
	return z.Key, time.UnixMilli(int64(z.Score)), nil
}

// failed waits a little after an error. It returns false if the loop must end. Safety claims, which it brings
// forward, find what was missed meanwhile.
func (l *wakeLoop) failed(err error, pause *time.Duration) bool {
	if l.ctx.Err() != nil {
		l.end()
		return false
	}
	if kind, _ := classify(err); kind != store.ErrClosed {
		l.w.s.log.Debug("later: waiting for messages failed, retrying", "error", err)
	}
	l.w.mu.Lock()
	for _, q := range l.wanted {
		if soon := time.Now().Add(*pause); soon.Before(q.safety) {
			q.safety = soon
		}
		l.w.arm(q)
	}
	l.w.mu.Unlock()
	select {
	case <-time.After(*pause/2 + rand.N(*pause)):
		*pause = min(2**pause, loopMaxPause)
		return true
	case <-l.ctx.Done():
		l.end()
		return false
	}
}

func (l *wakeLoop) end() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.loops[l.name] == l {
		delete(l.w.loops, l.name)
	}
}

// blockingClient returns a client with one connection to the server of a key and the options of the store's client. A
// blocking read on it takes no connection from the store's client and can be ended by closing it. For a client of an
// unknown type it returns nil.
func (s *Store) blockingClient(ctx context.Context, key string) (*redis.Client, error) {
	var from *redis.Client
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		from = rdb
	case *redis.ClusterClient:
		node, err := rdb.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		from = node
	default:
		return nil, nil
	}
	opt := *from.Options()
	opt.PoolSize, opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = 1, 0, 1, 0
	opt.MaxRetries = -1
	if opt.ClientName != "" && !strings.HasSuffix(opt.ClientName, "-wait") {
		opt.ClientName += "-wait"
	}
	return redis.NewClient(&opt), nil
}
