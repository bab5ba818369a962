package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/store"
)

// Watch implements store.Store. The Watcher goes on after the connection is lost, with Reported.Gap.
func (c *Client) Watch(ctx context.Context, queues []string) (store.Watcher, error) {
	w := &watcher{client: c, queues: slices.Clone(queues)}
	if _, err := w.connected(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// watcher is a Watcher that continues elsewhere when its store is lost.
type watcher struct {
	client *Client

	connecting sync.Mutex // held while current is replaced
	mu         sync.Mutex
	queues     []string
	current    store.Watcher // of a store in this process, or a remoteWatcher; nil before and after it is lost
	gap        bool          // the next event follows a loss
	closed     bool
}

// connected returns the current Watcher. It begins a new one if the last was lost.
func (w *watcher) connected(ctx context.Context) (store.Watcher, error) {
	w.connecting.Lock()
	defer w.connecting.Unlock()
	w.mu.Lock()
	current, queues, closed := w.current, slices.Clone(w.queues), w.closed
	w.mu.Unlock()
	switch {
	case closed:
		return nil, store.ErrClosed
	case current != nil:
		return current, nil
	}
	next, err := w.client.watch(ctx, queues)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		next.Close()
		return nil, store.ErrClosed
	}
	w.current = next
	return next, nil
}

// lost notes that a Watcher has ended.
func (w *watcher) lost(ended store.Watcher) {
	w.mu.Lock()
	if w.current == ended {
		w.current, w.gap = nil, true
	}
	w.mu.Unlock()
	ended.Close()
}

// Add implements store.Watcher.
func (w *watcher) Add(ctx context.Context, queues ...string) error {
	w.mu.Lock()
	for _, q := range queues {
		if !slices.Contains(w.queues, q) && !store.WatchesAll(w.queues) {
			w.queues = append(w.queues, q)
		}
	}
	w.mu.Unlock()
	for {
		current, err := w.connected(ctx)
		if err != nil {
			return err
		}
		err = current.Add(ctx, queues...)
		if _, isLost := errors.AsType[*lostError](err); !isLost {
			return err
		}
		w.lost(current)
	}
}

// Next implements store.Watcher.
func (w *watcher) Next(ctx context.Context) (store.Reported, error) {
	for {
		current, err := w.connected(ctx)
		if err != nil {
			return store.Reported{}, err
		}
		event, err := current.Next(ctx)
		if _, isLost := errors.AsType[*lostError](err); isLost {
			w.lost(current)
			continue
		}
		if err == nil {
			w.mu.Lock()
			event.Gap = event.Gap || w.gap
			w.gap = false
			w.mu.Unlock()
		}
		return event, err
	}
}

// Close implements store.Watcher.
func (w *watcher) Close() error {
	w.mu.Lock()
	current := w.current
	w.current, w.closed = nil, true
	w.mu.Unlock()
	if current != nil {
		return current.Close()
	}
	return nil
}

// watch begins to watch where the calls go now.
func (c *Client) watch(ctx context.Context, queues []string) (store.Watcher, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	defer c.loops.Done()
	target, err := c.router.Target(ctx, nil)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	return retry(ctx, c, target, true, func(ctx context.Context, target *Target) (store.Watcher, error) {
		if target.Local != nil {
			return target.Local.Watch(ctx, queues)
		}
		return c.watchRemote(ctx, target, queues)
	})
}

// remoteWatcher is a watch at one server. After the connection is lost its methods return a lostError.
type remoteWatcher struct {
	client *Client
	target *Target
	id     string
	events chan store.Reported
	end    context.CancelFunc
	ended  chan struct{}
	err    error // set before ended is closed
}

func (c *Client) watchRemote(ctx context.Context, target *Target, queues []string) (store.Watcher, error) {
	w := &remoteWatcher{client: c, target: target, id: rand.Text(), events: make(chan store.Reported),
		ended: make(chan struct{})}
	connection, end := context.WithCancelCause(c.closing)
	w.end = func() { end(store.ErrClosed) }
	unlink := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) }) // until it has begun
	parts, err := openStream(connection, target, opWatch, &watchArgs{ID: w.id, Queues: queues})
	if err == nil {
		_, err = parts.next()
	}
	if !unlink() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = c.begin(ctx)
	}
	if err != nil {
		end(nil)
		if parts != nil {
			parts.close()
		}
		return nil, err
	}
	go func() {
		defer c.loops.Done()
		defer parts.close()
		var renewing sync.WaitGroup
		renewing.Go(func() { w.renew(connection) })
		w.err = w.receive(connection, parts)
		w.end()
		renewing.Wait()
		close(w.ended)
	}()
	return w, nil
}

