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
	blockFor     = 10 * time.Second // longest blocking read
	loopIdle     = 2 * blockFor     // a loop without waiters for so long ends
	loopMinPause = 50 * time.Millisecond
	loopMaxPause = 2 * time.Second
)

// A wakeLoop blocks on the markers of its queues, on a connection of its own: one loop for all queues, or in a
// Cluster, where a command's keys must be on one node, one for each queue.
type wakeLoop struct {
	w       *waker
	name    string
	ctx     context.Context
	stop    context.CancelFunc
	control string // a key that interrupts the blocking read when the set of queues has grown
	wanted  map[string]*queueWake
	blocked map[string]bool // names that the read under way covers
	poked   bool
	used    time.Time
	ended   chan struct{}
}

// listen sees to it that the queue's marker is blocked on. The lock is held.
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
	if l.blocked != nil && !l.blocked[q.name] && !l.poked && l.control != "" {
		l.poked = true
		w.done.Go(func() {
			if l.poke() != nil {
				w.mu.Lock()
				l.poked = false
				w.mu.Unlock()
			}
		})
	}
}

// forget takes a queue out of what is blocked on, from the next read. The lock is held.
func (w *waker) forget(q *queueWake) {
	for _, l := range w.loops {
		delete(l.wanted, q.name)
	}
}

// poke interrupts the blocking read. The key vanishes as it is popped, and by itself if nobody does.
func (l *wakeLoop) poke() error {
	ctx, cancel := context.WithTimeout(l.ctx, time.Second)
	defer cancel()
	_, err := l.w.s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, l.control, redis.Z{Score: 0, Member: "m"})
		p.PExpire(ctx, l.control, 2*blockFor)
		return nil
	})
	return err
}

// interrupt ends the loop: its blocking read is answered, so that it cannot take a marker that is put back, or
// if that does not come about, its connection is closed.
func (l *wakeLoop) interrupt() {
	answered := false
	if l.control != "" {
		answered = l.poke() == nil
	} else { // in a Cluster: the queue's own marker, which is put back afterwards
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

// next gives the keys to block on, with the queue of each; none when the loop is to end.
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
	l.poked = false
	return keys, queues
}

func (l *wakeLoop) run() {
	defer close(l.ended)
	defer l.stop()
	s := l.w.s
	var blocking *redis.Client // nil: blocks on the shared client
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
				l.w.popped(queue, due)
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

// pop blocks until a marker is there. Closing the connection is what ends it early.
func (l *wakeLoop) pop(blocking *redis.Client, keys []string) (key string, due time.Time, err error) {
	var rdb redis.Cmdable = l.w.s.rdb
	if blocking != nil {
		rdb = blocking
		interrupted := context.AfterFunc(l.ctx, func() { blocking.Close() })
		defer interrupted()
	}
	z, err := rdb.BZPopMin(l.ctx, blockFor, keys...).Result()
	if err != nil {
		return "", due, err
	}
	return z.Key, time.UnixMilli(int64(z.Score)), nil
}

// failed waits a little after an error; false when the loop is to end. What was missed meanwhile is found by
// each queue's safety claim, which is brought forward.
func (l *wakeLoop) failed(err error, pause *time.Duration) bool {
	if l.ctx.Err() != nil {
		l.end()
		return false
	}
	if kind, _ := classify(err); kind != store.ErrClosed {
		l.w.s.log.Debug("later: waiting for messages failed, trying again", "error", err)
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

// blockingClient makes a client with one connection to the server of a key, with the options of the store's
// client, so that a blocking read takes no connection from it and can be ended by closing it. For a client of
// an unknown type it gives nil.
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
