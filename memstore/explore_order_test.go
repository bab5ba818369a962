package memstore

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/laterq/later/store"
)

// orderWorld is a store with an order of keys after a history, beside its own record of holds and places. It looks at
// the messages of the store, and not at how the store orders them.
type orderWorld struct {
	explored
	order store.Order
	bug   *orderBug

	holds  map[string]string  // by key: the message that came back or halts the key
	places map[string]int64   // by id: the due time in microseconds, or the order of the send
	last   int64              // place of the last send without a delay
	fence  int64              // of the last claim
	counts map[string]int     // how often each step that happens a few times was done
	was    map[string]message // the messages before the step
	held   map[string]string  // holds before the step
	seeded map[string]string  // what a bug remembers, by id
	hidden index              // messages that a bug does not let a claim sort
}

// orderBug breaks a rule of the order before or after each step.
type orderBug struct {
	before, after func(w *orderWorld, q *queue, s step)
}

func newOrderWorld(t *testing.T, order store.Order, bug *orderBug) *orderWorld {
	return &orderWorld{explored: newExplored(t, store.KeyFlow{Order: order}), order: order, bug: bug,
		holds: map[string]string{}, places: map[string]int64{}, counts: map[string]int{}, seeded: map[string]string{}}
}

// steps returns what can happen next. The second worker claims while the first one is busy, since they are alike.
func (w *orderWorld) steps() (all []step) {
	for worker := range 2 {
		switch h := w.hand(worker); {
		case h != nil:
			for _, what := range []string{"ack", "nack", "release", "bury", "crash"} {
				all = append(all, step{what: what, worker: worker})
			}
		case worker == 0 || w.hand(0) != nil:
			all = append(all, step{what: "claim", worker: worker})
		}
	}
	for id := range exploredKeys {
		m := w.queue().messages[id]
		switch {
		case m == nil && w.counts["send"+id] < 2:
			all = append(all, step{what: "send", id: id}, step{what: "schedule", id: id})
		case m == nil:
		case w.counts["cancel"+id] < 1:
			all = append(all, step{what: "cancel", id: id})
			fallthrough
		default:
			if m.deadReason != "" && w.counts["replay"+id] < 1 {
				all = append(all, step{what: "replay", id: id})
			}
			if m.deadReason == "" && m.lease == nil && id == "a" && w.counts["move"+id] < 1 {
				all = append(all, step{what: "move", id: id})
			}
		}
	}
	if w.halted("k") {
		all = append(all, step{what: "resume"})
	}
	return append(all, step{what: "tick"})
}

func (w *orderWorld) halted(key string) bool {
	m := w.queue().messages[w.holds[key]]
	return m != nil && m.deadReason != ""
}

func (w *orderWorld) take(t *testing.T, s step) {
	w.remember()
	if w.bug != nil && w.bug.before != nil {
		w.bug.before(w, w.queue(), s)
	}
	w.act(t, s)
	if w.bug != nil && w.bug.after != nil {
		w.bug.after(w, w.queue(), s)
	}
	if s.id != "" {
		w.counts[strings.Replace(s.what, "schedule", "send", 1)+s.id]++
	}
	w.hands = slices.DeleteFunc(w.hands, func(h *hand) bool { return h.worker < 0 && !h.live(w.now()) })
}

