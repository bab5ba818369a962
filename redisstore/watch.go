package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/activity"
	"github.com/laterq/later/store"
)

// watchPing is how long a connection may be silent before it is tried, and then until it counts as broken.
const watchPing = 10 * time.Second

// watcher listens to the channels of queues, on one connection to each server that has some. A process that dies leaves
// nothing: the server forgets its connections.
type watcher struct {
	*activity.Buffer
	s    *Store
	all  bool // it hears all queues by a pattern, in place of a channel
	ctx  context.Context
	end  context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	over    bool
	queues  map[string]*watchedQueue // by channel
	servers map[string]*watchServer  // by address
	changed chan struct{}            // closed and replaced when a queue is heard or the watcher fails
	denied  error                    // why this process may not listen
}

// watchedQueue is guarded by watcher.mu.
type watchedQueue struct {
	name   string
	server *watchServer
	heard  bool // its channel is subscribed
}

// watchServer is the connection to one server.
type watchServer struct {
	w  *watcher
	at serverAddr

	// Guarded by watcher.mu.
	connection *redis.PubSub // nil while there is none
	heard      bool          // a channel was subscribed since it was made
}

// Watch implements store.Store. It opens one connection; in a Cluster it opens one to each primary that has a queue.
func (s *Store) Watch(ctx context.Context, queues []string) (store.Watcher, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	w := &watcher{Buffer: activity.NewBuffer(s.closing.Done()), s: s, queues: map[string]*watchedQueue{},
		servers: map[string]*watchServer{}, changed: make(chan struct{})}
	w.ctx, w.end = context.WithCancel(s.closing)
	if !s.watchers.add(w) {
		w.end()
		return nil, store.ErrClosed
	}
	var err error
	if store.WatchesAll(queues) {
		err = w.addAll(ctx)
	} else {
		err = w.add(ctx, queues)
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// watchers are the open watchers of a store. Close of the store closes them.
type watchers struct {
	mu     sync.Mutex
	closed bool
	all    map[*watcher]struct{}
}

func (a *watchers) add(w *watcher) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	if a.all == nil {
		a.all = map[*watcher]struct{}{}
	}
	a.all[w] = struct{}{}
	return true
}

func (a *watchers) remove(w *watcher) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, w)
}

func (a *watchers) close() {
	a.mu.Lock()
	a.closed = true
	var all []*watcher
	for w := range a.all {
		all = append(all, w)
	}
	a.mu.Unlock()
	for _, w := range all {
		w.Close()
	}
}

// Close implements store.Watcher.
func (w *watcher) Close() error {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.end()
	w.done.Wait()
	w.Buffer.Close()
	w.s.watchers.remove(w)
	return nil
}

// Add implements store.Watcher.
func (w *watcher) Add(ctx context.Context, queues ...string) error {
	if w.all {
		queues = nil
	}
	return w.add(ctx, queues)
}

func (w *watcher) add(ctx context.Context, queues []string) error {
	ctx, cancel := context.WithTimeout(ctx, max(w.s.retryFor, time.Second))
	defer cancel()
	channels := make([]string, len(queues))
	for i, queue := range queues {
		channels[i] = w.s.eventChannel(queue)
		if w.all {
			channels[i] = w.s.eventPattern()
		}
	}
	places := make([]serverAddr, len(queues))
	for i := range queues {
		places[i] = w.place(ctx, channels[i])
	}
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		return store.ErrClosed
	}
	w.denied = nil
	fresh := map[*watchServer][]string{}
	for i, queue := range queues {
		if w.queues[channels[i]] == nil {
			of, _, _, _ := store.CutSubQueue(queue)
			q := &watchedQueue{name: of}
			w.queues[channels[i]] = q
			w.assign(q, places[i])
			fresh[q.server] = append(fresh[q.server], channels[i])
		}
	}
	connections := map[*redis.PubSub][]string{}
	for server, added := range fresh {
		if server.connection != nil {
			connections[server.connection] = added
		}
	}
	w.mu.Unlock()
	for connection, added := range connections {
		w.subscribe(ctx, connection, added) // if this fails, the connection does, and its next one has them
	}
	return w.await(ctx, channels)
}

// place returns the server that has a channel.
func (w *watcher) place(ctx context.Context, channel string) serverAddr {
	if !w.s.isCluster() {
		return serverAddr{}
	}
	return w.s.serverOfKey(ctx, channel)
}

// assign moves a queue to the connection of a server. The lock is held.
func (w *watcher) assign(q *watchedQueue, at serverAddr) {
	v := w.servers[at.addr]
	if v == nil {
		v = &watchServer{w: w, at: at}
		w.servers[at.addr] = v
		w.done.Go(v.run)
	}
	q.server, q.heard = v, false
}

// await waits until all channels are subscribed.
func (w *watcher) await(ctx context.Context, channels []string) error {
	for {
		w.mu.Lock()
		missing, denied, over, changed := "", w.denied, w.over, w.changed
		for _, channel := range channels {
			if q := w.queues[channel]; !q.heard {
				missing = q.name
				break
			}
		}
		w.mu.Unlock()
		switch {
		case over:
			return store.ErrClosed
		case missing == "":
			return nil
		case denied != nil && w.all:
			return fmt.Errorf("watch all queues: this Redis user may not listen to their channels, %s%s: %w (%w)",
				channelsHelp, w.s.eventPattern(), store.ErrUnsupported, denied)
		case denied != nil:
			return fmt.Errorf("watch queue %q: this Redis user may not listen to channels, %s%s*: %w (%w)", missing,
				channelsHelp, w.s.keys.prefix, store.ErrUnsupported, denied)
		}
		select {
		case <-changed:
		case <-w.ctx.Done():
			return store.ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("watch queue %q: %w: %w", missing, store.ErrUnavailable, context.Cause(ctx))
		}
	}
}

