package server

import (
	"net/http"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestActivityHasTheCountsOfEachPart(t *testing.T) {
	engine := memstore.New()
	client, err := later.New(engine)
	if err != nil {
		t.Fatal(err)
	}
	a := newAPIOver(t, client, Config{})
	const path = "/v1/queues/mail/activity"
	a.do(http.MethodGet, path, nil).fails(http.StatusNotFound, "not_found", "")
	a.do(http.MethodPost, mail, `{"id": "a"}`).is(http.StatusCreated)
	if _, err := engine.Report(t.Context(), []store.Report{
		{Queue: "mail", Counts: map[store.EventKind]int64{"acked": 3, "nacked": 1}},
	}); err != nil {
		t.Fatal(err)
	}
	got := a.do(http.MethodGet, path, nil).is(http.StatusOK)
	for window, want := range map[string]struct {
		parts int
		step  time.Duration
	}{"minute": {7, 10 * time.Second}, "hour": {13, 5 * time.Minute}, "day": {25, time.Hour}} {
		w := got[window].(map[string]any)
		parts := list(w, "parts")
		if len(parts) != want.parts || w["step"] != want.step.String() {
			t.Fatalf("the %s has %d parts of %v", window, len(parts), w["step"])
		}
		sum := 0.0
		for _, part := range parts {
			if acked, ok := part["acked"].(float64); ok {
				sum += acked
			}
		}
		if counts := w["counts"].(map[string]any); sum != 3 || counts["acked"] != 3.0 || counts["nacked"] != 1.0 {
			t.Errorf("the parts of the %s have %v, and %v in all", window, sum, counts)
		}
	}
}
