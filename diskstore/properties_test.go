package diskstore

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func setProperties(t testing.TB, s *Store, queue string, set map[string]string) {
	t.Helper()
	if err := s.SetProperties(t.Context(), queue, set, nil); err != nil {
		t.Fatal(err)
	}
}

func wantProperties(t testing.TB, s *Store, queue string, want map[string]string) {
	t.Helper()
	if got, err := s.Properties(t.Context(), queue); err != nil || !maps.Equal(got, want) {
		t.Errorf("properties of %s are %q, %v; want %q", queue, got, err, want)
	}
}

func TestPropertiesAreKeptOverAReopen(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	setProperties(t, s, "q", map[string]string{"a": "1", "b": "2", "c": "3"})
	setProperties(t, s, "q", map[string]string{"a": "one", "b": ""})
	setProperties(t, s, "deleted", map[string]string{"a": "1"})
	if err := s.Delete(t.Context(), "deleted"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "one", "c": "3"}
	for range 2 {
		s.Close()
		s = openOn(t, fs, clock)
		wantProperties(t, s, "q", want)
		wantProperties(t, s, "deleted", nil)
		wantSound(t, s)
	}
	setProperties(t, s, "deleted", map[string]string{"b": "2"})
	wantProperties(t, s, "deleted", map[string]string{"b": "2"})
	s.Close()
}

// A crash leaves all changes of a call or none of them, and all once the call has returned.
func TestPropertiesSurviveACrashAtAnyPoint(t *testing.T) {
	clock := newManualClock()
	c := newCrashPoints(vfs.NewCrashableMem())
	s := openOn(t, c, clock, withMemTable(64<<10))
	before, after := map[string]string{}, map[string]string{"added": "1"}
	set := map[string]string{"added": "1"}
	for i := range 100 {
		name := fmt.Sprint("p", i)
		before[name] = strings.Repeat("v", 500)
		set[name] = ""
		if i%2 == 0 {
			set[name], after[name] = "changed", "changed"
		}
	}
	setProperties(t, s, "q", before)
	c.take(func() { setProperties(t, s, "q", set) })
	s.Close()
	if len(c.left) == 0 {
		t.Fatal("no points of a crash")
	}
	for i, fs := range c.left {
		s := openOn(t, fs, clock)
		got, err := s.Properties(t.Context(), "q")
		if err != nil || !maps.Equal(got, after) && (i >= len(c.left)-2 || !maps.Equal(got, before)) {
			t.Errorf("crash before %s: %d properties, %v", c.ops[i], len(got), err)
		}
		wantSound(t, s)
		s.Close()
	}
}

func TestPropertiesAreRecovered(t *testing.T) {
	for _, name := range []string{"q", "recovered-1"} {
		fs, clock := vfs.NewMem(), newManualClock()
		s := openOn(t, fs, clock)
		places(t, s)
		want := map[string]string{"a": "1", "b": "2"}
		setProperties(t, s, "q", want)
		wantSound(t, s)
		r := raw{t, s, s.queues["q"].number}
		r.set(r.id(kindProperty, ""), []byte("without a name"))
		r.set(r.id(kindProperty, "without a value"), nil)
		if name != "q" {
			r.remove(appendIDKey(nil, 0, kindName, "q"))
		}
		if all := issuesOf(checked(t, s)); len(all) == 0 {
			t.Error("the check finds nothing")
		}
		s.Close()
		s = recoveredStore(t, fs, clock)
		wantSound(t, s)
		wantProperties(t, s, name, want)
		s.Close()
	}
}

func TestPropertiesAreInABackupAndInARecoveredStore(t *testing.T) {
	fs, clock := vfs.NewCrashableMem(), newManualClock()
	s := openOn(t, fs, clock, SyncEvery(time.Hour))
	want := map[string]string{"a": "1"}
	setProperties(t, s, "q", want)
	if err := s.Backup(t.Context(), "backup"); err != nil {
		t.Fatal(err)
	}
	setProperties(t, s, "q", map[string]string{"a": "2"})
	left := synced(fs)
	s.Close()
	b, err := Open("backup", withFS(left), WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	wantProperties(t, b, "q", want)
	wantSound(t, b)
	b.Close()

	err = recoverStore(t.Context(), directory{"later", fs}, directory{"recovered", fs}, func(store.CheckResult) {})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open("recovered", withFS(fs), WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	wantProperties(t, r, "q", map[string]string{"a": "2"})
	wantSound(t, r)
	r.Close()
}
