package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// Run serves the API, moves the outbox and handles tasks until ctx ends. Then it drains: no more requests, and up to
// 20 seconds for the handlers that run. It returns the first error.
func (s *Shop) Run(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	server := &http.Server{Handler: s.API(), ReadHeaderTimeout: 5 * time.Second}
	var parts sync.WaitGroup
	parts.Go(func() { cancel(server.Serve(listener)) })
	parts.Go(func() {
		s.box.run(ctx, func(err error) { s.cfg.Log.Warn("tasks wait in the outbox", "error", err) })
	})
	for _, worker := range s.servers {
		if err := worker.Start(s.handler()); err != nil {
			cancel(err)
		}
	}
	<-ctx.Done()
	shutdown, end := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer end()
	err := server.Shutdown(shutdown)
	for _, worker := range s.servers {
		parts.Go(worker.Shutdown)
	}
	parts.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = cmp.Or(cause, err)
	}
	return err
}

// API returns the HTTP API.
func (s *Shop) API() http.Handler {
	api := http.NewServeMux()
	api.HandleFunc("POST /orders", s.servePlace)
	api.HandleFunc("POST /orders/{id}/pay", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		if err := s.Pay(r.Context(), id); err != nil {
			fail(w, err)
			return
		}
		s.serveOrder(w, r)
	})
	api.HandleFunc("GET /orders/{id}", s.serveOrder)
	api.HandleFunc("GET /dead", s.serveDead)
	api.HandleFunc("POST /dead/{id}/replay", func(w http.ResponseWriter, r *http.Request) {
		err := s.inspect.RunTask(partnerQueue, r.PathValue("id"))
		answer(w, map[string]int{"replayed": 1}, err)
	})
	api.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		err := s.client.Ping()
		answer(w, map[string]bool{"ok": err == nil}, err)
	})
	api.Handle("GET /metrics", s.metrics)
	api.HandleFunc("POST /partner", flakyPartner)
	return traceRequests(api)
}

func (s *Shop) servePlace(w http.ResponseWriter, r *http.Request) {
	var o Order
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&o)
	if err != nil || o.Customer == "" || o.Cents <= 0 {
		http.Error(w, `give an order such as {"customer": "ann", "cents": 1999}`, http.StatusBadRequest)
		return
	}
	o.ID, o.State = rand.Text()[:8], "unpaid"
	answer(w, o, s.Place(r.Context(), o))
}

func (s *Shop) serveOrder(w http.ResponseWriter, r *http.Request) {
	o, err := s.Get(r.Context(), r.PathValue("id"))
	answer(w, o, err)
}

// serveDead lists the orders that the partner refused, or did not take in many attempts.
func (s *Shop) serveDead(w http.ResponseWriter, r *http.Request) {
	dead, err := s.inspect.ListArchivedTasks(partnerQueue)
	if errors.Is(err, asynq.ErrQueueNotFound) {
		err = nil // nothing was sent yet
	}
	answer(w, dead, err)
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the client is gone if this fails
}

func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, errNoOrder):
		status = http.StatusNotFound
	case errors.Is(err, errWrongState):
		status = http.StatusConflict
	case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		status = http.StatusNotFound
	}
	http.Error(w, err.Error(), status)
}
