package diskstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func TestSalvageOfASoundStoreIsACopy(t *testing.T) {
	t.Parallel()
	h := newHarmed(t)
	got, told := h.salvaged(t)
	h.wantSaved(t, got, nil)
	if _, there := got["deleted"]; there || len(got) != len(h.all) {
		t.Errorf("the queues are %v", got)
	}
	for queue, want := range h.all {
		if len(got[queue]) != len(want) {
			t.Errorf("queue %s has %d messages, want %d", queue, len(got[queue]), len(want))
		}
	}
	if wrong := bad(told); len(wrong) > 0 {
		t.Errorf("it tells %+v", wrong)
	}
}

func TestSalvageSavesAllButADamagedBlock(t *testing.T) {
	t.Parallel()
	base := newHarmed(t)
	for _, path := range base.tables {
		name := base.fs.PathBase(path)
		table, err := openTable(base.fs, "later", name)
		if err != nil {
			t.Fatal(err)
		}
		if len(table.data) < 3 || len(table.lost) > 0 {
			t.Fatalf("%s has %d blocks, %v lost", name, len(table.data), table.lost)
		}
		for i, e := range table.data {
			if i%20 != 0 && i != len(table.data)-1 {
				continue
			}
			changes, _, err := table.read(e)
			if err != nil {
				t.Fatal(err)
			}
			h := base.copied()
			h.change(t, path, flip(int(e.at+(e.end-e.at)/2)))
			if !mentions(h.inspected(t), name) {
				t.Errorf("inspect says nothing of block %d of %s", i, name)
			}
			got, told := h.salvaged(t)
			h.wantSaved(t, nameless(got, changes), h.of(changes))
			if !mentions(told, name) {
				t.Errorf("salvage says nothing of block %d of %s", i, name)
			}
		}
		table.close()
	}
}

func TestSalvageFindsTheBlocksOfATableWithoutIndex(t *testing.T) {
	t.Parallel()
	base := newHarmed(t)
	for _, path := range base.tables {
		name := base.fs.PathBase(path)
		table, err := openTable(base.fs, "later", name)
		if err != nil {
			t.Fatal(err)
		}
		table.close()
		size := int(table.size)
		for what, damage := range map[string]func(b []byte) []byte{
			"footer": flip(size - 20),
			"index":  flip(int(table.others[0].at) + 10),
			"cut":    func(b []byte) []byte { return b[:table.data[len(table.data)-1].end+10] },
		} {
			h := base.copied()
			h.change(t, path, damage)
			if !mentions(h.inspected(t), name) {
				t.Errorf("%s of %s: inspect says nothing", what, name)
			}
			got, told := h.salvaged(t)
			h.wantSaved(t, got, nil)
			if !mentions(told, name) {
				t.Errorf("%s of %s: salvage says nothing: %+v", what, name, told)
			}
		}
		// Both the index and a block: what is behind the block is found all the same.
		e := table.data[len(table.data)/2]
		changes, _, err := openedRead(t, base, name, e)
		if err != nil {
			t.Fatal(err)
		}
		h := base.copied()
		h.change(t, path, flip(size-20))
		h.change(t, path, flip(int(e.at)+30))
		got, _ := h.salvaged(t)
		h.wantSaved(t, nameless(got, changes), h.of(changes))
	}
}

func openedRead(t *testing.T, h *harmed, name string, e extent) ([]change, []span, error) {
	t.Helper()
	table, err := openTable(h.fs, "later", name)
	if err != nil {
		t.Fatal(err)
	}
	defer table.close()
	return table.read(e)
}

func TestSalvageWithoutManifestReadsAllFiles(t *testing.T) {
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
			t.Errorf("%s: inspect says nothing", what)
		}
		got, _ := h.salvaged(t)
		h.wantSaved(t, got, nil)
	}
}

func TestSalvageWithoutATableSavesTheOthers(t *testing.T) {
	t.Parallel()
	base := newHarmed(t)
	for _, path := range base.tables {
		name := base.fs.PathBase(path)
		table, err := openTable(base.fs, "later", name)
		if err != nil {
			t.Fatal(err)
		}
		var changes []change
		for _, e := range table.data {
			more, _, err := table.read(e)
			if err != nil {
				t.Fatal(err)
			}
			changes = append(changes, more...)
		}
		table.close()
		h := base.copied()
		h.fs.Remove(path)
		wantCorrupt(t, h.fs, name)
		h = base.copied()
		h.fs.Remove(path)
		if !mentions(h.inspected(t), name) {
			t.Errorf("inspect does not miss %s", name)
		}
		got, told := h.salvaged(t)
		h.wantSaved(t, nameless(got, changes), h.of(changes))
		if !mentions(told, name) {
			t.Errorf("salvage does not miss %s", name)
		}
	}
}

// nameless gives queues whose names were lost their old ones.
func nameless(got map[string]map[string]store.State, lost []change) map[string]map[string]store.State {
	for _, c := range lost {
		if number, kind, _ := splitKey(c.key); number == 0 && kind == kindName && len(c.value) == 4 {
			name := fmt.Sprintf("recovered-%d", c.value[3])
			if messages, ok := got[name]; ok {
				got[string(c.key[prefixLength:])] = messages
			}
		}
	}
	return got
}

