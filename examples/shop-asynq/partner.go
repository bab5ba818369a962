package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
)

// Partner ships orders. Its errors decide about the task: asynq.SkipRetry if trying again is of no use, retryIn if the
// partner said when to come back, and any other error for the backoff.
type Partner interface {
	Ship(ctx context.Context, o Order) error
}

// retryIn is an error that sets the delay before the next attempt.
type retryIn struct {
	error
	delay time.Duration
}

// Unwrap returns the error itself.
func (r retryIn) Unwrap() error { return r.error }

// retryDelay returns the delay after the n-th failed attempt: a random one up to base·2^n, at most 10 minutes.
func retryDelay(base time.Duration) asynq.RetryDelayFunc {
	return func(n int, err error, _ *asynq.Task) time.Duration {
		if asked, ok := errors.AsType[retryIn](err); ok {
			return asked.delay
		}
		return rand.N(min(base<<min(n, 20), 10*time.Minute)) + 1
	}
}

// HTTPPartner is a Partner behind an HTTP API.
type HTTPPartner struct{ URL string }

// Ship implements Partner. The order's id lets the partner recognize a request that is repeated.
func (p HTTPPartner) Ship(ctx context.Context, o Order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	req.Header.Set("Idempotency-Key", o.ID)
	req.Header.Set("Traceparent", traceOf(ctx))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	err = fmt.Errorf("the partner answers %s", resp.Status)
	switch {
	case resp.StatusCode < 300:
		return nil
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable:
		if seconds, e := strconv.Atoi(resp.Header.Get("Retry-After")); e == nil {
			return retryIn{err, time.Duration(seconds) * time.Second}
		}
		return err
	case resp.StatusCode < 500:
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return err
}

// flakyPartner is the partner of a shop without one. It fails now and then, and refuses orders above 1,000.00.
func flakyPartner(w http.ResponseWriter, r *http.Request) {
	var o Order
	err := json.NewDecoder(r.Body).Decode(&o)
	switch n := rand.IntN(10); {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case o.Cents > 1_000_00:
		http.Error(w, "the order is too large", http.StatusUnprocessableEntity)
	case n < 4:
		http.Error(w, "something went wrong", http.StatusInternalServerError)
	case n < 5:
		w.Header().Set("Retry-After", "2")
		http.Error(w, "too many orders", http.StatusTooManyRequests)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}
