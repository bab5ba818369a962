package diskstore

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func TestActivityOutlivesClose(t *testing.T) {
	clock, fs := newManualClock(), vfs.NewMem()
	open := func() *Store {
		t.Helper()
		s, err := Open("later", WithClock(clock), withFS(fs))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	report := func(s *Store, n int64) {
		t.Helper()
		results, err := s.Report(t.Context(), []store.Report{{Queue: "q", Counts: map[store.EventKind]int64{"sent": n}}})
		if err != nil || results[0].Err != nil {
			t.Fatal(results, err)
		}
	}
	sent := func(s *Store) [2]int64 {
		t.Helper()
		a, err := s.Activity(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		return [2]int64{a.Minute.Counts["sent"], a.Hour.Counts["sent"]}
	}

	s := open()
	if err := s.SetPaused(t.Context(), "q", false); err != nil {
		t.Fatal(err)
	}
	report(s, 1)
	s.Close()
	clock.Advance(2 * time.Minute)
	s = open()
	report(s, 10)
	if got := sent(s); got != [2]int64{10, 11} {
		t.Errorf("last minute and hour have %v, want 10 and 11", got)
	}
	s.Close()
	s = open()
	if got := sent(s); got != [2]int64{10, 11} {
		t.Errorf("after another close they have %v, want 10 and 11", got)
	}
	err := s.Check(t.Context(), store.CheckOptions{}, func(r store.CheckResult) {
		if r.Severity == store.SeverityWarning || r.Severity == store.SeverityError {
			t.Errorf("check: %+v", r)
		}
	})
	if err != nil {
		t.Fatal(err)
	}

	// A queue that is created again has none of it.
	if err := s.Delete(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	if err := s.SetPaused(t.Context(), "q", false); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if got := sent(open()); got != [2]int64{} {
		t.Errorf("a new queue of that name has %v", got)
	}
}