func TestSalvageReadsTheLogBehindDamage(t *testing.T) {
	t.Parallel()
	base := newHarmed(t)
	whole := readAll(t, base.fs, base.log)
	number, _ := logNumber(base.fs.PathBase(base.log))
	for _, damage := range []extent{{100, 101}, {5000, 5400}, {30_000, 34_000}, {20_000, 60_000}} {
		var lost []change
		r := recordReader{chunkReader: newChunkReader(vfs.NewMemFile(whole), number, true)}
		for {
			record, err := r.record()
			if err != nil {
				break
			}
			if record.at < damage.end && damage.at < record.end {
				changes, _, err := batchChanges(slices.Clone(record.data))
				if err != nil {
					t.Fatal(err)
				}
				lost = append(lost, changes...)
			}
		}
		h := base.copied()
		h.change(t, base.log, func(b []byte) []byte {
			copy(b[damage.at:damage.end], bytes.Repeat([]byte{0x77}, int(damage.end-damage.at)))
			return b
		})
		wantCorrupt(t, h.copied().fs, base.fs.PathBase(base.log))
		got, told := h.salvaged(t)
		h.wantSaved(t, nameless(got, lost), h.of(lost))
		if !mentions(told, base.fs.PathBase(base.log)) {
			t.Errorf("damage at %v: salvage says nothing of the log: %+v", damage, told)
		}
	}
}

// TestNoDamageGoesUnnoticed flips bits anywhere. Then the open fails, or a look at all messages does, or they are
// all there; and Inspect or Salvage lose no message silently.
func TestNoDamageGoesUnnoticed(t *testing.T) {
	t.Parallel()
	rounds := 25
	if os.Getenv("LATER_LONG") != "" {
		rounds = 5000
	}
	base := newHarmed(t)
	paths := append(slices.Clone(base.tables), lastFile(t, base.fs, "MANIFEST-"), base.log)
	for round := range rounds {
		rng := rand.New(rand.NewPCG(uint64(round), 3))
		h := base.copied()
		path := paths[rng.IntN(len(paths))]
		at := 0
		h.change(t, path, func(b []byte) []byte {
			at = rng.IntN(len(b))
			if rng.IntN(10) == 0 {
				return b[:at]
			}
			n := min(len(b)-at, 1+rng.IntN(100))
			for i := range n {
				b[at+i] ^= byte(1 + rng.IntN(255))
			}
			return b
		})
		unnoticed := h.copied()
		s, err := Open("later", withFS(unnoticed.fs), WithClock(h.clock))
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s at %d: open gives %v", path, at, err)
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
		// The last groups of the log may be taken for torn: nothing behind them says that they were synced.
		if missing > 0 && path != base.log {
			t.Errorf("%s at %d: %d messages are missing and nothing says so", path, at, missing)
		}
	}
}

func TestDamagedBlockIsAnErrorWithFileAndAdviceAndOthersGoOn(t *testing.T) {
	t.Parallel()
	h := newHarmed(t)
	path := h.tables[0]
	table, err := openTable(h.fs, "later", h.fs.PathBase(path))
	if err != nil {
		t.Fatal(err)
	}
	table.close()
	for _, e := range table.data { // all that hold messages of queue a and nothing else
		changes, _, err := openedRead(t, h, table.name, e)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(changes, func(c change) bool {
			number, kind, _ := splitKey(c.key)
			return number != 2 || kind != kindMessage
		}) {
			h.change(t, path, flip(int(e.at)+20))
		}
	}
	s := openOn(t, h.fs, h.clock)
	defer s.Close()
	_, err = s.Claim(t.Context(), "a", store.ClaimRequest{Max: 100, Lease: time.Minute})
	if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), strings.TrimSuffix(table.name, ".sst")) || !strings.Contains(err.Error(), "--salvage") {
		t.Errorf("claim gives %v, want ErrCorrupt with %s and what to do", err, table.name)
	}
	for _, queue := range []string{"b", "c", "d"} {
		if _, err := s.Stats(t.Context(), queue); err != nil {
			t.Errorf("queue %s suffers: %v", queue, err)
		}
		if _, err := s.Send(t.Context(), queue, []store.Outgoing{{Message: store.Message{ID: "new"}}}); err != nil {
			t.Errorf("queue %s suffers: %v", queue, err)
		}
	}
	if c, err := s.Claim(t.Context(), "c", store.ClaimRequest{Max: 10, Lease: time.Minute}); err != nil || len(c.Messages) != 10 {
		t.Errorf("queue c gives %d messages, %v", len(c.Messages), err)
	}
	told := bad(examined(t, s, true))
	if !mentions(told, table.name) || slices.ContainsFunc(told, func(f store.Finding) bool { return f.Repaired }) {
		t.Errorf("examine tells %+v, want the file and no repair", told)
	}
}

func TestSalvageRefusesTargetsThatHoldSomething(t *testing.T) {
	dir, full := t.TempDir(), t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	send(t, s, "m")
	if err := Salvage(t.Context(), dir, filepath.Join(t.TempDir(), "new"), nil); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "process") {
		t.Errorf("of a store that is open: %v, want ErrUnavailable with who has it", err)
	}
	s.Close()
	if err := os.WriteFile(filepath.Join(full, "letter.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{full, dir, filepath.Join(dir, "new"), filepath.Dir(dir)} {
		if err := Salvage(t.Context(), dir, target, nil); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("into %s: %v, want ErrInvalid", target, err)
		}
	}
	if err := Salvage(t.Context(), full, filepath.Join(t.TempDir(), "new"), nil); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("of no store: %v, want ErrUnsupported", err)
	}
	target := filepath.Join(t.TempDir(), "new")
	if err := Salvage(t.Context(), dir, target, func(store.Finding) {}); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(target); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := listed(t, s, "q", store.StateReady); len(got) != 1 {
		t.Errorf("the new store has %v", got)
	}
}