func (w *orderWorld) act(t *testing.T, s step) {
	ctx, h := t.Context(), w.hand(s.worker)
	m := store.Outgoing{Message: store.Message{ID: s.id, Key: exploredKeys[s.id], MaxAttempts: 2}}
	var err error
	switch s.what {
	case "send":
		w.last = max(w.now()*1000, w.last+1)
		w.places[s.id] = w.last
		_, err = w.s.Send(ctx, "q", []store.Outgoing{m})
	case "schedule":
		m.Due.Delay = exploredTick
		w.places[s.id] = (w.now() + exploredTick.Milliseconds()) * 1000
		_, err = w.s.Send(ctx, "q", []store.Outgoing{m})
	case "move":
		m.Key, m.OnDuplicate = "l", store.OnDuplicate{Mode: store.DuplicateReplace, KeepDue: true}
		w.places[s.id] = w.queue().messages[s.id].due * 1000
		_, err = w.s.Send(ctx, "q", []store.Outgoing{m})
	case "cancel":
		_, err = w.s.Cancel(ctx, "q", store.CancelRequest{IDs: []string{s.id}})
	case "replay":
		w.places[s.id] = w.now() * 1000
		sel := store.Selection{IDs: []string{s.id}, State: store.StateDead}
		_, err = w.s.Replay(ctx, "q", sel, store.Due{})
	case "resume":
		delete(w.holds, "k")
		err = w.s.ResumeKey(ctx, "q", "k")
	case "tick":
		w.clock.Advance(exploredTick)
	case "claim":
		w.sort(t)
		var c store.Claim
		if c, err = w.s.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: exploredLease}); len(c.Messages) == 1 {
			w.started(c, s.worker)
		}
	case "crash":
		h.worker = -1
	default:
		actions := map[string]store.Action{
			"ack": store.Ack, "nack": store.Nack, "release": store.Release, "bury": store.Bury,
		}
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
	w.follow()
}

// sort does all of a claim but to start messages.
func (w *orderWorld) sort(t *testing.T) {
	req := store.ClaimRequest{Max: 9, Ahead: 9, Lease: exploredLease}
	if _, err := w.s.Claim(t.Context(), "q", req); err != nil {
		t.Fatal(err)
	}
	w.follow()
	w.remember()
}

func (w *orderWorld) remember() {
	w.was, w.held = map[string]message{}, map[string]string{}
	for id, m := range w.queue().messages {
		w.was[id] = *m
	}
	for key, id := range w.holds {
		w.held[key] = id
	}
}

// follow finds out from a step that started nothing how the holds and places have changed.
func (w *orderWorld) follow() {
	q := w.queue()
	for key, id := range w.holds {
		if m := q.messages[id]; m == nil || m.Key != key {
			delete(w.holds, key)
		}
	}
	for id, was := range w.was {
		m := q.messages[id]
		if was.lease == nil || m == nil || m.lease != nil {
			continue
		}
		w.places[id] = m.due * 1000
		holds := w.order == store.OrderHalt || w.order == store.OrderContinue && m.deadReason == ""
		if w.holds[was.leasedKey] == "" && holds {
			w.holds[was.leasedKey] = id
		}
	}
}

// next returns the message of a key that starts next if the key has none in the hands of a worker, or "".
func (w *orderWorld) next(key string) (next string) {
	q, now := w.queue(), w.now()
	for id, m := range q.messages {
		if m.Key != key || m.lease != nil || m.deadReason != "" || m.due > now {
			continue
		}
		if holder := w.holds[key]; holder != "" && holder != id {
			continue
		}
		if next == "" || w.places[id] < w.places[next] || w.places[id] == w.places[next] && id < next {
			next = id
		}
	}
	return next
}

func (w *orderWorld) leased(key string) bool {
	return slices.ContainsFunc(w.hands, func(h *hand) bool { return h.key == key && h.live(w.now()) })
}

// started checks the message of a claim.
func (w *orderWorld) started(c store.Claim, worker int) {
	m := c.Messages[0]
	q := w.queue()
	q.messages[m.ID].lease = nil // as it was before it started
	want := w.next(m.Key)
	q.messages[m.ID].lease = q.leases[m.Receipt.Lease]
	switch {
	case w.leased(m.Key):
		w.wrong = fmt.Sprintf("%s starts while another message of key %s is leased", m.ID, m.Key)
	case want != m.ID:
		w.wrong = fmt.Sprintf("%s starts, want %q of key %s", m.ID, want, m.Key)
	case m.Fence <= w.fence:
		w.wrong = fmt.Sprintf("fence is %d after %d", m.Fence, w.fence)
	}
	w.fence = m.Fence
	delete(w.holds, m.Key)
	w.hands = append(w.hands, &hand{Receipt: m.Receipt, key: m.Key, worker: worker, deadline: c.Deadline.UnixMilli()})
}

