package memstore

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// urgencyWorld is a store with urgencies of messages after a history, beside its own record of the urgency of each
// sorted message, and of the starts that normal messages have let pass.
type urgencyWorld struct {
	*orderWorld
	bug    *urgencyBug
	flow   store.Flow
	values map[string]store.Urgency // of messages as they were sent, by id
	class  map[string]store.Urgency // of the sorted messages, by id
	passed int                      // starts of high that passed normal over
}

// urgencyBug breaks a rule of urgencies before or after each step.
type urgencyBug struct {
	before, after func(w *urgencyWorld, q *queue, s step)
}

// exploredUrgency holds the urgencies with which messages are sent. An edit changes them.
var exploredUrgency = map[string]store.Urgency{"b": store.UrgencyHigh, "c": store.UrgencyHigh}

// newUrgencyWorld returns a store in which high has passed normal over a number of times.
func newUrgencyWorld(t *testing.T, limits store.KeyFlow, passed int, bug *urgencyBug) *urgencyWorld {
	w := &urgencyWorld{orderWorld: newOrderWorld(t, limits.Order, nil), bug: bug, passed: passed,
		flow: store.Flow{Urgency: true, Key: limits}, values: map[string]store.Urgency{},
		class: map[string]store.Urgency{}}
	w.setFlow(t)
	w.queue().flow.keys.RestorePassed(turns.Passed{Normal: passed})
	return w
}

func (w *urgencyWorld) setFlow(t *testing.T) {
	if err := w.s.SetFlow(t.Context(), "q", w.flow, nil); err != nil {
		t.Fatal(err)
	}
}

// steps returns what can happen next. The second worker claims while the first one is busy, since they are alike.
func (w *urgencyWorld) steps() (all []step) {
	for worker := range 2 {
		switch h := w.hand(worker); {
		case h != nil:
			for _, what := range []string{"ack", "nack", "release"} {
				all = append(all, step{what: what, worker: worker})
			}
		case worker == 0 || w.hand(0) != nil:
			all = append(all, step{what: "claim", worker: worker})
		}
	}
	for id := range exploredKeys {
		switch m := w.queue().messages[id]; {
		case m == nil && w.counts["send"+id] < 2:
			all = append(all, step{what: "send", id: id})
		case m == nil || m.lease != nil:
		case w.counts["edit"+id] < 1:
			all = append(all, step{what: "edit", id: id})
			fallthrough
		case id == "a" && w.counts["cancel"+id] < 1:
			all = append(all, step{what: "cancel", id: id})
		}
	}
	if w.flow.Urgency && w.counts["calm"] < 1 {
		all = append(all, step{what: "calm"})
	} else if !w.flow.Urgency {
		all = append(all, step{what: "urge"})
	}
	return append(all, step{what: "tick"})
}

func (w *urgencyWorld) take(t *testing.T, s step) {
	w.remember()
	if w.bug != nil && w.bug.before != nil {
		w.bug.before(w, w.queue(), s)
	}
	w.do(t, s)
	if w.bug != nil && w.bug.after != nil {
		w.bug.after(w, w.queue(), s)
	}
	if s.id != "" || s.what == "calm" {
		w.counts[s.what+s.id]++
	}
	w.hands = slices.DeleteFunc(w.hands, func(h *hand) bool { return h.worker < 0 && !h.live(w.now()) })
}

func (w *urgencyWorld) do(t *testing.T, s step) {
	m := store.Outgoing{Message: store.Message{ID: s.id, Key: exploredKeys[s.id], Urgency: exploredUrgency[s.id]}}
	switch s.what {
	case "send":
		if w.send(t, m) {
			w.places[s.id] = w.now() * 1000
			if w.order != store.OrderNone { // it is sorted at once
				w.last = max(w.now()*1000, w.last+1)
				w.places[s.id], w.class[s.id] = w.last, w.flow.UrgencyOf(&m.Message)
			}
		}
	case "edit":
		m.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace, KeepDue: true}
		if m.Urgency = store.UrgencyHigh; w.queue().messages[s.id].Urgency == store.UrgencyHigh {
			m.Urgency = store.UrgencyNormal
		}
		if _, sorted := w.class[s.id]; w.send(t, m) && sorted {
			w.class[s.id] = w.flow.UrgencyOf(&m.Message)
		}
	case "calm", "urge":
		w.flow.Urgency = s.what == "urge"
		w.setFlow(t)
	case "claim":
		w.sort(t)
		w.claim(t, s.worker)
	default:
		w.act(t, s)
		delete(w.class, s.id)
	}
}

// send sends a message and reports whether it is in the store. A store without urgencies must refuse an urgent message.
func (w *urgencyWorld) send(t *testing.T, m store.Outgoing) (sent bool) {
	_, err := w.s.Send(t.Context(), "q", []store.Outgoing{m})
	refused := m.Urgency != store.UrgencyNormal && !w.flow.Urgency
	if errors.Is(err, store.ErrInvalid) != refused || err != nil && !refused {
		w.wrong = fmt.Sprintf("send of %q, of urgency %q: %v", m.ID, m.Urgency, err)
	}
	if !refused {
		w.values[m.ID] = m.Urgency
	}
	return !refused
}

