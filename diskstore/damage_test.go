package diskstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	logrecord "github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/laterq/later/store"
)

// readAll and writeAll change files behind the store's back.

func readAll(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeAll(t testing.TB, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// filesOf returns the paths of a store's files with an ending or beginning, in order.
func filesOf(t testing.TB, fs vfs.FS, like string) (paths []string) {
	t.Helper()
	names, err := fs.List("later")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, like) || strings.HasPrefix(name, like) {
			paths = append(paths, fs.PathJoin("later", name))
		}
	}
	slices.Sort(paths)
	return paths
}

// lastFile returns the last file with an ending or beginning.
func lastFile(t testing.TB, fs vfs.FS, like string) string {
	t.Helper()
	paths := filesOf(t, fs, like)
	if len(paths) == 0 {
		t.Fatalf("there is no %s", like)
	}
	return paths[len(paths)-1]
}

// numbered sends messages in calls of their own, so that each is a record of its own in the log.
func numbered(t testing.TB, s *Store, first, n int) {
	t.Helper()
	for i := range n {
		send(t, s, fmt.Sprintf("m%05d", first+i))
	}
}

// wantCorrupt opens a damaged store, which must name a file.
func wantCorrupt(t *testing.T, fs vfs.FS, file string) {
	t.Helper()
	s, err := Open("later", withFS(fs), WithClock(newManualClock()))
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), file) ||
		!strings.Contains(err.Error(), "--recover") {
		t.Errorf("open returns %v, want ErrCorrupt with %s and what to do", err, file)
	}
}

// wantMessages opens a store, which must hold n messages.
func wantMessages(t *testing.T, fs vfs.FS, n int) {
	t.Helper()
	s, err := Open("later", withFS(fs), WithClock(newManualClock()))
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	if got := len(listed(t, s, "q", store.StateReady)); got != n {
		t.Errorf("%d messages are there, want %d", got, n)
	}
}

// inspectedOf returns all results of Inspect.
func inspectedOf(t *testing.T, fs vfs.FS) (results []store.CheckResult) {
	t.Helper()
	if err := inspect(t.Context(), directory{"later", fs},
		func(f store.CheckResult) { results = append(results, f) }); err != nil {
		t.Fatal(err)
	}
	return results
}

func TestOpenCutsATornTailOfTheLog(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openOn(t, fs, newManualClock())
	numbered(t, s, 0, 20)
	path := lastFile(t, fs, ".log")
	before := len(readAll(t, fs, path))
	numbered(t, s, 20, 1)
	after := readAll(t, fs, path)
	crashed := same(fs)
	s.Close()
	for i, tail := range [][]byte{
		after[before : before+5],                               // the header is not whole
		after[before : len(after)-1],                           // the record is not whole
		append([]byte{}, bytes.Repeat([]byte{0xaa}, 5000)...),  // something else stands there
		append(make([]byte, len(after)-before-1), 1),           // zeros, and an end
		append(slices.Clone(after[before:len(after)-7]), 0xee), // its end is wrong
		nil,
		make([]byte, 100_000), // space that was allocated ahead
	} {
		fs := same(crashed)
		writeAll(t, fs, path, append(slices.Clone(after[:before]), tail...))
		if wrong := issuesOf(inspectedOf(t, fs)); len(wrong) > 0 {
			t.Errorf("tail %d: inspect reports %+v", i, wrong)
		}
		h := &harmed{fs: same(fs), clock: newManualClock()}
		if got, results := h.recovered(t); len(got["q"]) != 20 || len(issuesOf(results)) > 0 {
			t.Errorf("tail %d: recover saves %d messages, and reports %+v", i, len(got["q"]), results)
		}
		wantMessages(t, fs, 20)
	}
}