// text describes the state, so that equal texts have equal futures.
func (w *orderWorld) text() string {
	q, now := w.queue(), w.now()
	var places []int64
	for id := range q.messages {
		places = append(places, w.places[id])
	}
	slices.Sort(places)
	places = slices.Compact(places)
	lines := []string{}
	for id, m := range q.messages {
		lines = append(lines, fmt.Sprint(id, m.Key, slices.Index(places, w.places[id]), max(0, m.due-now), m.attempts,
			m.deadReason, m.leasedKey, m.lease != nil, q.flow.keys.Has(m.inLane())))
	}
	for _, h := range w.hands {
		m := q.messages[h.ID]
		l := q.leases[h.Lease]
		lines = append(lines, fmt.Sprint("hand", h.ID, h.key, h.worker, max(0, h.deadline-now), h.over, l != nil,
			m != nil && m.lease == l && m.epoch == h.Epoch))
		if l != nil {
			lines[len(lines)-1] += fmt.Sprint(len(l.members), len(l.cancelled))
		}
	}
	slices.Sort(lines)
	text := fmt.Sprint(lines, w.counts, w.holds, len(q.leases), max(-1, w.last-now*1000), w.seeded)
	for _, key := range []string{"k", "l"} {
		s := q.flow.keys.Key(q.micros, key)
		text += fmt.Sprint(s.Leased, s.Waiting, s.Holder, s.Halted)
	}
	return text
}

// probe checks that a claim starts the next message of each key, that waiters know of it, and the states of the keys.
// The world is of no use then.
func (w *orderWorld) probe(t *testing.T) {
	q := w.queue()
	q.tell(w.clock.Now())
	wakes := q.next()
	w.remember()
	w.sort(t)
	want, waits := []string{}, false
	for _, key := range []string{"k", "l"} {
		s := q.flow.keys.Key(q.micros, key)
		if s.Holder != w.holds[key] || s.Halted != w.halted(key) {
			w.wrong = fmt.Sprintf("key %s has the holder %q, halted %v: want %q, %v", key, s.Holder, s.Halted,
				w.holds[key], w.halted(key))
		}
		waits = waits || s.Waiting > 0 && !s.Halted
		if next := w.next(key); next != "" && !w.leased(key) {
			want = append(want, next)
		}
	}
	c, err := w.s.Claim(t.Context(), "q", store.ClaimRequest{Max: 9, Lease: exploredLease})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, m := range c.Messages {
		got = append(got, m.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	switch {
	case w.wrong != "":
	case !slices.Equal(got, want):
		w.wrong = fmt.Sprintf("%v start, want %v", got, want)
	case len(got) > 0 && wakes > q.micros || waits && wakes == never:
		w.wrong = fmt.Sprintf("%v may start, and a waiter sleeps for %d µs", got, wakes-q.micros)
	}
}

// exploreOrder is explore for an order of keys.
func exploreOrder(t *testing.T, order store.Order, depth int, bug *orderBug) (states int, wrong string) {
	return explore(t, depth, func() explorable { return newOrderWorld(t, order, bug) })
}

func TestNoHistoryBreaksTheOrderOfAKeyOrGetsStuck(t *testing.T) {
	depth := 6
	if os.Getenv("LATER_LONG") != "" {
		depth = 8
	}
	for _, order := range []store.Order{store.OrderContinue, store.OrderHalt} {
		states, wrong := exploreOrder(t, order, depth, nil)
		if wrong != "" {
			t.Fatal(order, wrong)
		}
		t.Logf("%s: %d states", order, states)
	}
}
