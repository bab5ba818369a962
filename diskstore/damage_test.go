package diskstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

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

// filesOf gives the paths of a store's files with an ending or beginning, in order.
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

// last gives the last file with an ending or beginning.
func lastFile(t testing.TB, fs vfs.FS, like string) string {
	t.Helper()
	paths := filesOf(t, fs, like)
	if len(paths) == 0 {
		t.Fatalf("there is no %s", like)
	}
	return paths[len(paths)-1]
}

// same is a copy of a file system as it is.
func same(fs *vfs.MemFS) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// synced is a copy of a file system as a crash leaves it in which nothing that was not synced survives.
func synced(fs *vfs.MemFS) *vfs.MemFS { return fs.CrashClone(vfs.CrashCloneCfg{}) }

// numbered sends messages in calls of their own, so that each is a record of its own in the log.
func numbered(t testing.TB, s *Store, first, n int) {
	t.Helper()
	for i := range n {
		send(t, s, fmt.Sprintf("m%05d", first+i))
	}
}

// wantCorrupt opens a store that must refuse, naming a file.
func wantCorrupt(t *testing.T, fs vfs.FS, file string) {
	t.Helper()
	s, err := Open("later", withFS(fs), WithClock(newManualClock()))
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "--salvage") {
		t.Errorf("open gives %v, want ErrCorrupt with %s and what to do", err, file)
	}
}

// wantLiving opens a store that must hold just so many messages, and gives what it logged.
func wantLiving(t *testing.T, fs vfs.FS, n int) string {
	t.Helper()
	var log bytes.Buffer
	s, err := Open("later", withFS(fs), WithClock(newManualClock()), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := len(listed(t, s, "q", store.StateReady)); got != n {
		t.Errorf("%d messages are there, want %d", got, n)
	}
	return log.String()
}

func TestTornTailOfTheLogIsCutAndTold(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openOn(t, fs, newManualClock())
	numbered(t, s, 0, 20)
	path := lastFile(t, fs, ".log")
	before := len(readAll(t, fs, path))
	numbered(t, s, 20, 1)
	after := readAll(t, fs, path)
	crashed := same(fs)
	s.Close()
	for _, tail := range [][]byte{
		after[before : before+5],                               // the header is not whole
		after[before : len(after)-1],                           // the record is not whole
		append([]byte{}, bytes.Repeat([]byte{0xaa}, 5000)...),  // something else stands there
		append(make([]byte, len(after)-before-1), 1),           // zeros, and an end
		append(slices.Clone(after[before:len(after)-7]), 0xee), // its end is wrong
	} {
		fs := same(crashed)
		writeAll(t, fs, path, append(slices.Clone(after[:before]), tail...))
		said := wantLiving(t, fs, 20)
		if want := fmt.Sprintf("bytes=%d", len(tail)); !strings.Contains(said, want) ||
			!strings.Contains(said, "level=WARN") || !strings.Contains(said, fs.PathBase(path)) {
			t.Errorf("a tail of %d bytes: the store says %q, want a warning with the file and %s", len(tail), said, want)
		}
	}
	for _, tail := range [][]byte{nil, make([]byte, 100_000)} { // nothing, or what was allocated ahead
		fs := same(crashed)
		writeAll(t, fs, path, append(slices.Clone(after[:before]), tail...))
		if said := wantLiving(t, fs, 20); strings.Contains(said, "WARN") {
			t.Errorf("a clean end of the log is reported: %s", said)
		}
	}
}

func TestDamageInTheLogStopsTheOpen(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openOn(t, fs, newManualClock())
	numbered(t, s, 0, 300) // some blocks
	path := lastFile(t, fs, ".log")
	whole := readAll(t, fs, path)
	crashed := same(fs)
	s.Close()
	wantLiving(t, same(crashed), 300)
	name := fs.PathBase(path)
	for at := 3; at < len(whole)-5000; at += 997 { // behind it are some groups that say that it was synced
		fs := same(crashed)
		b := slices.Clone(whole)
		b[at] ^= 0x10
		writeAll(t, fs, path, b)
		wantCorrupt(t, fs, name)
	}
	for _, length := range []int{64, 4096, 3 * blockSize / 2} { // a part is zero, or other bytes
		for _, fill := range []byte{0, 0x55} {
			fs := same(crashed)
			b := slices.Clone(whole)
			copy(b[2000:], bytes.Repeat([]byte{fill}, length))
			writeAll(t, fs, path, b)
			wantCorrupt(t, fs, name)
		}
	}
}

func TestLogOfAStoreThatWasClosedMustBeWhole(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openOn(t, fs, newManualClock())
	numbered(t, s, 0, 20)
	path := lastFile(t, fs, ".log")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole := readAll(t, fs, path)
	wantLiving(t, same(fs), 20)
	for at := 0; at < len(whole); at += 1 + at/50 {
		changed := same(fs)
		b := slices.Clone(whole)
		b[at] ^= 1
		writeAll(t, changed, path, b)
		wantCorrupt(t, changed, fs.PathBase(path))
		changed = same(fs)
		writeAll(t, changed, path, whole[:at])
		wantCorrupt(t, changed, fs.PathBase(path))
	}
	missing := same(fs)
	if err := missing.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantCorrupt(t, missing, fs.PathBase(path))
}

// twoLogs gives the disk of a store of which no log is in tables yet, and the names of its logs.
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
	wantLiving(t, same(crashed), n)
	return crashed, logs
}

