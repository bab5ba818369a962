package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/laterq/later"
)

// Partner ships orders. Its errors decide about the message: later.Bury if trying again is of no use, later.RetryIn if
// the partner said when to come back, and any other error for the backoff of the queue.
type Partner interface {
	Ship(ctx context.Context, o Order) error
}

// HTTPPartner is a Partner behind an HTTP API.
type HTTPPartner struct{ URL string }

// Ship implements Partner. The order's id lets the partner recognize a request that is repeated.
func (p HTTPPartner) Ship(ctx context.Context, o Order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return later.Bury(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL, bytes.NewReader(body))
	if err != nil {
		return later.Bury(err)
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
			return fmt.Errorf("%w: %w", err, later.RetryIn(time.Duration(seconds)*time.Second))
		}
		return err
	case resp.StatusCode < 500:
		return later.Bury(err)
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