// receive passes events on until the connection ends, and returns why.
func (w *remoteWatcher) receive(connection context.Context, parts *parts[store.Reported]) error {
	for n := 1; ; n++ {
		event, err := parts.next()
		if connection.Err() != nil {
			return context.Cause(connection)
		}
		if err != nil {
			return err
		}
		select {
		case w.events <- event:
		case <-connection.Done():
			return context.Cause(connection)
		}
		if n%watchStep == 0 {
			if err := w.ask(connection, watchArgs{ID: w.id, More: watchStep}); err != nil {
				return err
			}
		}
	}
}

// renew has the server hear of the watch, until the connection ends.
func (w *remoteWatcher) renew(connection context.Context) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.ask(connection, watchArgs{ID: w.id}) // if that fails the next one may succeed
		case <-connection.Done():
			return
		}
	}
}

func (w *remoteWatcher) Next(ctx context.Context) (store.Reported, error) {
	select {
	case event := <-w.events:
		return event, nil
	case <-w.ended:
		return store.Reported{}, w.err
	case <-ctx.Done():
		return store.Reported{}, context.Cause(ctx)
	}
}

func (w *remoteWatcher) Add(ctx context.Context, queues ...string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.client.closing, func() { cancel(store.ErrClosed) })()
	return w.ask(ctx, watchArgs{ID: w.id, Queues: queues})
}

// ask changes the watch at the server.
func (w *remoteWatcher) ask(ctx context.Context, args watchArgs) error {
	body := encode(&args)
	var answer reply[none]
	err := exchange(ctx, w.target, opWatchAdd.name, reads, body, 0, &answer)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case errors.Is(answer.Err, store.ErrNotFound):
		return &lostError{cause: answer.Err} // the server has noticed it first
	}
	return answer.Err
}

func (w *remoteWatcher) Close() error {
	w.end()
	<-w.ended
	return nil
}

// parts are the parts of a stream as they arrive.
type parts[R any] struct{ *frameReader }

// openStream calls a stream.
func openStream[A, R any](ctx context.Context, target *Target, op *stream[A, R], args *A) (*parts[R], error) {
	frames, err := target.postForFrames(ctx, op.name, encode(args))
	if err != nil {
		return nil, err
	}
	return &parts[R]{frames}, nil
}

// errEnd is returned for the end of a stream.
var errEnd = errors.New("end of the stream")

// next returns the next part, errEnd behind the last one, the error that ended the stream, or a lostError.
func (p *parts[R]) next() (R, error) {
	var none R
	frame, err := p.frameReader.next(nil)
	if err != nil {
		return none, err
	}
	var answer reply[part[R]]
	switch err := misunderstood(codec.Decode(frame, &answer)); {
	case err != nil:
		return none, err
	case answer.Err != nil && errors.Is(answer.Err, store.ErrClosed):
		return none, &lostError{cause: answer.Err}
	case answer.Err != nil:
		return none, answer.Err
	case !answer.Result.More:
		return none, errEnd
	}
	return answer.Result.Result, nil
}

// Check implements store.Checker. When the connection is lost it begins again: results can then be reported twice.
func (c *Client) Check(ctx context.Context, opts store.CheckOptions, report func(store.CheckResult)) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.loops.Done()
	target, err := c.router.Target(ctx, nil)
	if err != nil {
		return c.explain(ctx, err)
	}
	_, err = retry(ctx, c, target, true, func(ctx context.Context, target *Target) (none, error) {
		if target.Local != nil {
			return none{}, check(ctx, target.Local, opts, report)
		}
		results, err := openStream(ctx, target, opCheck, &checkArgs{opts})
		if err != nil {
			return none{}, err
		}
		defer results.close()
		for {
			result, err := results.next()
			if errors.Is(err, errEnd) {
				return none{}, nil
			}
			if err != nil {
				return none{}, err
			}
			report(result)
		}
	})
	return err
}