func TestOpenRefusesADamagedLog(t *testing.T) {
	fs := vfs.NewCrashableMem()
	openOn(t, fs, newManualClock()).Close() // Pebble's first log does not tell how much was synced
	s := openOn(t, fs, newManualClock())
	numbered(t, s, 0, 1000) // some blocks
	path := lastFile(t, fs, ".log")
	whole := readAll(t, fs, path)
	crashed := same(fs)
	s.Close()
	wantMessages(t, same(crashed), 1000)
	name := fs.PathBase(path)
	last := (len(whole) - 1) / logBlock * logBlock // the last block does not tell how much was synced
	for at := 3; at < last; at += 3997 {
		fs := same(crashed)
		b := slices.Clone(whole)
		b[at] ^= 0x10
		writeAll(t, fs, path, b)
		wantCorrupt(t, fs, name)
	}
	for _, length := range []int{64, 4096, 3 * logBlock / 2} { // a part is zero, or other bytes
		for _, fill := range []byte{0, 0x55} {
			fs := same(crashed)
			b := slices.Clone(whole)
			copy(b[2000:], bytes.Repeat([]byte{fill}, length))
			writeAll(t, fs, path, b)
			if !mentions(issuesOf(inspectedOf(t, fs)), name) {
				t.Errorf("%d bytes of %x: inspect does not report %s", length, fill, name)
			}
			wantCorrupt(t, fs, name)
		}
	}
}

func TestOpenRefusesADamagedLogOfAStoreThatWasClosed(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openOn(t, fs, newManualClock())
	numbered(t, s, 0, 20)
	path := lastFile(t, fs, ".log")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.syncDirectory("later"); err != nil { // else a copy may have holderFile again
		t.Fatal(err)
	}
	whole := readAll(t, fs, path)
	wantMessages(t, same(fs), 20)
	var ends []int
	for _, r := range logRecords(t, whole, logNumberOf(path)) {
		ends = append(ends, r.at, r.end)
	}
	for at := 0; at < len(whole); at += 1 + at/50 {
		changed := same(fs)
		b := slices.Clone(whole)
		b[at] ^= 1
		writeAll(t, changed, path, b)
		if at < ends[len(ends)-1] { // behind it is only a mark of the end
			wantCorrupt(t, changed, fs.PathBase(path))
		}
		if slices.Contains(ends, at) {
			continue
		}
		changed = same(fs)
		writeAll(t, changed, path, whole[:at])
		wantCorrupt(t, changed, fs.PathBase(path))
	}
}

// twoLogs returns the disk of a store with two logs that are not in tables yet, and the names of the logs.
func twoLogs(t *testing.T) (fs *vfs.MemFS, logs []string) {
	t.Helper()
	fs = vfs.NewCrashableMem()
	var full atomic.Bool
	s := openOn(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			return errors.New("no table can be made")
		}
		return nil
	})), newManualClock(), withMemTable(256<<10))
	full.Store(true)
	for i := 0; len(logs) < 2; i++ {
		numbered(t, s, i, 1)
		logs = filesOf(t, fs, ".log")
	}
	n := len(listed(t, s, "q", store.StateReady))
	crashed := same(fs)
	full.Store(false)
	s.Close()
	wantMessages(t, same(crashed), n)
	return crashed, logs
}

func TestOpenRefusesADamagedOlderLog(t *testing.T) {
	fs, logs := twoLogs(t)
	first := readAll(t, fs, logs[0])
	var ends []int
	for _, r := range logRecords(t, first, logNumberOf(logs[0])) {
		ends = append(ends, r.end)
	}
	if len(ends) < 10 {
		t.Fatalf("%s has %d records", logs[0], len(ends))
	}
	for _, end := range []int{ends[len(ends)-1] - 1, ends[len(ends)-2] + 1, ends[3] + 5} {
		changed := same(fs)
		writeAll(t, changed, logs[0], first[:end])
		if !mentions(issuesOf(inspectedOf(t, changed)), fs.PathBase(logs[0])) {
			t.Errorf("inspect does not report %s", logs[0])
		}
		wantCorrupt(t, changed, fs.PathBase(logs[0]))
	}
}

// TestInspectOfRecycledLogsAfterACrashReportsNothing has logs that were written over older ones, and crashes at any
// moment.
func TestInspectOfRecycledLogsAfterACrashReportsNothing(t *testing.T) {
	t.Parallel()
	rounds := 10
	if os.Getenv("LATER_LONG") != "" {
		rounds = 1000
	}
	for round := range rounds {
		rng := rand.New(rand.NewPCG(uint64(round), 7))
		fs, clock := vfs.NewCrashableMem(), newManualClock()
		s := openOn(t, fs, clock, withMemTable(64<<10))
		n := 100 + rng.IntN(400)
		for i := range n {
			m := store.Outgoing{Message: store.Message{ID: fmt.Sprintf("m%05d", i), Payload: make([]byte, rng.IntN(2000))}}
			if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
				t.Fatal(err)
			}
		}
		strict, loose := synced(fs), crash(fs, uint64(round))
		s.Close()
		for _, after := range []*vfs.MemFS{strict, loose} {
			if wrong := issuesOf(inspectedOf(t, after)); len(wrong) > 0 {
				t.Errorf("round %d: inspect reports %+v", round, wrong)
			}
			wantMessages(t, after, n)
		}
	}
}

