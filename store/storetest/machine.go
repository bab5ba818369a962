package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laterq/later/store"
)

// longChecks is the number of histories in a long run, instead of 100.
const longChecks = "3000"

// RunStateMachine runs random histories against an engine and compares it with a simple model.
//
// A history has all operations but Wait, by two consumers and with a clock that jumps. Every result, and the whole
// state after every step, must be equal to the model's. A failure is shrunk to the shortest history that shows it.
// -rapid.checks and -rapid.steps make the search longer, as does LATER_LONG in the environment. A harness without an
// exact clock is skipped.
func RunStateMachine(t *testing.T, open func(t *testing.T) Harness) {
	h := open(t)
	if h.Advance == nil || !h.Exact {
		t.Skip("this engine's clock cannot be moved exactly")
	}
	checks := flag.Lookup("rapid.checks")
	if os.Getenv("LATER_LONG") != "" && checks.Value.String() == checks.DefValue {
		if err := flag.Set("rapid.checks", longChecks); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		m := &machine{
			t: t, h: h, ctx: t.Context(), queue: newQueueName(), grouped: map[string]bool{},
			known: map[string]*store.Info{},
		}
		m.begin(r)
		for range 5 { // rapid's default number of steps rarely reaches deep states
			r.Repeat(rapid.StateMachineActions(m))
		}
		m.ok(r, h.Store.Delete(m.ctx, m.queue))
	})
}

// machine is one history. Its exported methods are the steps, which rapid draws one after the other.
type machine struct {
	t     *testing.T
	h     Harness
	ctx   context.Context
	queue string
	model *model
	// receipts and leases are all that were ever returned, valid or not.
	receipts []store.Receipt
	leases   []string
	grouped  map[string]bool        // by the key of a receipt: whether its message is in a group
	known    map[string]*store.Info // by id: an earlier result of Get
	fence    int64                  // the largest fence of a claim
}

// someIDs are few, so that a history uses the same message again and again.
var someIDs = []string{"a", "b", "c", "d", "e", "f"}

// someGroups begin alike, so that an engine that compares prefixes is found out.
var someGroups = []string{"g", "ga"}

// begin starts a history with an empty queue, and stops its clock.
func (m *machine) begin(r *rapid.T) {
	m.h.Advance(m.t, m.queue, time.Millisecond)
	s, err := m.h.Store.Stats(m.ctx, m.queue)
	m.ok(r, err)
	m.model, m.fence = newModel(s.Now.UnixMilli()), 0
}

func (m *machine) ok(r *rapid.T, err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("unexpected error: %v", err)
	}
}

// conflicts expects a call to be refused by its condition.
func (m *machine) conflicts(r *rapid.T, err error) {
	r.Helper()
	if err == nil || store.CodeOf(err) != store.ErrConflict.Code {
		r.Fatalf("error %v of a condition that is not met", err)
	}
}

// same compares values by their printed text.
func (m *machine) same(r *rapid.T, what string, got, want any) {
	r.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		r.Fatalf("%s\n got  %s\n want %s", what, g, w)
	}
}

// store draws the consumer that performs the step.
func (m *machine) store(r *rapid.T) store.Store {
	if rapid.Bool().Draw(r, "by the peer") {
		return m.h.Peer
	}
	return m.h.Store
}

func drawIDs(r *rapid.T, least int) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(someIDs), least, 4, rapid.ID[string]).Draw(r, "ids")
}

// drawDelay draws whole milliseconds, often 0.
func drawDelay(r *rapid.T, label string) time.Duration {
	if rapid.Bool().Draw(r, "no "+label) {
		return 0
	}
	return time.Duration(rapid.IntRange(1, 100).Draw(r, label+" ms")) * time.Millisecond
}

func (m *machine) drawDue(r *rapid.T) store.Due {
	if rapid.Bool().Draw(r, "absolute") {
		return store.Due{At: m.drawTime(r, "due")}
	}
	return store.Due{Delay: drawDelay(r, "delay")}
}

// drawTime draws a time around now.
func (m *machine) drawTime(r *rapid.T, label string) time.Time {
	return time.UnixMilli(m.model.now + int64(rapid.IntRange(-100, 200).Draw(r, label+" from now ms")))
}

// Check compares the whole state after every step.
func (m *machine) Check(r *rapid.T) {
	s, err := m.h.Store.Stats(m.ctx, m.queue)
	m.ok(r, err)
	m.same(r, "stats", statsLine(s), statsLine(m.model.stats()))
	m.same(r, "flow", flowLine(s.Flow), m.model.flowLine())
	m.same(r, "number of halted keys", s.Flow.Keys.Halted, len(m.model.haltedKeys()))
	m.checkKeys(r)
	properties, err := m.h.Peer.Properties(m.ctx, m.queue)
	m.ok(r, err)
	m.same(r, "properties", properties, m.model.properties)
	infos, err := m.h.Peer.Get(m.ctx, m.queue, someIDs)
	m.ok(r, err)
	for i, id := range someIDs {
		m.same(r, "message "+id, describe(infos[i]), describe(m.model.info(id)))
	}
	for _, group := range someGroups {
		got := m.listAll(r, m.h.Store, store.ListRequest{Group: group, Limit: 2})
		var want []string
		for _, id := range someIDs {
			if x := m.model.messages[id]; x != nil && x.Group == group {
				want = append(want, describe(m.model.info(id)))
			}
		}
		m.same(r, "group "+group, strings.Join(got, "\n      "), strings.Join(want, "\n      "))
	}
}

