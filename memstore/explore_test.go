package memstore

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// The explorer visits all histories of three messages of two keys, two workers and a clock, up to a number of steps. No
// key may have two messages in the hands of workers, and whenever a message may start, a claim takes it and a waiter
// knows of it.

const (
	exploredLease = 10 * time.Millisecond
	exploredTick  = 5 * time.Millisecond
)

var exploredKeys = map[string]string{"a": "k", "b": "k", "c": "l"}

// step is one step of a history: by the worker of that number, or of the message of that id.
type step struct {
	what   string
	worker int
	id     string
}

// hand is a message that a worker has claimed, as the store must count it.
type hand struct {
	store.Receipt
	key      string
	worker   int // -1 after a crash
	deadline int64
	over     bool // it is settled, or its worker has learned that it is lost
}

// explored is a store after a history.
type explored struct {
	s     *Store
	clock *ManualClock
	hands []*hand
	wrong string // what is wrong with the store, or ""
}

func newExplored(t *testing.T, limits store.KeyFlow) explored {
	clock := NewManualClock(time.UnixMilli(1_000_000))
	x := explored{s: New(WithClock(clock)), clock: clock}
	if err := x.s.SetFlow(t.Context(), "q", store.Flow{Key: limits}, nil); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *explored) queue() *queue   { return x.s.data.queues["q"] }
func (x *explored) now() int64      { return x.clock.Now().UnixMilli() }
func (x *explored) failure() string { return x.wrong }

// hand returns what a worker has in its hands, as far as it knows.
func (x *explored) hand(worker int) *hand {
	i := slices.IndexFunc(x.hands, func(h *hand) bool { return h.worker == worker })
	if i < 0 {
		return nil
	}
	return x.hands[i]
}

// world is a store with a concurrency of keys after a history.
type world struct {
	explored
	done []step // of steps that happen once
	bug  func(w *world, q *queue, s step)
}

func newWorld(t *testing.T, bug func(*world, *queue, step)) *world {
	return &world{explored: newExplored(t, store.KeyFlow{Concurrency: 1}), bug: bug}
}

func (h *hand) live(now int64) bool { return !h.over && h.deadline > now }

// steps returns what can happen next.
func (w *world) steps() (all []step) {
	for worker := range 2 {
		if h := w.hand(worker); h == nil {
			all = append(all, step{what: "claim", worker: worker})
		} else {
			for _, what := range []string{"ack", "nack", "release", "extend", "crash"} {
				all = append(all, step{what: what, worker: worker})
			}
		}
	}
	for id := range exploredKeys {
		once := "send"
		if w.did("send", id) {
			once = "cancel"
		}
		if !w.did(once, id) {
			all = append(all, step{what: once, id: id})
		}
	}
	if w.did("send", "a") && !w.did("follow", "a") {
		all = append(all, step{what: "follow", id: "a"})
	}
	return append(all, step{what: "tick"})
}

func (w *world) did(what, id string) bool { return slices.Contains(w.done, step{what: what, id: id}) }

func (w *world) take(t *testing.T, s step) {
	ctx, h := t.Context(), w.hand(s.worker)
	message := store.Outgoing{Message: store.Message{ID: s.id, Key: exploredKeys[s.id], MaxAttempts: 2}}
	var err error
	switch s.what {
	case "send":
		_, err = w.s.Send(ctx, "q", []store.Outgoing{message})
	case "follow":
		message.Key, message.OnDuplicate.Mode = "l", store.DuplicateFollow
		_, err = w.s.Send(ctx, "q", []store.Outgoing{message})
	case "cancel":
		_, err = w.s.Cancel(ctx, "q", store.CancelRequest{IDs: []string{s.id}})
	case "tick":
		w.clock.Advance(exploredTick)
	case "claim":
		var c store.Claim
		if c, err = w.s.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: exploredLease}); len(c.Messages) == 1 {
			w.started(c, s.worker)
		}
	case "extend":
		var r []store.ExtendResult
		r, err = w.s.Extend(ctx, "q", []store.Extension{{Lease: h.Lease, For: exploredLease}})
		if r[0].Err != nil {
			h.over, h.worker = true, -1
		} else {
			h.deadline = r[0].Deadline.UnixMilli()
		}
	case "crash":
		h.worker = -1
	default:
		actions := map[string]store.Action{"ack": store.Ack, "nack": store.Nack, "release": store.Release}
		settlement := store.Settlement{Receipt: h.Receipt, Action: actions[s.what]}
		if s.what == "nack" {
			settlement.Delay = exploredTick
		}
		_, err = w.s.Settle(ctx, "q", []store.Settlement{settlement})
		h.over, h.worker = true, -1
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.id != "" {
		w.done = append(w.done, s)
	}
	if w.bug != nil {
		w.bug(w, w.s.data.queues["q"], s)
	}
	w.hands = slices.DeleteFunc(w.hands, func(h *hand) bool { return h.worker < 0 && !h.live(w.now()) })
}