func TestOlderLogMustBeWhole(t *testing.T) {
	fs, logs := twoLogs(t)
	first := readAll(t, fs, logs[0])
	r := recordReader{chunkReader: newChunkReader(vfs.NewMemFile(first), 2, true)}
	var ends []int64
	for {
		record, err := r.record()
		if err != nil {
			break
		}
		ends = append(ends, record.end)
	}
	if len(ends) < 10 {
		t.Fatalf("%s has %d records", logs[0], len(ends))
	}
	for _, end := range []int64{ends[len(ends)-1], ends[len(ends)-2], ends[3]} { // at the end of a record
		changed := same(fs)
		writeAll(t, changed, logs[0], first[:end])
		wantCorrupt(t, changed, fs.PathBase(logs[0]))
	}
	missing := same(fs)
	missing.Remove(logs[0])
	wantCorrupt(t, missing, fs.PathBase(logs[1]))
	missing = same(fs)
	missing.Remove(logs[0])
	missing.Remove(logs[1])
	wantCorrupt(t, missing, "*.log")
}

// TestRecycledLogsAndCrashesAreNoDamage has logs that were written over older ones, and crashes at any moment.
func TestRecycledLogsAndCrashesAreNoDamage(t *testing.T) {
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
			if said := wantLiving(t, after, n); after == strict && strings.Contains(said, "WARN") {
				t.Errorf("round %d: the end of a recycled log is taken for torn: %s", round, said)
			}
		}
	}
}

func TestDamagedManifestStopsTheOpen(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openOn(t, fs, newManualClock(), withMemTable(64<<10))
	numbered(t, s, 0, 1500) // several edits
	crashed := same(fs)
	path := lastFile(t, fs, "MANIFEST-")
	s.Close()
	m, err := readManifest(crashed, "later", fs.PathBase(path))
	if err != nil || m.edits < 4 || m.damage != "" {
		t.Fatalf("the manifest reads as %+v, %v", m, err)
	}
	whole := readAll(t, crashed, path)
	r := recordReader{chunkReader: newChunkReader(vfs.NewMemFile(whole), 0, false)}
	last := int64(0) // where the last edit begins
	for {
		record, err := r.record()
		if err != nil {
			break
		}
		last = record.at
	}
	for at := 0; at < int(last); at++ {
		changed := same(crashed)
		b := slices.Clone(whole)
		b[at] ^= 4
		writeAll(t, changed, path, b)
		wantCorrupt(t, changed, fs.PathBase(path))
	}
	for _, gone := range []string{path, lastFile(t, crashed, "marker.manifest."), lastFile(t, crashed, "marker.format-version.")} {
		changed := same(crashed)
		changed.Remove(gone)
		wantCorrupt(t, changed, "is missing")
	}
	changed := same(crashed)
	writeAll(t, changed, lastFile(t, crashed, "OPTIONS-"), []byte("[Options\n"))
	wantCorrupt(t, changed, "OPTIONS-")
}

func TestMissingOrCutTableStopsTheOpen(t *testing.T) {
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
	wantCorrupt(t, changed, fs.PathBase(path))
}
