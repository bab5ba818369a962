package later

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/internal/kind"
	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/store"
)

// KindHeader is the header that holds the kind of a message.
const KindHeader = kind.Header

// Kind sets the kind of the message, which selects its handler in a Mux: 1 to 128 bytes of UTF-8 in segments that dots
// separate, such as "order.cancel". Segments are not empty and contain neither control characters nor an asterisk. The
// kind is the header KindHeader, so Outgoing.Headers can set it too.
func Kind(name string) SendOption {
	return sendOption(func(o *Outgoing) error {
		if err := kind.Check(name); err != nil {
			return err
		}
		return o.addHeader(KindHeader, name)
	})
}

// Kind returns the kind of the message, or "" if it has none. See the option Kind.
func (m *Message) Kind() string { return m.Headers[KindHeader] }

// Mux dispatches the messages of a queue to handlers by their kind. Worker.HandleMux connects it to a queue:
//
//	mux := later.NewMux()
//	mux.Handle("order.cancel", cancel)
//	mux.Handle("order.*", later.Handler(func(ctx context.Context, o Order, m *later.Message) error { … }))
//	worker.HandleMux("orders", mux)
//
// A pattern is one of these, and the first that matches wins:
//
//   - a kind, such as "order.cancel", matches that kind
//   - "order.*" matches all kinds that begin with "order.", and not "order" itself; of several such patterns the
//     longest wins
//   - "*" matches every message, also messages without a kind
//
// The empty pattern matches messages without a kind, and nothing else. The order of the calls does not matter. The
// mux's UnknownPolicy decides about a message that no pattern matches.
//
// Handlers of typed payloads are made with Handler or Typed.Handler. The zero value of a Mux is ready to use, without
// handlers. One Mux can serve several queues and workers.
type Mux struct {
	mu         sync.Mutex
	handlers   map[string]kindHandler // by pattern
	middleware []func(HandlerFunc) HandlerFunc
	unknown    UnknownPolicy
	invalid    error        // the first call that is not allowed, for Run
	log        *slog.Logger // of a worker that has begun; nil before
}

type kindHandler struct {
	handler    HandlerFunc
	middleware []func(HandlerFunc) HandlerFunc
}

// NewMux returns a Mux without handlers.
func NewMux() *Mux { return &Mux{} }

// Handle registers the handler of a pattern, with middleware for it alone. The first one is the outermost. Call it
// before Run.
//
// Run returns ErrInvalid, and delivers nothing, after a Handle with a nil handler, nil middleware, or a pattern that is
// not allowed or already has a handler. A Handle after Run has begun only logs an error.
func (m *Mux) Handle(pattern string, h HandlerFunc, middleware ...func(HandlerFunc) HandlerFunc) {
	m.configure("Handle", func() error {
		if err := kind.CheckPattern(pattern); err != nil {
			return err
		}
		if h == nil {
			return store.Invalid("handler of %s is nil: give a function", patternText(pattern))
		}
		if i := slices.IndexFunc(middleware, isNilMiddleware); i >= 0 {
			return store.Invalid("middleware %d of %s is nil: leave it out", i, patternText(pattern))
		}
		if _, taken := m.handlers[pattern]; taken {
			return store.Invalid("%s has a handler already: call Handle once for each pattern", patternText(pattern))
		}
		if m.handlers == nil {
			m.handlers = map[string]kindHandler{}
		}
		m.handlers[pattern] = kindHandler{h, slices.Clone(middleware)}
		return nil
	})
}

// Use adds middleware for the handlers of all patterns, registered before or after. It runs within the worker's
// Middleware and around that of each pattern; the first is the outermost. It does not see messages that no pattern
// matches. Run returns ErrInvalid after a Use with nil. Call it before Run.
func (m *Mux) Use(middleware ...func(HandlerFunc) HandlerFunc) {
	m.configure("Use", func() error {
		if i := slices.IndexFunc(middleware, isNilMiddleware); i >= 0 {
			return store.Invalid("middleware %d is nil: leave it out", i)
		}
		m.middleware = append(m.middleware, middleware...)
		return nil
	})
}

// Unknown sets the policy for messages that no pattern matches. The default is UnknownRelease. Run returns ErrInvalid
// after an Unknown with a value that is not an UnknownPolicy. Call it before Run.
func (m *Mux) Unknown(policy UnknownPolicy) {
	m.configure("Unknown", func() error {
		if policy > UnknownBury {
			return store.Invalid("policy is %d: give UnknownRelease, UnknownFail or UnknownBury", policy)
		}
		m.unknown = policy
		return nil
	})
}

// configure makes a change, unless the mux runs already, and keeps the first error for Run.
func (m *Mux) configure(call string, change func() error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.log != nil {
		m.log.Error("later: a change of a mux has no effect: configure it before Run", "call", call)
		return
	}
	if err := change(); err != nil && m.invalid == nil {
		m.invalid = fmt.Errorf("mux's %s: %w", call, err)
	}
}