// started notes the message of a claim, which must be of a key that no worker has in hands.
func (w *world) started(c store.Claim, worker int) {
	m := c.Messages[0]
	for _, h := range w.hands {
		if h.live(w.now()) && (h.key == m.Key || h.ID == m.ID && !w.did("cancel", m.ID)) {
			w.wrong = fmt.Sprintf("message %s of key %s starts while %s is leased", m.ID, m.Key, h.ID)
		}
	}
	w.hands = append(w.hands, &hand{Receipt: m.Receipt, key: m.Key, worker: worker, deadline: c.Deadline.UnixMilli()})
}

// text describes the state, so that equal texts have equal futures.
func (w *world) text() string {
	q, now := w.s.data.queue("q"), w.now()
	var b strings.Builder
	var dues []int64 // the ones in the past count only by their order
	for _, m := range q.messages {
		dues = append(dues, m.due)
	}
	slices.Sort(dues)
	dues = slices.Compact(dues)
	rank := func(due int64) int64 {
		if due > now {
			return due - now + 100
		}
		return int64(slices.Index(dues, due))
	}
	lines := []string{}
	for _, m := range q.messages {
		lines = append(lines, fmt.Sprint(m.ID, m.Key, rank(m.due), m.attempts, m.deadReason, m.follows, m.leasedKey,
			m.lease != nil, q.flow.keys.Has(m.inLane())))
	}
	for _, h := range w.hands {
		l := q.leases[h.Lease]
		_, isMember := w.member(l, h)
		lines = append(lines,
			fmt.Sprint("hand", h.ID, h.key, h.worker, max(0, h.deadline-now), h.over, l != nil, isMember))
		if l != nil {
			lines[len(lines)-1] += fmt.Sprint(len(l.members), len(l.cancelled), max(0, l.deadline-now))
		}
	}
	slices.Sort(lines)
	done := []string{}
	for _, s := range w.done {
		done = append(done, s.what+s.id)
	}
	slices.Sort(done)
	k, l := q.flow.keys.Key(q.micros, "k"), q.flow.keys.Key(q.micros, "l")
	fmt.Fprint(&b, lines, done, q.flow.counted, k.Leased, k.Waiting, l.Leased, l.Waiting, len(q.leases))
	return b.String()
}

func (w *world) member(l *lease, h *hand) (*message, bool) {
	if l == nil || l.members[h.ID] == nil || l.members[h.ID].epoch != h.Epoch {
		return nil, false
	}
	return l.members[h.ID], true
}

// probe checks that a claim starts exactly what may start, and that waiters know of it. The world is of no use then.
func (w *world) probe(t *testing.T) {
	q, now := w.s.data.queue("q"), w.now()
	q.tell(w.clock.Now())
	next := q.next()
	if _, err := w.s.Claim(t.Context(), "q", store.ClaimRequest{Max: 9, Ahead: 9, Lease: exploredLease}); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for _, m := range q.messages {
		if m.state(now) == store.StateReady {
			want[m.Key] = 1
		}
	}
	waits := len(want) > 0
	for _, h := range w.hands {
		if h.live(now) {
			delete(want, h.key)
		}
	}
	c, err := w.s.Claim(t.Context(), "q", store.ClaimRequest{Max: 9, Lease: exploredLease})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, m := range c.Messages {
		got[m.Key]++
	}
	switch {
	case fmt.Sprint(got) != fmt.Sprint(want):
		w.wrong = fmt.Sprintf("messages by key that start: %v, want %v", got, want)
	case len(got) > 0 && next > q.micros || waits && next == never:
		w.wrong = fmt.Sprintf("messages by key that may start: %v, and a waiter sleeps for %d µs", got, next-q.micros)
	}
}