// lastRecordOf returns where the last record of a manifest begins.
func lastRecordOf(b []byte) (last int) {
	r := logrecord.NewReader(bytes.NewReader(b), 0)
	for {
		at := int(r.Offset())
		if _, err := r.Next(); err != nil {
			return last
		}
		last = at
	}
}

func TestOpenRefusesADamagedManifest(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openOn(t, fs, newManualClock(), withMemTable(64<<10))
	numbered(t, s, 0, 1500) // several edits
	crashed := same(fs)
	path := lastFile(t, fs, "MANIFEST-")
	s.Close()
	whole := readAll(t, crashed, path)
	last := lastRecordOf(whole)
	for at := 0; at < last; at++ {
		changed := same(crashed)
		b := slices.Clone(whole)
		b[at] ^= 4
		writeAll(t, changed, path, b)
		wantCorrupt(t, changed, fs.PathBase(path))
	}
	for _, gone := range []string{path, lastFile(t, crashed, "marker.manifest."),
		lastFile(t, crashed, "marker.format-version.")} {
		changed := same(crashed)
		changed.Remove(gone)
		wantCorrupt(t, changed, "")
	}
	changed := same(crashed)
	writeAll(t, changed, lastFile(t, crashed, "OPTIONS-"), []byte("[Options\n"))
	wantCorrupt(t, changed, "")
}

func TestOpenRefusesAMissingOrCutTable(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openOn(t, fs, newManualClock())
	numbered(t, s, 0, 50)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	crashed := same(fs)
	s.Close()
	path := lastFile(t, crashed, ".sst")
	changed := same(crashed)
	b := readAll(t, changed, path)
	writeAll(t, changed, path, b[:len(b)-1])
	wantCorrupt(t, changed, fs.PathBase(path))
	changed.Remove(path)
	wantCorrupt(t, changed, strings.TrimSuffix(fs.PathBase(path), tableSuffix))
}

// TestOpenNoticesFlippedBits flips bits anywhere. Then Open fails, or Get of a message does, or they are all there.
func TestOpenNoticesFlippedBits(t *testing.T) {
	t.Parallel()
	rounds := 8
	if os.Getenv("LATER_LONG") != "" {
		rounds = 5000
	}
	base := newHarmed(t)
	manifest := lastFile(t, base.fs, "MANIFEST-")
	lastRecord := lastRecordOf(readAll(t, base.fs, manifest))
	paths := append(slices.Clone(base.tables), manifest, base.log)
	for round := range rounds {
		rng := rand.New(rand.NewPCG(uint64(round), 3))
		h := base.copied()
		path := paths[rng.IntN(len(paths))]
		at := 0
		excused := path == base.log // its tail may be taken for torn
		h.change(t, path, func(b []byte) []byte {
			at = rng.IntN(len(b))
			n := min(len(b)-at, 1+rng.IntN(100))
			cut := rng.IntN(10) == 0
			if path == manifest && (cut || at+n > lastRecord) {
				excused = true // so may the last record of the manifest
			}
			if cut {
				return b[:at]
			}
			for i := range n {
				b[at+i] ^= byte(1 + rng.IntN(255))
			}
			return b
		})
		unnoticed := h.copied()
		s, err := Open("later", withFS(unnoticed.fs), WithClock(h.clock))
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s at %d: open returns %v", path, at, err)
			}
			continue
		}
		missing := 0
		for queue, want := range h.all {
			for id := range want {
				infos, err := s.Get(t.Context(), queue, []string{id})
				if errors.Is(err, store.ErrCorrupt) {
					missing = -1
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if infos[0] == nil {
					missing++
				}
			}
			if missing < 0 {
				break
			}
		}
		s.Close()
		if missing > 0 && !excused {
			t.Errorf("%s at %d: %d messages are missing and nothing says so", path, at, missing)
		}
	}
}