func isNilMiddleware(wrap func(HandlerFunc) HandlerFunc) bool { return wrap == nil }

// patternText names a pattern in an error.
func patternText(pattern string) string {
	if pattern == "" {
		return `pattern "" (messages without a kind)`
	}
	return fmt.Sprintf("pattern %q", pattern)
}

// HandleMux registers a Mux that handles the messages of a queue by their kind. Call it before Run, which returns
// ErrInvalid, and delivers nothing, for a mux that is nil, lacks handlers or had a call that is not allowed. The rules
// of Handle apply, too.
func (w *Worker) HandleMux(queue string, mux *Mux) {
	var err error
	if mux == nil {
		err = store.Invalid("mux of queue %q is nil: make one with NewMux", queue)
	}
	w.register("HandleMux", queue, queueHandler{mux: mux}, err)
}

// dispatcher is the handler that a Mux makes for a queue.
type dispatcher struct {
	handlers kind.Table[HandlerFunc]
	policy   UnknownPolicy
	misfits  *outcome.Misfits
}

// handler returns the handler of the queue of x.
func (m *Mux) handler(x *outcome.Misfits) (HandlerFunc, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.invalid != nil {
		return nil, m.invalid
	}
	if len(m.handlers) == 0 {
		return nil, store.Invalid("mux has no handler: call its Handle before Run")
	}
	d := &dispatcher{policy: m.unknown, misfits: x}
	for pattern, registered := range m.handlers {
		h := registered.handler
		for i, wrap := range slices.Backward(slices.Concat(m.middleware, registered.middleware)) {
			if h = wrap(h); h == nil {
				return nil, store.Invalid("mux's middleware %d returned nil for %s: return a handler", i, patternText(pattern))
			}
		}
		d.handlers.Add(pattern, h)
	}
	x.Patterns = slices.Sorted(maps.Keys(m.handlers))
	return d.handle, nil
}

// freeze ends the time for changes of the mux, because a worker runs with it.
func (m *Mux) freeze(log *slog.Logger) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = log
}

func (d *dispatcher) handle(ctx context.Context, m *Message) error {
	if h, found := d.handlers.Find(m.Kind()); found {
		return h(ctx, m)
	}
	return d.unknown(m)
}

// UnknownPolicy is how a Mux treats messages that no pattern matches, with or without a kind. For each kind, the
// worker's logger gets a warning about once a minute, which names the queue, the kind and the patterns of the mux.
type UnknownPolicy uint8

// The policies for messages of unknown kinds.
const (
	// UnknownRelease gives the message back for another version of the program, which handles the kind; see GiveBack.
	// It does so without a limit: WorkerConfig.GiveBackFor does not apply. Each time costs a claim and a settle. As
	// after any Snooze, the message's expiry no longer counts.
	//
	// An unhandled kind, such as a mistyped one, shows in Info.LastError, inspect.Explain and WorkerInfo.GivenBack.
	UnknownRelease UnknownPolicy = iota
	// UnknownFail makes the attempt fail. The message is retried after the backoff, and dead after its last attempt.
	UnknownFail
	// UnknownBury moves the message to dead at once.
	UnknownBury
)

// unknown returns the result of a message with a kind that no handler takes.
func (d *dispatcher) unknown(m *Message) error {
	err := &outcome.GiveBack{Unknown: true}
	why := outcome.MisfitOf(m.Headers, err)
	err.Err = unknownError(why.Kind)
	switch d.policy {
	case UnknownFail:
		d.misfits.Seen(why, "their attempts fail", err, time.Now())
		return err.Err
	case UnknownBury:
		d.misfits.Seen(why, "they are dead", err, time.Now())
		return Bury(err.Err)
	}
	return err
}

// unknownError returns the error of a message with a kind that no handler takes.
func unknownError(name string) error {
	if name == "" {
		return fmt.Errorf("message has no kind (header %q), and no handler takes such messages", KindHeader)
	}
	return fmt.Errorf("kind %q has no handler", name)
}

// InvalidMiddleware returns a middleware in place of one with a configuration that is not allowed: Worker.Run returns
// err, as an ErrInvalid, and delivers nothing. It is for packages with middleware, because their constructors return no
// error. err says how to change the configuration.
func InvalidMiddleware(err error) func(HandlerFunc) HandlerFunc {
	if !errors.Is(err, ErrInvalid) {
		err = store.Invalid("middleware: %v", err)
	}
	return func(HandlerFunc) HandlerFunc { panic(refusal{err}) }
}

// refusal is the panic of a middleware that is not allowed. It ends in Worker.Run, also through middleware that calls
// other middleware.
type refusal struct{ error }

// recoverRefusal is deferred by callers of middleware, and sets the error that it returns.
func recoverRefusal(err *error) {
	switch p := recover().(type) {
	case nil:
	case refusal:
		*err = p.error
	default:
		panic(p)
	}
}
