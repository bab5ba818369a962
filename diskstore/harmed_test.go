package diskstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// harmed is a store with much in its tables and something in its log only, and what it held.
type harmed struct {
	fs     *vfs.MemFS
	clock  *manualClock
	all    map[string]map[string]store.State // by queue
	tables []string
	log    string
}

// theHarmed is made once: it is the same each time.
var theHarmed struct {
	sync.Mutex
	*harmed
}

// newHarmed gives a store of some tables, each with some blocks, whose machine died.
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
			if _, err := s.Settle(t.Context(), queue, []store.Settlement{{Receipt: m.Receipt, Action: action, Delay: time.Hour, Reason: "no"}}); err != nil {
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
		h.all[queue] = living(t, s, queue)
	}
	crashed := same(h.fs)
	s.Close()
	h.fs = crashed
	h.log = lastFile(t, h.fs, ".log")
	d := directory{"later", h.fs}
	v, err := d.survey()
	if err != nil || len(v.faults) > 0 || len(v.tables) == 0 {
		t.Fatalf("the store is no good: %+v, %v", v, err)
	}
	for _, number := range slices.Sorted(maps.Keys(v.tables)) {
		h.tables = append(h.tables, h.fs.PathJoin("later", tableName(number)))
	}
	return h
}

// copied is the same store on a disk of its own.
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

// files gives all that a directory holds, to see that it is left alone.
func (h *harmed) files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range filesOf(t, h.fs, "") {
		all[path] = string(readAll(t, h.fs, path))
	}
	return all
}

// salvaged salvages, and gives the messages of each queue with what was told. Nothing in the damaged directory
// may change, and the new store must be sound.
func (h *harmed) salvaged(t *testing.T) (all map[string]map[string]store.State, told []store.Finding) {
	t.Helper()
	before := h.files(t)
	err := salvage(t.Context(), directory{"later", h.fs}, directory{"new", h.fs}, func(f store.Finding) { told = append(told, f) })
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
	if wrong := bad(examined(t, s, false)); len(wrong) > 0 {
		t.Errorf("the new store has %+v", wrong)
	}
	names, _, err := s.Queues(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]map[string]store.State{}
	for _, name := range names {
		all[name] = living(t, s, name)
	}
	return all, told
}

// inspected gives what Inspect finds wrong.
func (h *harmed) inspected(t *testing.T) (told []store.Finding) {
	t.Helper()
	if err := inspect(t.Context(), directory{"later", h.fs}, func(f store.Finding) { told = append(told, f) }); err != nil {
		t.Fatal(err)
	}
	return bad(told)
}

func mentions(all []store.Finding, text string) bool {
	return slices.ContainsFunc(all, func(f store.Finding) bool { return strings.Contains(f.Text, text) })
}

// wantSaved sees that nothing but the given messages is lost.
func (h *harmed) wantSaved(t *testing.T, got map[string]map[string]store.State, lost map[string]bool) {
	t.Helper()
	for queue, want := range h.all {
		for id, state := range want {
			switch now, ok := got[queue][id]; {
			case !ok && !lost[queue+" "+id]:
				t.Errorf("%s of queue %s was %s, was not damaged, and is lost", id, queue, state)
			case ok && len(lost) == 0 && now != state:
				t.Errorf("%s of queue %s was %s and is %s", id, queue, state, now)
			}
		}
	}
}

// of gives the messages whose bytes changes hold.
func (h *harmed) of(changes []change) map[string]bool {
	names := map[uint32]string{2: "a", 3: "b", 4: "c", 5: "d"} // in the order in which they were made
	lost := map[string]bool{}
	for _, c := range changes {
		if number, kind, _ := splitKey(c.key); kind == kindMessage {
			lost[names[number]+" "+string(c.key[prefixLength:])] = true
		}
	}
	return lost
}
