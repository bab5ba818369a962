package later

import (
	"errors"
	"strings"
	"testing"

	"github.com/laterq/later/memstore"
)

func TestWorkerRunReturnsTheErrorOfInvalidMiddleware(t *testing.T) {
	text := errors.New("limiter's rate is -1: give more than 0")
	refused := InvalidMiddleware(text)
	chain := func(next HandlerFunc) HandlerFunc { return refused(next) } // middleware that calls other middleware
	mux := NewMux()
	mux.Handle("", ignore, refused)
	for name, configure := range map[string]func(c *Client) *Worker{
		"of a worker": func(c *Client) *Worker {
			return NewWorker(c, WorkerConfig{Middleware: []func(HandlerFunc) HandlerFunc{chain}})
		},
		"of a mux": func(c *Client) *Worker {
			w := NewWorker(c, WorkerConfig{})
			w.HandleMux("m", mux)
			return w
		},
	} {
		w := configure(newClientOn(t, memstore.New()))
		w.Handle("q", ignore)
		err := w.Run(t.Context())
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text.Error()) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// A middleware that panics for another reason has a bug that its stack shows.
func TestWorkerRunPassesOnThePanicOfAMiddleware(t *testing.T) {
	w := NewWorker(newClientOn(t, memstore.New()), WorkerConfig{
		Middleware: []func(HandlerFunc) HandlerFunc{func(HandlerFunc) HandlerFunc { panic("bug") }},
	})
	w.Handle("q", ignore)
	defer func() {
		if p := recover(); p != "bug" {
			t.Errorf("panic is %v", p)
		}
	}()
	w.Run(t.Context())
}
