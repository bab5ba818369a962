package diskstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/batchrepr"
	logrecord "github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func TestRecoverOfASoundStoreIsACopy(t *testing.T) {
	t.Parallel()
	h := newHarmed(t)
	got, results := h.recovered(t)
	h.wantRecovered(t, got, nil)
	if _, there := got["deleted"]; there || len(got) != len(h.all) {
		t.Errorf("the queues are %v", got)
	}
	for queue, want := range h.all {
		if len(got[queue]) != len(want) {
			t.Errorf("queue %s has %d messages, want %d", queue, len(got[queue]), len(want))
		}
	}
	if wrong := issuesOf(results); len(wrong) > 0 {
		t.Errorf("results: %+v", wrong)
	}
}

func TestRecoverSavesAllButADamagedBlock(t *testing.T) {
	t.Parallel()
	base := newHarmed(t)
	every := 80
	if os.Getenv("LATER_LONG") != "" {
		every = 1
	}
	for _, path := range base.tables {
		name := base.fs.PathBase(path)
		blocks, _ := base.blocks(t, path)
		if len(blocks) < 3 {
			t.Fatalf("%s has %d blocks", name, len(blocks))
		}
		for i, b := range blocks {
			if i%every != 0 && i != len(blocks)-1 {
				continue
			}
			h := base.copied()
			h.change(t, path, flip((b.at+b.end)/2))
			if !mentions(h.inspected(t), name) {
				t.Errorf("inspect does not report block %d of %s", i, name)
			}
			got, results := h.recovered(t)
			h.wantRecovered(t, renamed(got, b.names), messages(b.keys))
			if !mentions(results, name) {
				t.Errorf("recover does not report block %d of %s", i, name)
			}
		}
	}
}

func TestRecoverContinuesBehindSeveralDamagedBlocks(t *testing.T) {
	t.Parallel()
	h := newHarmed(t)
	path := h.tables[0]
	blocks, _ := h.blocks(t, path)
	lost, names := []string{}, map[uint32]string{}
	for _, i := range []int{1, 2, len(blocks) / 2, len(blocks) - 1} {
		h.change(t, path, flip(blocks[i].at+5))
		lost = append(lost, blocks[i].keys...)
		for number, name := range blocks[i].names {
			names[number] = name
		}
	}
	got, _ := h.recovered(t)
	h.wantRecovered(t, renamed(got, names), messages(lost))
}

func TestRecoverLosesATableWithoutIndexAndSavesTheOthers(t *testing.T) {
	t.Parallel()
	base := newHarmed(t)
	for _, path := range base.tables {
		name := strings.TrimSuffix(base.fs.PathBase(path), tableSuffix) // Pebble's error has no more of a missing one
		blocks, index := base.blocks(t, path)
		var lost tableBlock
		lost.names = map[uint32]string{}
		for _, b := range blocks {
			lost.keys = append(lost.keys, b.keys...)
			for number, name := range b.names {
				lost.names[number] = name
			}
		}
		for what, damage := range map[string]func(h *harmed){
			"footer":  func(h *harmed) { h.change(t, path, func(b []byte) []byte { return flip(len(b) - 20)(b) }) },
			"index":   func(h *harmed) { h.change(t, path, flip(index+10)) },
			"cut":     func(h *harmed) { h.change(t, path, func(b []byte) []byte { return b[:len(b)/2] }) },
			"missing": func(h *harmed) { h.fs.Remove(path) },
		} {
			h := base.copied()
			damage(h)
			if !mentions(h.inspected(t), name) {
				t.Errorf("%s of %s: inspect does not report it: %+v", what, name, h.inspected(t))
			}
			got, results := h.recovered(t)
			h.wantRecovered(t, renamed(got, lost.names), messages(lost.keys))
			if !mentions(results, name) {
				t.Errorf("%s of %s: recover does not report it: %+v", what, name, results)
			}
		}
	}
}

