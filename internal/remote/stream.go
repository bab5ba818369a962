package remote

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/store"
)

// stream is an operation that is answered by several replies. The last one has no More.
type stream[A, R any] struct {
	name  string
	check func(args *A) error // as of an operation
	// run sends the replies. end ends the stream without a last one, so that a client that is still there asks again.
	run func(ctx context.Context, s *Server, args *A, send func(R) error, end func()) error
}

// part is one reply of a stream. The last has neither a result nor More.
type part[R any] struct {
	Result R
	More   bool
}

func (op *stream[A, R]) path() string { return op.name }

func (op *stream[A, R]) serve(s *Server, w http.ResponseWriter, r *http.Request, buffer *[]byte) error {
	defer s.executed()
	var req request[A]
	if err := codec.Decode(*buffer, &req); err != nil {
		return err
	}
	if op.check != nil {
		if err := op.check(&req.Args); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	frames, err := newFrameWriter(w)
	if err != nil {
		return err
	}
	defer frames.end()
	defer context.AfterFunc(ctx, frames.abort)()
	err = op.run(ctx, s, &req.Args, func(result R) error {
		return frames.send(codec.Append(nil, &reply[part[R]]{Result: part[R]{result, true}}))
	}, cancel)
	if ctx.Err() != nil {
		return nil // the stream ends without its last frame, so the client asks again
	}
	return frames.sendLast(codec.Append(nil, &reply[part[R]]{Err: err}))
}

const (
	// watchWindow is how many events a server sends to a watcher ahead of the ones that Next has returned; later events
	// stay in the store's Watcher, which keeps a bounded number. The client asks for watchStep more at a time.
	watchWindow = 64
	watchStep   = watchWindow / 2
	// renewWithin is how long a server keeps a watch that it does not hear of, and renewEvery is how often its client
	// renews it.
	renewWithin = time.Minute
	renewEvery  = renewWithin / 4
)

type watchArgs struct {
	ID     string // chosen by the client at random
	Queues []string
	More   int // how many more events the client takes
}

// watch is a Watcher of a client.
type watch struct {
	store.Watcher
	window chan struct{} // has a token for each event that the client takes
	expiry *time.Timer   // ends it
}

// opWatch sends an empty event when the watch has begun.
var opWatch = &stream[watchArgs, store.Reported]{
	name: "watch", check: (*watchArgs).check,
	run: func(ctx context.Context, s *Server, args *watchArgs, send func(store.Reported) error, end func()) error {
		watcher, err := s.store.Watch(ctx, args.Queues)
		if err != nil {
			return err
		}
		defer watcher.Close()
		expiry := time.AfterFunc(renewWithin, end)
		defer expiry.Stop()
		w := &watch{watcher, make(chan struct{}, watchWindow), expiry}
		w.grant(watchWindow)
		if !s.addWatch(args.ID, w) {
			return store.Invalid("id %q is that of another watcher", args.ID)
		}
		defer s.removeWatch(args.ID)
		return w.run(ctx, send)
	},
}

// run sends the events of a watch.
func (w *watch) run(ctx context.Context, send func(store.Reported) error) error {
	for event := (store.Reported{}); ; {
		if err := send(event); err != nil {
			return err
		}
		select {
		case <-w.window:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var err error
		if event, err = w.Next(ctx); err != nil {
			return err
		}
	}
}

// grant has the server send n more events.
func (w *watch) grant(n int) {
	for range min(n, watchWindow) {
		select {
		case w.window <- struct{}{}:
		default:
		}
	}
}

func (s *Server) addWatch(id string, w *watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, taken := s.watches[id]
	if !taken {
		s.watches[id] = w
	}
	return !taken
}

func (s *Server) removeWatch(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, id)
}

// opWatchAdd adds queues to a watch, and takes more events.
var opWatchAdd = &operation[watchArgs, none]{
	name: "watch_add", check: (*watchArgs).check,
	runAt: func(ctx context.Context, s *Server, args *watchArgs) (none, error) {
		s.mu.Lock()
		w := s.watches[args.ID]
		s.mu.Unlock()
		if w == nil {
			return none{}, fmt.Errorf("watcher: %w", store.ErrNotFound)
		}
		w.expiry.Reset(renewWithin)
		w.grant(args.More)
		if len(args.Queues) == 0 {
			return none{}, nil
		}
		return none{}, w.Add(ctx, args.Queues...)
	},
}

type checkArgs struct{ Options store.CheckOptions }

var opCheck = &stream[checkArgs, store.CheckResult]{
	name: "check",
	run: func(ctx context.Context, s *Server, args *checkArgs, send func(store.CheckResult) error, _ func()) error {
		return check(ctx, s.store, args.Options, func(result store.CheckResult) { send(result) })
	},
}

func check(ctx context.Context, s store.Store, opts store.CheckOptions, report func(store.CheckResult)) error {
	checker, ok := store.As[store.Checker](s)
	if !ok {
		return fmt.Errorf("%w: it has nothing to check", store.ErrUnsupported)
	}
	return checker.Check(ctx, opts, report)
}