// broadcast wakes the goroutines that await a change. The lock is held.
func (w *watcher) broadcast() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// subscribe sends the subscriptions; the connection receives their confirmations. In a Cluster each channel has a slot.
func (w *watcher) subscribe(ctx context.Context, connection *redis.PubSub, channels []string) error {
	if !w.s.isCluster() {
		switch {
		case len(channels) == 0:
			return nil
		case w.all:
			return connection.PSubscribe(ctx, channels...)
		}
		return connection.Subscribe(ctx, channels...)
	}
	for _, channel := range channels {
		if err := connection.SSubscribe(ctx, channel); err != nil {
			return err
		}
	}
	return nil
}

// run listens to a server until the watcher ends or no queue is on the server any more.
func (v *watchServer) run() {
	w := v.w
	for retry := (listenRetries{}); w.ctx.Err() == nil; {
		began := time.Now()
		err := v.listen()
		if w.ctx.Err() != nil {
			return
		}
		v.lost(err)
		w.s.log.Debug("later: watching was interrupted, retrying", "error", err)
		retry.wait(w.ctx, began, err)
		if w.ctx.Err() != nil || v.moveQueues(err) {
			return
		}
	}
}

// lost notes that the connection failed.
func (v *watchServer) lost(err error) {
	w := v.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.heard {
		w.Gap()
	}
	v.connection, v.heard = nil, false
	for _, q := range w.queues {
		if q.server == v {
			q.heard = false
		}
	}
	if forbidden(err) {
		w.denied = err
		w.broadcast()
	}
}

// channels returns the channels of the queues that it has. The lock is held.
func (v *watchServer) channels() (channels []string) {
	for channel, q := range v.w.queues {
		if q.server == v {
			channels = append(channels, channel)
		}
	}
	return channels
}

// moveQueues moves queues that are on another server now to its connection. It reports whether none is left here, and
// ends this one's use then.
func (v *watchServer) moveQueues(failure error) bool {
	w := v.w
	if !w.s.isCluster() {
		return false
	}
	w.s.reloadSlots(w.ctx, failure)
	moved := map[string]serverAddr{}
	w.mu.Lock()
	channels := v.channels()
	w.mu.Unlock()
	for _, channel := range channels {
		moved[channel] = w.place(w.ctx, channel)
	}
	connections := map[string]*redis.PubSub{}
	w.mu.Lock()
	for channel, at := range moved {
		if at.addr == v.at.addr {
			continue
		}
		q := w.queues[channel]
		w.assign(q, at)
		if q.server.connection != nil {
			connections[channel] = q.server.connection
		}
	}
	empty := len(v.channels()) == 0 // Add may have added one
	if empty {
		delete(w.servers, v.at.addr)
	}
	w.mu.Unlock()
	for channel, connection := range connections {
		w.subscribe(w.ctx, connection, []string{channel})
	}
	return empty
}

// misplaced reports whether a queue is on another server now. A replica would pass events on, but processes would not
// learn of the watcher from the primary.
func (v *watchServer) misplaced() bool {
	w := v.w
	if !w.s.isCluster() {
		return false
	}
	w.mu.Lock()
	channels := v.channels()
	w.mu.Unlock()
	return slices.ContainsFunc(channels, func(channel string) bool { return w.place(w.ctx, channel).addr != v.at.addr })
}

var (
	errUnplaced = errors.New("no server of the Cluster has the slot")
	errMoved    = errors.New("a queue has moved to another server")
)

// listen opens a connection and receives until it fails.
func (v *watchServer) listen() error {
	w := v.w
	open := w.s.rdb.Subscribe
	if w.s.isCluster() {
		if v.at.node == nil {
			return errUnplaced
		}
		open = v.at.node.SSubscribe
	}
	connection := open(w.ctx)
	defer connection.Close()
	defer context.AfterFunc(w.ctx, func() { connection.Close() })()
	w.mu.Lock()
	v.connection = connection
	channels := v.channels()
	w.mu.Unlock()
	if err := w.subscribe(w.ctx, connection, channels); err != nil {
		return err
	}
	pinged, checked := false, time.Now()
	for {
		if time.Since(checked) > watchPing {
			if v.misplaced() {
				return errMoved
			}
			checked = time.Now()
		}
		message, err := connection.ReceiveTimeout(w.ctx, watchPing)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && !pinged {
			pinged = true
			if err := connection.Ping(w.ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		pinged = false
		if err := v.received(message); err != nil {
			return err
		}
	}
}

// received handles a message from the connection.
func (v *watchServer) received(message any) error {
	w := v.w
	switch m := message.(type) {
	case *redis.Subscription:
		w.mu.Lock()
		defer w.mu.Unlock()
		q := w.queues[m.Channel]
		switch {
		case q == nil || q.server != v:
		case strings.HasSuffix(m.Kind, "unsubscribe"):
			return errMoved
		default:
			q.heard, v.heard = true, true
			w.broadcast()
		}
	case *redis.Message:
		number, events, _ := strings.Cut(m.Payload, " ")
		n, err := strconv.Atoi(number)
		if queue, known := w.queueOf(m); err == nil && n > 0 && known {
			w.Put(queue, []byte(events), n)
		}
	}
	return nil
}