func statsLine(s store.Stats) string {
	return fmt.Sprintf("scheduled=%d ready=%d leased=%d dead=%d next=%d paused=%v exists=%v now=%d",
		s.Scheduled, s.Ready, s.Leased, s.Dead, ms(s.NextDue), s.Paused, s.Exists, s.Now.UnixMilli())
}

// Advance moves the clock: to the millisecond when something happens, to the one before, or anywhere.
func (m *machine) Advance(r *rapid.T) {
	d := int64(rapid.IntRange(1, 150).Draw(r, "ms"))
	if moments := m.model.moments(); len(moments) > 0 && rapid.Bool().Draw(r, "to a moment") {
		d = rapid.SampledFrom(moments).Draw(r, "moment") - m.model.now
		if d > 1 && rapid.Bool().Draw(r, "just short of it") {
			d--
		}
	}
	m.h.Advance(m.t, m.queue, time.Duration(d)*time.Millisecond)
	m.model.now += d
}

func (m *machine) Send(r *rapid.T) {
	msgs := rapid.SliceOfN(rapid.Custom(m.drawMessage), 1, 4).Draw(r, "messages")
	if m.drawRefused(r, msgs) {
		m.refused(r, msgs)
		return
	}
	condition := m.drawCondition(r)
	for i := range msgs {
		msgs[i].If = condition
	}
	got, err := m.store(r).Send(m.ctx, m.queue, msgs)
	m.ok(r, err)
	m.same(r, "number of results", len(got), len(msgs))
	for i, out := range msgs {
		want := store.SendResult{Err: store.ErrConflict}
		if m.model.meets(condition) {
			want = m.model.send(out)
		}
		m.sameError(r, "send of "+out.ID, got[i].Err, want.Err)
		got[i].Err, want.Err = nil, nil
		m.same(r, "send of "+out.ID, got[i], want)
	}
}

// drawCondition draws a condition, or nil for none. SetProperties sets the property.
func (m *machine) drawCondition(r *rapid.T) *store.Condition {
	if m.h.Sharded || rapid.IntRange(0, 3).Draw(r, "condition if 0") != 0 {
		return nil
	}
	return &store.Condition{Property: "p", Value: rapid.SampledFrom([]string{"", "", "1"}).Draw(r, "value")}
}

// SendOneByOne sends messages that may change live ones, or repeat earlier sends.
func (m *machine) SendOneByOne(r *rapid.T) {
	msgs := rapid.SliceOfN(rapid.Custom(m.drawOneByOne), 1, 4).Draw(r, "messages")
	for i := range msgs {
		m.drawUnchanged(r, &msgs[i])
	}
	if m.drawRefused(r, msgs) {
		m.refused(r, msgs[:1])
		return
	}
	got, err := m.store(r).Send(m.ctx, m.queue, msgs)
	m.ok(r, err)
	m.same(r, "number of results", len(got), len(msgs))
	for i, out := range msgs {
		want := m.model.oneByOne(out)
		m.sameError(r, "send of "+out.ID, got[i].Err, want.Err)
		m.same(r, "first send of "+out.ID, firstLine(got[i].First), firstLine(want.First))
		got[i].Err, want.Err, got[i].First, want.First = nil, nil, nil, nil
		m.same(r, "send of "+out.ID, got[i], want)
	}
}

func firstLine(f *store.FirstSend) string {
	if f == nil {
		return "none"
	}
	return fmt.Sprintf("%s due=%d", f.ID, ms(f.Due))
}

func (m *machine) drawOneByOne(r *rapid.T) store.Outgoing {
	out := m.drawMessage(r)
	most := 4
	if rapid.Bool().Draw(r, "once") {
		out.Once = store.NewOnce([]byte(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "key")),
			[]byte(rapid.SampledFrom([]string{"1", "1", "1", "2"}).Draw(r, "request")))
		most = 9 // from 5 on a live message is kept
	}
	switch rapid.IntRange(0, most).Draw(r, "mode") {
	case 0:
		out.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace}
	case 1:
		out.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace, KeepDue: true}
	case 2:
		out.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateFollow}
	case 3:
		out.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateFollow, KeepDue: true}
	case 4:
		out.Due = store.Due{Delay: time.Millisecond + drawDelay(r, "wait")}
		most := out.Due.Delay + drawDelay(r, "more than the wait")
		out.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateDebounce, MaxWait: most}
	}
	return out
}

