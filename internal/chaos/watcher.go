//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// Kinds of watchers. A steady one is neither killed nor frozen.
const (
	watcherKind = "watcher"
	steadyKind  = "steady-watcher"
)

// watcher is the role of a process that watches its queues, or all if it names none, and records the events that it
// receives.
type watcher struct {
	role
	store   store.Store
	journal *journal
	log     *slog.Logger
}

func (w watcher) run(ctx context.Context) error {
	client, err := later.New(w.store, later.WithLogger(w.log))
	if err != nil {
		return err
	}
	watch, err := w.watch(ctx, client)
	for err == nil {
		var e later.WatchEvent
		if e, err = watch.Next(ctx); err == nil {
			w.record(e)
		}
	}
	if ctx.Err() != nil {
		err = nil
	}
	if watch != nil {
		err = errors.Join(err, watch.Close())
	}
	return errors.Join(err, client.Close())
}

// watch retries until the queues exist and the server is reachable.
func (w watcher) watch(ctx context.Context, client *later.Client) (*later.Watch, error) {
	for {
		watch, err := client.Watch(ctx, w.Queues...)
		if err == nil || !errors.Is(err, later.ErrNotFound) && !errors.Is(err, later.ErrUnavailable) {
			return watch, err
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return nil, err
		}
	}
}

// record records one event.
func (w watcher) record(e later.WatchEvent) {
	id, queue := e.ID, e.Queue
	if id == "" {
		id = "-"
	}
	if queue == "" {
		queue = allQueues
	}
	if e.Kind == later.EventMissed {
		w.journal.one(watchMissed, now(), "-", e.Missed, queue, e.Process.PID)
		return
	}
	w.journal.one(watched, now(), id, string(e.Kind), queue, e.Attempt, e.Process.PID, e.Time.UnixMicro())
}

// addWatchers adds a watcher of each form that faults hit, and one that they spare.
func (r *run) addWatchers() {
	r.add(r.consumer(watcherKind, "watcher-named", r.servers.url))
	all := r.consumer(watcherKind, "watcher-all", r.servers.url)
	all.Queues = nil
	r.add(all)
	r.add(r.consumer(steadyKind, "watcher-steady", r.servers.url))
}

// longestFreeze limits how long a watcher is frozen.
const longestFreeze = 15 * time.Second

// disruptWatchers kills or freezes a watcher, cuts connections, loses replies or kills the server, in turn.
func disruptWatchers(ctx context.Context, r *run) error {
	switch r.injected % 5 {
	case 2:
		r.stop(ctx, r.pick(watcherKind), 500*time.Millisecond+r.upTo(min(longestFreeze, r.cfg.Duration/4)))
		return nil
	case 3:
		r.log("cuts")
		r.servers.proxies[0].cut(0.5)
		return nil
	case 4:
		return loseReplies(ctx, r)
	case 0:
		return killServer(ctx, r)
	}
	c := r.pick(watcherKind)
	if r.random.IntN(2) == 0 { // frozen, so that it has something to read when it dies
		c.signal(syscall.SIGSTOP)
		sleep(ctx, r.upTo(500*time.Millisecond))
	}
	r.kill(c)
	alive := 0
	for _, c := range r.children {
		if (c.role.Kind == watcherKind || c.role.Kind == steadyKind) && c.alive() {
			alive++
		}
	}
	if err := r.awaitWatchers(ctx, alive); err != nil {
		r.result.violate("left", "-", "%s was killed: %v", c.actor(), err)
	}
	return c.start()
}

// watchersGoneWithin is how long the server may know of a watcher that died, as issue and docs promise.
const watchersGoneWithin = time.Minute

// awaitWatchers waits until no channel of events has more watchers than most.
func (r *run) awaitWatchers(ctx context.Context, most int) error {
	return within(ctx, watchersGoneWithin, "the end of the watchers' connections", func(ctx context.Context) error {
		rdb := r.servers.admin[0]
		channels, err := rdb.PubSubChannels(ctx, "later:{*}:events*").Result()
		if err != nil {
			return err
		}
		watchers, err := rdb.PubSubNumSub(ctx, channels...).Result()
		if err != nil {
			return err
		}
		for channel, n := range watchers {
			if n > int64(most) {
				return fmt.Errorf("channel %s has %d watchers; want at most %d", channel, n, most)
			}
		}
		if most == 0 && len(channels) > 0 {
			return fmt.Errorf("channels are left: %s", strings.Join(channels, ", "))
		}
		return nil
	})
}

// checkNoWatcherIsLeft checks, after all processes have ended, that nothing of the watchers is in Redis: no channel, no
// connection that listens, and no key.
func checkNoWatcherIsLeft(ctx context.Context, r *run) error {
	if err := r.awaitWatchers(ctx, 0); err != nil {
		r.result.violate("left", "-", "all watchers have ended: %v", err)
	}
	keys, err := r.servers.admin[0].Keys(ctx, "*").Result()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if strings.Contains(key, "}:events") || strings.Contains(key, "watch") {
			r.result.violate("left", "-", "all watchers have ended, and key %s is left", key)
		}
	}
	return nil
}
