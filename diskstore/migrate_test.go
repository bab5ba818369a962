package diskstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

// copyFixture returns a copy of the fixture of a format.
func copyFixture(t *testing.T, format int) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(dir, os.DirFS(fixture(format))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openFixture(t *testing.T, dir string, clock Clock) *Store {
	t.Helper()
	s, err := Open(dir, WithClock(clock), withReserve(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func wantFormatFile(t *testing.T, dir, want string) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(dir, formatFile)); err != nil || string(got) != want {
		t.Errorf("%s has %q, %v, want %q", formatFile, got, err, want)
	}
}

func TestEarlierFormatsAreMigrated(t *testing.T) {
	for format := oldestFormat(); format < formatVersion; format++ {
		dir, clock := copyFixture(t, format), newManualClock()
		s := openFixture(t, dir, clock)
		wantFormatFile(t, dir, formatText)
		wantFixture(t, s, clock)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		openFixture(t, dir, clock)
	}
}

// wantFixture checks that a store has what fillFixture put into it.
func wantFixture(t *testing.T, s *Store, clock *manualClock) {
	t.Helper()
	wantSound(t, s)
	states := live(t, s, "q")
	for id, want := range map[string]store.State{
		"buried": store.StateDead, "retried": store.StateScheduled, "snoozed": store.StateScheduled,
		"held": store.StateLeased, "followed": store.StateLeased, "ready": store.StateReady,
		"scheduled": store.StateScheduled, "remembered request": store.StateReady,
	} {
		if states[id] != want {
			t.Errorf("%s is %q, want %q", id, states[id], want)
		}
		delete(states, id)
	}
	if len(states) > 0 {
		t.Errorf("there are also %v", states)
	}
	infos, err := s.Get(t.Context(), "q", []string{"buried", "retried"})
	if err != nil || infos[0].LastError != "because" || infos[1].Attempts != 1 || infos[1].LastError != "no" {
		t.Errorf("buried and retried are %+v, %v", infos, err)
	}
	page, err := s.List(t.Context(), "q", store.ListRequest{Group: "g", Limit: 10})
	if err != nil || len(page.Messages) != 4 {
		t.Errorf("the group has %d messages, %v, want 4", len(page.Messages), err)
	}
	set, err := s.Properties(t.Context(), "q")
	if err != nil || set["color"] != "blue" {
		t.Errorf("the properties are %v, %v", set, err)
	}
	q, err := s.Stats(t.Context(), "q")
	if err != nil || q.DeadRetention.MaxCount != 100 {
		t.Errorf("the queue has %+v, %v", q, err)
	}
	if p, err := s.Stats(t.Context(), "paused"); err != nil || !p.Paused {
		t.Errorf("the paused queue has %+v, %v", p, err)
	}
	if r, err := s.Send(t.Context(), "q", []store.Outgoing{plain("acked")}); err != nil || !r[0].Duplicate {
		t.Errorf("a send within the dedup window gives %v, %v, want a duplicate", r, err)
	}
	again := store.WithRequest(t.Context(), store.Request{Session: "session", Number: 3})
	r, err := s.Send(again, "q", []store.Outgoing{plain("remembered request")})
	if err != nil || r[0].Duplicate {
		t.Errorf("a repeated request gives %v, %v, want its first result", r, err)
	}
	clock.Advance(2 * time.Hour) // the leases end
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 100, Lease: time.Minute})
	if err != nil || len(c.Messages) != 7 {
		t.Fatalf("two hours later %d messages are claimed, %v, want 7", len(c.Messages), err)
	}
	for _, m := range c.Messages {
		want := "payload of " + m.ID
		if m.ID == "followed" {
			want = "payload of the successor"
		}
		if string(m.Payload) != want {
			t.Errorf("the payload of %s is %q, want %q", m.ID, m.Payload, want)
		}
	}
}

// withMigrations has Open migrate by other rows.
func withMigrations(t *testing.T, rows ...migration) {
	t.Helper()
	before := migrations
	migrations = rows
	t.Cleanup(func() { migrations = before })
}

func TestInterruptedMigrationBeginsAnew(t *testing.T) {
	dir, clock := copyFixture(t, 7), newManualClock()
	var visited [][]byte
	broken := errors.New("the power failed")
	key := appendKey(nil, 0, kindStamp)
	step := func(r *reader, b *pebble.Batch, from []byte) ([]byte, error) {
		visited = append(visited, from)
		switch {
		case len(from) == 0:
			return []byte{1}, b.Set(key, []byte("one"), nil)
		case broken != nil:
			return nil, broken
		}
		value, ok, err := r.get(key)
		if !ok || err != nil || string(value) != "one" {
			t.Errorf("the second step reads %q, %v, want what the first has written", value, err)
		}
		return nil, b.Set(key, []byte("two"), nil)
	}
	withMigrations(t, migration{from: 6, step: func(*reader, *pebble.Batch, []byte) ([]byte, error) {
		t.Error("a format is migrated from an earlier one than it has")
		return nil, nil
	}}, migration{from: 7, step: step})
	if _, err := Open(dir, WithClock(clock), withReserve(0)); !errors.Is(err, broken) {
		t.Fatalf("open gives %v, want %v", err, broken)
	}
	wantFormatFile(t, dir, formatText+"migrating from 7\n") // so that older programs leave it alone
	broken, visited = nil, nil
	s := openFixture(t, dir, clock)
	if len(visited) != 2 || len(visited[0]) != 0 || !bytes.Equal(visited[1], []byte{1}) {
		t.Errorf("the second open makes the steps %v, want both", visited)
	}
	r := &reader{s: s, src: s.db}
	if value, _, err := r.get(key); err != nil || string(value) != "two" {
		t.Errorf("the migration has written %q, %v", value, err)
	}
	wantFormatFile(t, dir, formatText)
	visited = nil
	s.Close()
	openFixture(t, dir, clock)
	if len(visited) > 0 {
		t.Error("a store of this format is migrated")
	}
}

func TestRecoveredStoreIsMigrated(t *testing.T) {
	dir := copyFixture(t, 7)
	migrated := 0
	withMigrations(t, migration{from: 7, step: func(*reader, *pebble.Batch, []byte) ([]byte, error) {
		migrated++
		return nil, nil
	}})
	for _, damaged := range []bool{false, true} {
		if damaged { // nobody knows its format
			try(t, os.WriteFile(filepath.Join(dir, formatFile), []byte("?"), 0o600))
		}
		migrated = 0
		target := filepath.Join(t.TempDir(), "new")
		if err := Recover(t.Context(), dir, target, func(store.CheckResult) {}); err != nil {
			t.Fatal(err)
		}
		if migrated != 1 {
			t.Errorf("with a damaged %s %v: what was recovered is migrated %d times", formatFile, damaged, migrated)
		}
		wantFormatFile(t, target, formatText)
	}
}

func TestFormatThatIsTooOldNamesTheWayOut(t *testing.T) {
	dir := copyFixture(t, 7)
	text := strings.Replace(formatText, "diskstore 8", "diskstore 6", 1)
	try(t, os.WriteFile(filepath.Join(dir, formatFile), []byte(text), 0o600))
	_, err := Open(dir)
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "later export --store file://"+dir) ||
		!strings.Contains(err.Error(), "later import") {
		t.Errorf("open gives %v, want ErrUnsupported and the commands", err)
	}
	wantFormatFile(t, dir, text)
}