// sort does all of a claim but to start messages, and notes the urgencies of messages that are ready.
func (w *urgencyWorld) sort(t *testing.T) {
	w.orderWorld.sort(t)
	for id, m := range w.queue().messages {
		if _, sorted := w.class[id]; m.state(w.now()) == store.StateReady && !sorted {
			w.class[id] = w.flow.UrgencyOf(&m.Message)
		}
	}
}

// heads returns the messages that may start, by their urgency: the next one of a key with an order, or the first one of
// each urgency.
func (w *urgencyWorld) heads() map[store.Urgency][]string {
	heads := map[store.Urgency][]string{}
	for _, key := range []string{"k", "l"} {
		first := map[store.Urgency]string{}
		for id, u := range w.class {
			was := first[u]
			if w.queue().messages[id].Key == key && (was == "" || cmp.Or(cmp.Compare(w.places[id], w.places[was]),
				cmp.Compare(id, was)) < 0) {
				first[u] = id
			}
		}
		if w.order != store.OrderNone {
			next := w.next(key)
			first = map[store.Urgency]string{w.class[next]: next}
		}
		for u, id := range first {
			if id != "" && !w.leased(key) {
				heads[u] = append(heads[u], id)
			}
		}
	}
	return heads
}

// claim claims one message, which must be one that is next, and reports whether there was one.
func (w *urgencyWorld) claim(t *testing.T, worker int) (started bool) {
	heads := w.heads()
	want := store.UrgencyHigh
	mayPass := len(heads[store.UrgencyNormal]) > 0
	if mayPass && w.passed >= 7 || len(heads[want]) == 0 {
		want = store.UrgencyNormal
	}
	c, err := w.s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: exploredLease})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Messages) == 0 {
		if len(heads[want]) > 0 {
			w.wrong = fmt.Sprintf("nothing starts, of %v", heads)
		}
		return false
	}
	m := c.Messages[0]
	if !slices.Contains(heads[want], m.ID) {
		w.wrong = fmt.Sprintf("%s starts, want one of urgency %q of %v", m.ID, want, heads)
	}
	if w.passed++; want == store.UrgencyNormal {
		w.passed = 0
	} else if !mayPass {
		w.passed--
	}
	delete(w.class, m.ID)
	delete(w.holds, m.Key)
	w.hands = append(w.hands, &hand{Receipt: m.Receipt, key: m.Key, worker: worker, deadline: c.Deadline.UnixMilli()})
	return true
}

func (w *urgencyWorld) text() string {
	return fmt.Sprint(w.orderWorld.text(), w.values, w.class, w.passed, w.flow.Urgency)
}

// probe checks that everything that may start does, by urgency, that the counts of keys are right, and that waiters
// know of it. The world is of no use then.
func (w *urgencyWorld) probe(t *testing.T) {
	q := w.queue()
	q.tell(w.clock.Now())
	wakes := q.next()
	w.remember()
	w.sort(t)
	heads := w.heads()
	may := len(heads[store.UrgencyHigh]) + len(heads[store.UrgencyNormal])
	want := store.KeyCounts{Waiting: int64(may)}
	for _, key := range []string{"k", "l"} {
		waits, starts := false, false
		for id := range w.class {
			waits = waits || q.messages[id].Key == key
		}
		for _, ids := range heads {
			starts = starts || slices.ContainsFunc(ids, func(id string) bool { return q.messages[id].Key == key })
		}
		if waits && !starts {
			want.Waiting++
			want.Full++
		}
	}
	if got := q.stats(q.micros / 1000).Flow.Keys; got != want && w.wrong == "" {
		w.wrong = fmt.Sprintf("%+v, want %+v", got, want)
	}
	if wakes == never && want.Waiting > 0 || may > 0 && wakes > q.micros {
		w.wrong = fmt.Sprintf("%d messages may start, and a waiter sleeps for %d µs", may, wakes-q.micros)
	}
	for id, m := range q.messages {
		if m.Urgency != w.values[id] {
			w.wrong = fmt.Sprintf("urgency of %s is %q, want %q", id, m.Urgency, w.values[id])
		}
	}
	for w.wrong == "" && w.claim(t, -1) {
	}
}

// exploreUrgency explores with each number of passed starts that makes a difference.
func exploreUrgency(t *testing.T, limits store.KeyFlow, depth int, bug *urgencyBug) (states int, wrong string) {
	for _, passed := range []int{0, 6} {
		n, wrong := explore(t, depth, func() explorable { return newUrgencyWorld(t, limits, passed, bug) })
		if states += n; wrong != "" {
			return states, wrong
		}
	}
	return states, ""
}

func TestNoHistoryBreaksTheOrderOrTheLimitsOfAKeyWithTwoUrgencies(t *testing.T) {
	depth := 6
	if os.Getenv("LATER_LONG") != "" {
		depth = 8
	}
	for _, limits := range []store.KeyFlow{{Concurrency: 1}, {Order: store.OrderContinue}} {
		states, wrong := exploreUrgency(t, limits, depth, nil)
		if wrong != "" {
			t.Fatalf("%+v: %s", limits, wrong)
		}
		t.Logf("%+v: %d states", limits, states)
	}
}