func TestRecoverWithoutManifestReadsAllFiles(t *testing.T) {
	t.Parallel()
	base := newHarmed(t)
	manifest := lastFile(t, base.fs, "MANIFEST-")
	for what, damage := range map[string]func(h *harmed){
		"a flipped bit": func(h *harmed) { h.change(t, manifest, flip(30)) },
		"no manifest":   func(h *harmed) { h.fs.Remove(manifest) },
		"no marker":     func(h *harmed) { h.fs.Remove(lastFile(t, h.fs, "marker.manifest.")) },
		"empty":         func(h *harmed) { h.change(t, manifest, func([]byte) []byte { return nil }) },
	} {
		h := base.copied()
		damage(h)
		if len(h.inspected(t)) == 0 {
			t.Errorf("%s: inspect does not report it", what)
		}
		got, results := h.recovered(t)
		h.wantRecovered(t, got, map[string]bool{"": true}) // states may be older ones
		if len(issuesOf(results)) == 0 {
			t.Errorf("%s: recover does not report it", what)
		}
	}
}

// logRecord is a record of a log: where it is, and its keys.
type logRecord struct {
	tableBlock
}

// logRecords returns the records of a log.
func logRecords(t *testing.T, b []byte, number uint64) (all []logRecord) {
	t.Helper()
	r := newLogReader(logrecord.NewReader, bytes.NewReader(b), number)
	for {
		record := logRecord{tableBlock{at: int(r.Offset()), names: map[uint32]string{}}}
		next, err := r.Next()
		if err != nil {
			return all
		}
		batch, err := io.ReadAll(next)
		if err != nil {
			t.Fatal(err)
		}
		record.end = int(r.Offset())
		for entries := batchrepr.Read(batch); ; {
			_, key, value, ok, err := entries.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			record.add(key, value)
		}
		all = append(all, record)
	}
}

// logNumberOf returns the number in the name of a log.
func logNumberOf(path string) (number uint64) {
	for _, c := range strings.TrimSuffix(filepath.Base(path), ".log") {
		number = 10*number + uint64(c-'0')
	}
	return number
}

func TestRecoverReadsTheLogBehindDamage(t *testing.T) {
	t.Parallel()
	base := newHarmed(t)
	whole := readAll(t, base.fs, base.log)
	records := logRecords(t, whole, logNumberOf(base.log))
	for _, damage := range []struct{ at, end int }{{100, 101}, {5000, 5400}, {30_000, 34_000}, {20_000, 60_000}} {
		resumes := (damage.end-1)/logBlock*logBlock + logBlock // records that begin in the same block are lost too
		var lost tableBlock
		lost.names = map[uint32]string{}
		for _, r := range records {
			if r.at < resumes && damage.at < r.end {
				lost.keys = append(lost.keys, r.keys...)
				for number, name := range r.names {
					lost.names[number] = name
				}
			}
		}
		h := base.copied()
		h.change(t, base.log, func(b []byte) []byte {
			copy(b[damage.at:damage.end], bytes.Repeat([]byte{0x77}, damage.end-damage.at))
			return b
		})
		wantCorrupt(t, h.copied().fs, base.fs.PathBase(base.log))
		got, results := h.recovered(t)
		h.wantRecovered(t, renamed(got, lost.names), messages(lost.keys))
		if !mentions(results, base.fs.PathBase(base.log)) {
			t.Errorf("damage at %v: recover does not report it: %+v", damage, results)
		}
	}
}

var errEnough = errors.New("enough")

