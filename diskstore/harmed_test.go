package diskstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// harmed is a store with messages in tables and messages in its log only, and a list of all its messages.
type harmed struct {
	fs     *vfs.MemFS
	clock  *manualClock
	all    map[string]map[string]store.State // by queue
	tables []string
	log    string
}

// theHarmed is created once.
var theHarmed struct {
	sync.Mutex
	*harmed
}

// newHarmed returns a store of some tables, each with some blocks, after a crash.
func newHarmed(t *testing.T) *harmed {
	t.Helper()
	theHarmed.Lock()
	defer theHarmed.Unlock()
	if theHarmed.harmed == nil {
		theHarmed.harmed = makeHarmed(t)
	}
	return theHarmed.copied()
}

func makeHarmed(t *testing.T) *harmed {
	t.Helper()
	h := &harmed{fs: vfs.NewCrashableMem(), clock: newManualClock(), all: map[string]map[string]store.State{}}
	s := openOn(t, h.fs, h.clock)
	rng := rand.New(rand.NewPCG(1, 2))
	payload := func() []byte {
		b := make([]byte, 200)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	send := func(queue string, n int, due time.Duration, prefix string) {
		var msgs []store.Outgoing
		for i := range n {
			msgs = append(msgs, store.Outgoing{Message: store.Message{ID: fmt.Sprintf("%s%04d", prefix, i), Payload: payload()},
				Due: store.Due{Delay: due}})
		}
		for some := range slices.Chunk(msgs, 10) {
			if _, err := s.Send(t.Context(), queue, some); err != nil {
				t.Fatal(err)
			}
		}
	}
	flush := func() {
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	settle := func(queue string, n int, action store.Action) {
		c, err := s.Claim(t.Context(), queue, store.ClaimRequest{Max: n, Lease: time.Hour})
		if err != nil || len(c.Messages) != n {
			t.Fatal(err, len(c.Messages))
		}
		for _, m := range c.Messages {
			if action == 0 {
				break
			}
			if _, err := s.Settle(t.Context(), queue,
				[]store.Settlement{{Receipt: m.Receipt, Action: action, Delay: time.Hour, Reason: "no"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	send("deleted", 50, 0, "x")
	send("a", 800, 0, "a")
	send("b", 400, time.Hour, "b")
	flush()
	settle("a", 100, store.Ack)
	settle("a", 50, store.Bury)
	settle("a", 30, store.Nack)
	settle("a", 40, 0)
	if err := s.Delete(t.Context(), "deleted"); err != nil {
		t.Fatal(err)
	}
	send("c", 200, 0, "c")
	flush()
	send("d", 300, 0, "d") // in the log only
	settle("d", 20, store.Ack)
	settle("d", 20, 0)
	for _, queue := range []string{"a", "b", "c", "d"} {
		h.all[queue] = live(t, s, queue)
	}
	crashed := same(h.fs)
	s.Close()
	h.fs = crashed
	h.log = lastFile(t, h.fs, ".log")
	d := directory{"later", h.fs}
	tables, err := d.readTables(&readOnlyFS{FS: h.fs, logs: map[string]bool{}})
	if err != nil || len(tables) == 0 {
		t.Fatalf("the store has the tables %v, %v", tables, err)
	}
	for _, name := range tables {
		h.tables = append(h.tables, h.fs.PathJoin("later", name))
	}
	return h
}

// copied returns the same store on a disk of its own.
func (h *harmed) copied() *harmed {
	c := *h
	c.fs = same(h.fs)
	return &c
}

// change changes a file.
func (h *harmed) change(t *testing.T, path string, f func(b []byte) []byte) {
	t.Helper()
	writeAll(t, h.fs, path, f(readAll(t, h.fs, path)))
}

func flip(at int) func(b []byte) []byte {
	return func(b []byte) []byte { b[at] ^= 0x20; return b }
}

// files returns the content of the directory.
func (h *harmed) files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range filesOf(t, h.fs, "") {
		all[path] = string(readAll(t, h.fs, path))
	}
	return all
}

// recovered recovers the store, and returns the messages of each queue with the results. Nothing in the damaged
// directory may change, and the new store must be sound.
func (h *harmed) recovered(t *testing.T) (all map[string]map[string]store.State, results []store.CheckResult) {
	t.Helper()
	before := h.files(t)
	err := recoverStore(t.Context(), directory{"later", h.fs}, directory{"new", h.fs},
		func(f store.CheckResult) { results = append(results, f) })
	if err != nil {
		t.Fatal(err)
	}
	if after := h.files(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("the damaged directory was changed")
	}
	s, err := Open("new", withFS(h.fs), WithClock(h.clock))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if wrong := issuesOf(checked(t, s)); len(wrong) > 0 {
		t.Errorf("results of the new store: %+v", wrong)
	}
	names, _, err := s.Queues(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]map[string]store.State{}
	for _, name := range names {
		all[name] = live(t, s, name)
	}
	return all, results
}

// inspected returns the results of Inspect that are worse than a note.
func (h *harmed) inspected(t *testing.T) (results []store.CheckResult) {
	t.Helper()
	before := h.files(t)
	if err := inspect(t.Context(), directory{"later", h.fs},
		func(f store.CheckResult) { results = append(results, f) }); err != nil {
		t.Fatal(err)
	}
	if after := h.files(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("the damaged directory was changed")
	}
	return issuesOf(results)
}

func mentions(all []store.CheckResult, text string) bool {
	return slices.ContainsFunc(all, func(f store.CheckResult) bool { return strings.Contains(f.Text, text) })
}

// wantRecovered checks that no other messages than the given ones are lost.
func (h *harmed) wantRecovered(t *testing.T, got map[string]map[string]store.State, lost map[string]bool) {
	t.Helper()
	for queue, want := range h.all {
		for id, state := range want {
			if state == store.StateLeased { // leases are not recovered
				state = store.StateReady
			}
			switch now, ok := got[queue][id]; {
			case !ok && !lost[queue+" "+id]:
				t.Errorf("%s of queue %s was %s, was not damaged, and is lost", id, queue, state)
			case ok && len(lost) == 0 && now != state:
				t.Errorf("%s of queue %s was %s and is %s", id, queue, state, now)
			}
		}
	}
}

// tableBlock is a block of a table, and the keys in it.
type tableBlock struct {
	at, end int
	keys    []string
	names   map[uint32]string // of queues
}

// blocks returns the data blocks of a table, and where its index begins.
func (h *harmed) blocks(t *testing.T, path string) (all []tableBlock, index int) {
	t.Helper()
	d := directory{"later", h.fs}
	table, err := d.openTable(h.fs.PathBase(path))
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	layout, err := table.Layout()
	if err != nil {
		t.Fatal(err)
	}
	it, err := table.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	kv := it.First()
	err = eachBlock(table, func(data block.Handle, _, to []byte) {
		b := tableBlock{at: int(data.Offset), end: int(data.Offset + data.Length), names: map[uint32]string{}}
		for ; kv != nil && string(kv.K.UserKey) < string(to); kv = it.Next() {
			value, _, err := kv.Value(nil)
			if err != nil {
				t.Fatal(err)
			}
			b.add(kv.K.UserKey, value)
		}
		all = append(all, b)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, int(layout.Index[0].Offset)
}

func (b *tableBlock) add(key, value []byte) {
	b.keys = append(b.keys, string(key))
	if number, kind, ok := splitKey(key); ok && number == 0 && kind == kindName && len(value) == 4 {
		b.names[numberOf(string(value))] = string(key[prefixLength:])
	}
}

// messages returns the messages among keys.
func messages(keys []string) map[string]bool {
	names := map[uint32]string{2: "a", 3: "b", 4: "c", 5: "d"} // in order of creation
	all := map[string]bool{}
	for _, key := range keys {
		if number, kind, _ := splitKey([]byte(key)); kind == kindMessage {
			all[names[number]+" "+key[prefixLength:]] = true
		}
	}
	return all
}

// renamed puts queues that lost their names back under their old names.
func renamed(got map[string]map[string]store.State, lost map[uint32]string) map[string]map[string]store.State {
	for number, name := range lost {
		if messages, ok := got[fmt.Sprintf("recovered-%d", number)]; ok {
			got[name] = messages
		}
	}
	return got
}