// drawUnchanged may limit a replacement to a message that is still as it is now, or as it was at an earlier draw.
func (m *machine) drawUnchanged(r *rapid.T, out *store.Outgoing) {
	if out.OnDuplicate.Mode != store.DuplicateReplace || rapid.Bool().Draw(r, "whatever it replaces") {
		return
	}
	if m.known[out.ID] == nil || rapid.Bool().Draw(r, "look again") {
		infos, err := m.h.Store.Get(m.ctx, m.queue, []string{out.ID})
		m.ok(r, err)
		m.known[out.ID] = infos[0]
	}
	out.OnDuplicate.Unchanged = m.known[out.ID]
}

// Settle settles under any receipts that were ever returned, each at most once in a call.
func (m *machine) Settle(r *rapid.T) {
	if len(m.receipts) == 0 {
		r.Skip("no receipts yet")
	}
	// The latest receipts are the most likely to be valid.
	recent := m.receipts[max(0, len(m.receipts)-12):]
	chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(recent), 1, 4, key).Draw(r, "receipts")
	actions := []store.Action{store.Ack, store.Nack, store.Nack, store.Snooze, store.Release, store.Bury,
		store.GiveBack}
	var settlements []store.Settlement
	for _, receipt := range chosen {
		s := store.Settlement{Receipt: receipt, Action: rapid.SampledFrom(actions).Draw(r, "action")}
		switch s.Action {
		case store.Ack:
			s.DedupWindow = drawDelay(r, "dedup window")
			s.Grouped = m.grouped[key(receipt)]
		case store.Nack, store.Snooze, store.GiveBack:
			s.Delay = drawDelay(r, "delay")
		}
		if s.Action == store.Snooze {
			s.ResetAttempts = rapid.Bool().Draw(r, "reset attempts")
		}
		if s.Action == store.GiveBack {
			s.Within = drawDelay(r, "within") - time.Millisecond // or for ever
		}
		if s.Action == store.Nack || s.Action == store.Bury || s.Action == store.GiveBack {
			s.Reason = rapid.SampledFrom([]string{"no", "tab\tand\nline", "über"}).Draw(r, "reason")
		}
		if s.Action == store.Ack && len(chosen) == 1 && store.Linked(m.h.Store, m.queue, m.queue) {
			s.Then = m.drawFollowUps(r, &s)
		}
		s.If = m.drawCondition(r)
		settlements = append(settlements, s)
	}
	m.settle(r, m.store(r), settlements)
}

func (m *machine) settle(r *rapid.T, s store.Store, settlements []store.Settlement) {
	got, err := s.Settle(m.ctx, m.queue, settlements)
	m.ok(r, err)
	m.same(r, "number of results", len(got), len(settlements))
	for i, s := range settlements {
		want := m.model.settle(s)
		m.sameError(r, s.Action.String()+" of "+key(s.Receipt), got[i].Err, want.Err)
		m.same(r, "state after "+s.Action.String(), got[i].State, want.State)
	}
}

// drawFollowUps draws messages for the same queue. One may take the place of the message that it follows.
func (m *machine) drawFollowUps(r *rapid.T, s *store.Settlement) (then []store.FollowUp) {
	for _, out := range rapid.SliceOfN(rapid.Custom(m.drawMessage), 0, 3).Draw(r, "follow-ups") {
		if m.h.Sharded && out.ID != s.Receipt.ID {
			continue // it may be sent although the ack is refused
		}
		if out.ID != s.Receipt.ID || s.DedupWindow == 0 {
			then = append(then, store.FollowUp{Queue: m.queue, Message: out})
		}
	}
	return then
}

// sameError compares with errors.Is, because the errors of engines may have more specific texts.
func (m *machine) sameError(r *rapid.T, what string, got, want error) {
	r.Helper()
	if !errors.Is(got, want) {
		r.Fatalf("%s\n got  error %v\n want error %v", what, got, want)
	}
}

func (m *machine) Extend(r *rapid.T) {
	if len(m.leases) == 0 {
		r.Skip("no leases yet")
	}
	recent := m.leases[max(0, len(m.leases)-6):]
	var extensions []store.Extension
	for _, lease := range rapid.SliceOfNDistinct(rapid.SampledFrom(recent), 1, 3, rapid.ID[string]).Draw(r, "leases") {
		d := time.Duration(rapid.SampledFrom([]int{0, 10, 30, 100}).Draw(r, "ms")) * time.Millisecond
		extensions = append(extensions, store.Extension{Lease: lease, For: d})
	}
	got, err := m.store(r).Extend(m.ctx, m.queue, extensions)
	m.ok(r, err)
	m.same(r, "number of results", len(got), len(extensions))
	for i, e := range extensions {
		want, must, may := m.model.extend(e)
		m.sameError(r, "extend", got[i].Err, want.Err)
		m.same(r, "deadline", ms(got[i].Deadline), ms(want.Deadline))
		lost := keys(got[i].Lost)
		for _, k := range must {
			if !slices.Contains(lost, k) {
				r.Fatalf("Lost lacks %s", k)
			}
		}
		for j, k := range lost {
			if !slices.Contains(may, k) || j > 0 && lost[j-1] == k {
				r.Fatalf("Lost has %s wrongly or twice", k)
			}
		}
	}
}
