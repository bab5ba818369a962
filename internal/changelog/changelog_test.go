package changelog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/laterq/later/internal/changelog"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLog returns a list that is written by Flush alone.
func newLog(s store.Store) *changelog.Log {
	return &changelog.Log{Store: s, Logger: slog.New(slog.DiscardHandler), Start: func(func()) bool { return false }}
}

func newStore(t *testing.T) store.Store {
	s := memstore.New()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func all(*changelog.Change) bool { return true }

// texts returns a part of a list.
func texts(t *testing.T, l *changelog.Log, after changelog.Position, limit int) (
	texts []string, last changelog.Position,
) {
	t.Helper()
	found, err := l.List(t.Context(), after, limit, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range found {
		texts, last = append(texts, c.What), changelog.Position{Time: c.Time, ID: c.ID}
	}
	return texts, last
}

func TestPagesHaveEachChangeOnce(t *testing.T) {
	s := newStore(t)
	one, other := newLog(s), newLog(s)
	for i := range 30 {
		l := one
		if i%3 == 0 {
			l = other
		}
		l.Add(&changelog.Change{What: fmt.Sprint(i)})
		if i == 10 || i == 20 {
			one.Flush()
		}
		if i%3 == 0 {
			other.Flush()
		}
	}
	want, _ := texts(t, one, changelog.Position{}, 100)
	if len(want) != 30 {
		t.Fatalf("%v", want)
	}
	seen := map[string]bool{}
	for _, what := range want {
		seen[what] = true
	}
	if len(seen) != 30 {
		t.Errorf("%v", want)
	}
	for _, limit := range []int{1, 2, 7, 29} {
		var got []string
		for after := (changelog.Position{}); ; {
			page, last := texts(t, one, after, limit)
			if len(page) == 0 {
				break
			}
			got, after = append(got, page...), last
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("pages of %d have\n%v\nwant\n%v", limit, got, want)
		}
	}
}

func TestLatestVersionOfAChangeIsListed(t *testing.T) {
	s := newStore(t)
	l := newLog(s)
	c := &changelog.Change{What: "begun"}
	l.Add(c)
	for _, flush := range []bool{false, true} {
		if flush {
			l.Flush()
		}
		after := *c
		after.What = fmt.Sprint("done ", flush)
		l.Put(&after)
		if got, _ := texts(t, l, changelog.Position{}, 10); len(got) != 1 || got[0] != after.What {
			t.Errorf("%v", got)
		}
		if got, err := l.Get(t.Context(), c.ID); err != nil || got.What != after.What || !got.Time.Equal(c.Time) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	l.Flush()
	got, err := newLog(s).Get(t.Context(), c.ID)
	if err != nil || got.What != "done true" || !got.Time.Equal(c.Time) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := l.Get(t.Context(), "none"); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
}

func TestHiddenChangesDoNotShortenPages(t *testing.T) {
	l := newLog(newStore(t))
	for i := range 1200 {
		l.Add(&changelog.Change{What: fmt.Sprint(i), Queue: fmt.Sprint("q", i%100)})
	}
	l.Flush()
	found, err := l.List(context.Background(), changelog.Position{}, 5,
		func(c *changelog.Change) bool { return c.Queue == "q7" })
	if err != nil || len(found) != 5 || found[0].What != "1107" || found[4].What != "707" {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestChangeOfAnySizeIsWritten(t *testing.T) {
	s := newStore(t)
	l := newLog(s)
	l.Add(&changelog.Change{What: "large", Attributes: map[string]any{"filter": string(make([]byte, store.MaxPayload))}})
	l.Add(&changelog.Change{What: "strange", Attributes: map[string]any{"x": func() {}}})
	l.Flush()
	if got, _ := texts(t, newLog(s), changelog.Position{}, 10); fmt.Sprint(got) != "[strange large]" {
		t.Errorf("%v", got)
	}
}

func TestManyMinorChangesDoNotPushOutTheOthers(t *testing.T) {
	for _, every := range []int{100, 3000} { // written at once, and while the store cannot be written
		s := newStore(t)
		l := newLog(s)
		minor := func(n int) {
			for i := range n {
				l.Add(&changelog.Change{What: "cancelled", Attributes: map[string]any{"id": fmt.Sprint(i)}})
				if i%every == every-1 {
					l.Flush()
				}
			}
		}
		minor(300)
		l.Add(&changelog.Change{What: "paused"})
		l.Add(&changelog.Change{What: "moved", Right: "send", Attributes: map[string]any{"id": "1"}})
		minor(3000)
		l.Flush()
		got, _ := texts(t, newLog(s), changelog.Position{}, 5000)
		if n := len(got); n < changelog.KeptMinor+2 || n > 1200 ||
			!slices.Contains(got, "paused") || !slices.Contains(got, "moved") || got[0] != "cancelled" {
			t.Errorf("written every %d: %d changes, which end with %v", every, n, got[n-2:])
		}
	}
}
