// Package health has the handlers of health probes: Live says whether the process works, and Ready whether its store
// answers. It imports the root package and the problems of its HTTP API. Start reading at Ready.
//
//	http.Handle("/healthz", health.Live(worker))
//	http.Handle("/readyz", health.Ready(client))
//
// LiveStore is Live for a process with an embedded store. All reply 200 with {"status":"ok"}, or 503 with a problem as
// in RFC 9457, with the "code" of the error. A reply contains no addresses and no other details, because probes are
// often open to everybody.
package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/store"
)

const (
	// limit is how long a check may take. Probes of Kubernetes wait for a second by default.
	limit = 800 * time.Millisecond
	// cacheFor is how long the result of a check is used again, so that probes cannot load the store.
	cacheFor = time.Second
)

// Ready returns a handler for /readyz: the store answers a Ping within 0.8 seconds. A store that hangs is as bad as one
// that is gone. After Client.Close it replies 503.
//
// However many probes arrive, there is one Ping at a time and at most one a second; the others share its result.
func Ready(client *later.Client) http.Handler { return &probe{what: "the store", check: client.Ping} }

// Live returns a handler for /healthz: the process answers, and no part of its workers is stuck; see Worker.Alive. A
// worker that does not run yet, and a store that is away, are no reason to restart a process.
func Live(workers ...*later.Worker) http.Handler {
	return &probe{what: "a worker", check: func(context.Context) error { return alive(workers) }}
}

// LiveStore returns Live for a process that may hold an embedded store: it replies 503, too, when that has stopped for
// good, after an error of its disk or because its directory was moved. Only a new process can open it again. It also
// does after Client.Close.
func LiveStore(client *later.Client, workers ...*later.Worker) http.Handler {
	return &probe{what: "the store, or a worker,", check: func(ctx context.Context) error {
		if err := client.Ping(ctx); errors.Is(err, later.ErrClosed) {
			return err
		}
		return alive(workers)
	}}
}

func alive(workers []*later.Worker) error {
	for _, w := range workers {
		if err := w.Alive(); err != nil && !errors.Is(err, later.ErrInvalid) {
			return err
		}
	}
	return nil
}

// probe is a handler that replies with the result of a check.
type probe struct {
	what  string // is checked
	check func(context.Context) error

	mu   sync.Mutex
	last *attempt // the one that runs, or ran last; nil before the first
}

// attempt is one call of a check.
type attempt struct {
	done  chan struct{} // is closed when the fields below are set
	err   error
	ended time.Time
}

// ServeHTTP implements http.Handler.
func (p *probe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		problem.Write(w, http.StatusMethodNotAllowed, store.Invalid("method is %s: use GET", r.Method))
		return
	}
	attempt := p.attempt()
	select {
	case <-attempt.done:
		if attempt.err != nil {
			p.fail(w, "does not work", attempt.err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"status":"ok"}` + "\n"))
	case <-time.After(limit): // the check does not look at its context
		p.fail(w, "does not answer", errSlow)
	case <-r.Context().Done():
	}
}

// fail replies with the code of an error, but not with its text.
func (p *probe) fail(w http.ResponseWriter, how string, err error) {
	problem.Write(w, http.StatusServiceUnavailable, &plainError{p.what + " " + how, err})
}

// plainError is an error with another text.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.err }

// attempt returns the attempt that runs, or the last one if it is recent, or else starts one.
func (p *probe) attempt() *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && !p.last.old() {
		return p.last
	}
	a := &attempt{done: make(chan struct{})}
	p.last = a
	go func() { // ends within the limit, unless the process is locked up
		defer close(a.done)
		ctx, cancel := context.WithTimeoutCause(context.Background(), limit, errSlow)
		defer cancel()
		a.err = p.check(ctx)
		a.ended = time.Now()
	}()
	return a
}

var errSlow = fmt.Errorf("no answer within %v: %w", limit, later.ErrUnavailable)

// old reports whether the attempt has ended, and so long ago that its result does not count.
func (a *attempt) old() bool {
	select {
	case <-a.done:
		return time.Since(a.ended) >= cacheFor
	default:
		return false
	}
}