// explorable is an explored store that knows its next steps and how to take them.
type explorable interface {
	steps() []step // that can happen next
	take(t *testing.T, s step)
	text() string       // different for different states
	probe(t *testing.T) // looks whether the store does as it should
	failure() string
}

// explore visits all histories of up to depth steps and returns the number of states, or the first history that ends in
// a wrong state.
func explore(t *testing.T, depth int, begin func() explorable) (states int, wrong string) {
	seen := map[string]bool{}
	histories := [][]step{nil}
	for range depth + 1 {
		var longer [][]step
		for _, history := range histories {
			w := begin()
			for _, s := range history {
				w.take(t, s)
			}
			text := w.text()
			if seen[text] && w.failure() == "" {
				continue
			}
			seen[text] = true
			next := w.steps()
			if w.failure() == "" {
				w.probe(t)
			}
			if w.failure() != "" {
				return len(seen), fmt.Sprintf("%+v: %s", history, w.failure())
			}
			for _, s := range next {
				longer = append(longer, append(slices.Clip(slices.Clone(history)), s))
			}
		}
		histories = longer
	}
	return len(seen), ""
}

func TestNoHistoryExceedsTheConcurrencyOfAKeyOrGetsStuck(t *testing.T) {
	depth := 8
	if os.Getenv("LATER_LONG") != "" {
		depth = 11
	}
	states, wrong := explore(t, depth, func() explorable { return newWorld(t, nil) })
	if wrong != "" {
		t.Fatal(wrong)
	}
	t.Logf("%d states", states)
}

// TestTheExplorerFindsSeededBugs explores stores that each break one rule.
func TestTheExplorerFindsSeededBugs(t *testing.T) {
	for name, bug := range map[string]func(w *world, q *queue, s step){
		"a cancel of a leased message frees its slot at once": func(_ *world, q *queue, s step) {
			for _, l := range q.leases {
				if s.what == "cancel" {
					q.freeCancelled(l)
					l.cancelled = nil
				}
			}
		},
		"an extend that loses a message frees no slot": func(w *world, q *queue, s step) {
			for _, h := range w.hands {
				if h.over && s.what == "extend" {
					q.flow.keys.Hold(q.micros, h.key, 1)
				}
			}
		},
		"a settle frees no slot": func(w *world, q *queue, s step) {
			for _, h := range w.hands {
				if h.over && s.what == "ack" {
					q.flow.keys.Hold(q.micros, h.key, 1)
				}
			}
		},
		"a refused settle frees a slot of a lease that has ended": func(w *world, q *queue, s step) {
			for _, h := range w.hands {
				if h.over && (s.what == "ack" || s.what == "nack") && h.deadline <= w.now() {
					q.flow.keys.Free(q.micros, h.key, 1)
				}
			}
		},
		"a worker that crashes frees its slot before the end of its lease": func(w *world, q *queue, s step) {
			for _, h := range w.hands {
				if h.worker < 0 && s.what == "crash" {
					q.flow.keys.Free(q.micros, h.key, 1)
				}
			}
		},
		"a successor takes the slot of its own key": func(_ *world, q *queue, s step) {
			if m := q.messages["a"]; s.what == "follow" && m != nil && m.follows {
				q.flow.keys.Free(q.micros, m.leasedKey, 1)
				m.leasedKey = m.Key
				q.flow.keys.Hold(q.micros, m.Key, 1)
			}
		},
		"a message that is released is not sorted again": func(_ *world, q *queue, s step) {
			if s.what == "release" {
				q.flow.unsorted = newIndex()
			}
		},
		"a limit of a key is forgotten when the key is idle": func(_ *world, q *queue, s step) {
			for _, key := range []string{"k", "l"} {
				if state := q.flow.keys.Key(q.micros, key); s.what == "send" && state.Waiting == 0 {
					q.flow.keys.Free(q.micros, key, state.Leased)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if states, wrong := explore(t, 8, func() explorable { return newWorld(t, bug) }); wrong == "" {
				t.Errorf("it is not found in %d states", states)
			} else {
				t.Log(wrong)
			}
		})
	}
}