func TestRecoverRefusesUnsuitableDirectories(t *testing.T) {
	dir, full := t.TempDir(), t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	send(t, s, "m")
	err = Recover(t.Context(), dir, filepath.Join(t.TempDir(), "new"), nil)
	if held, ok := errors.AsType[*HeldError](err); !ok || !errors.Is(err, store.ErrUnavailable) || held.Holder == "" {
		t.Errorf("of a store that is open: %v, want a HeldError with the holder", err)
	}
	err = Inspect(t.Context(), dir, nil)
	if held, ok := errors.AsType[*HeldError](err); !ok || held.Holder == "" {
		t.Errorf("inspect of a store that is open: %v, want a HeldError with the holder", err)
	}
	s.Close()
	if err := os.WriteFile(filepath.Join(full, "letter.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{full, dir, filepath.Join(dir, "new"), filepath.Join(link, "new"), filepath.Dir(dir)} {
		if err := Recover(t.Context(), dir, target, nil); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("into %s: %v, want ErrInvalid", target, err)
		}
	}
	if err := Recover(t.Context(), full, filepath.Join(t.TempDir(), "new"), nil); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("of no store: %v, want ErrUnsupported", err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	around := t.TempDir()
	if err := Recover(ended, dir, filepath.Join(around, "new"), nil); !errors.Is(err, errEnough) {
		t.Errorf("after the end of its context: %v, want the cause", err)
	}
	if left, err := os.ReadDir(around); err != nil || len(left) > 0 {
		t.Errorf("a recovery that ended early has left %v, %v", left, err)
	}
	target := filepath.Join(t.TempDir(), "new")
	if err := Recover(t.Context(), dir, target, func(store.CheckResult) {}); err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(target); err != nil ||
		slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.IsDir() }) {
		t.Errorf("the new directory holds %v, %v", names, err)
	}
	if s, err = Open(target); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := listed(t, s, "q", store.StateReady); len(got) != 1 {
		t.Errorf("the new store has %v", got)
	}
}

func TestCheckReportsADamagedBlockAndOtherQueuesGoOn(t *testing.T) {
	t.Parallel()
	h := newHarmed(t)
	path := h.tables[0]
	name := h.fs.PathBase(path)
	blocks, _ := h.blocks(t, path)
	for _, b := range blocks { // all that hold messages of queue a and nothing else
		if !slices.ContainsFunc(b.keys, func(key string) bool {
			number, kind, _ := splitKey([]byte(key))
			return number != 2 || kind != kindMessage
		}) {
			h.change(t, path, flip(b.at+20))
		}
	}
	s := openOn(t, h.fs, h.clock)
	defer s.Close()
	_, err := s.Claim(t.Context(), "a", store.ClaimRequest{Max: 100, Lease: time.Minute})
	named := err != nil && strings.Contains(err.Error(), strings.TrimSuffix(name, ".sst"))
	if !errors.Is(err, store.ErrCorrupt) || !named || !strings.Contains(err.Error(), "--recover") {
		t.Errorf("claim returns %v, want ErrCorrupt with %s and what to do", err, name)
	}
	for _, queue := range []string{"b", "c", "d"} {
		if _, err := s.Stats(t.Context(), queue); err != nil {
			t.Errorf("stats of queue %s returns %v", queue, err)
		}
		if _, err := s.Send(t.Context(), queue, []store.Outgoing{{Message: store.Message{ID: "new"}}}); err != nil {
			t.Errorf("send to queue %s returns %v", queue, err)
		}
	}
	if c, err := s.Claim(t.Context(), "c", store.ClaimRequest{Max: 10, Lease: time.Minute}); err != nil ||
		len(c.Messages) != 10 {
		t.Errorf("claim from queue c returns %d messages, %v", len(c.Messages), err)
	}
	results := issuesOf(checked(t, s))
	if !mentions(results, name) {
		t.Errorf("results %+v, want the file", results)
	}
}

func TestRecoverOfANumberWithoutNameLeavesOtherNamesAlone(t *testing.T) {
	t.Parallel()
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	places(t, s)
	name := recoveredName(s.queues["q"].number)
	if _, err := s.Send(t.Context(), name, []store.Outgoing{{Message: store.Message{ID: "mine"}}}); err != nil {
		t.Fatal(err)
	}
	raw{t, s, 0}.remove(appendIDKey(nil, 0, kindName, "q"))
	s.Close()
	s = recoveredStore(t, fs, clock)
	defer s.Close()
	if got := live(t, s, name); !maps.Equal(got, map[string]store.State{"mine": store.StateReady}) {
		t.Errorf("queue %s has %v", name, got)
	}
	wantPlaces(t, s, name+"-again", nil)
	wantSound(t, s)
}
