package storetest

import (
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/laterq/later/store"
)

// The steps of the state machine that inspect and manage a queue.

func (m *machine) Cancel(r *rapid.T) {
	chosen := drawIDs(r, 1)
	keep := rapid.Bool().Draw(r, "keep ids")
	got, err := m.store(r).Cancel(m.ctx, m.queue, store.CancelRequest{IDs: chosen, KeepIDs: keep})
	m.ok(r, err)
	m.same(r, "number of results", len(got), len(chosen))
	for i, id := range chosen {
		want := m.model.cancel(id, keep)
		m.sameError(r, "cancel of "+id, got[i].Err, want.Err)
		m.same(r, "state of the cancelled "+id, got[i].State, want.State)
	}
}

// Reschedule also covers making a message ready now, which is a due time without delay.
func (m *machine) Reschedule(r *rapid.T) {
	chosen, due := drawIDs(r, 1), m.drawDue(r)
	got, err := m.store(r).Reschedule(m.ctx, m.queue, chosen, due)
	m.ok(r, err)
	m.same(r, "number of results", len(got), len(chosen))
	for i, id := range chosen {
		m.sameError(r, "reschedule of "+id, got[i], m.model.reschedule(id, due))
	}
}

func (m *machine) Replay(r *rapid.T) {
	sel, due := store.Selection{IDs: drawIDs(r, 0), State: store.StateDead}, m.drawDue(r)
	s := m.store(r)
	done := m.bulk(r, sel, func(sel store.Selection) (store.Bulk, error) { return s.Replay(m.ctx, m.queue, sel, due) })
	m.same(r, "replayed", done, m.model.replay(sel, due))
}

func (m *machine) Purge(r *rapid.T) {
	sel := store.Selection{State: store.StateDead}
	if rapid.Bool().Draw(r, "by id") {
		sel.IDs = drawIDs(r, 1)
	} else {
		states := []store.State{store.StateDead, store.StateReady, store.StateScheduled, store.StateNone}
		sel.State = rapid.SampledFrom(states).Draw(r, "state")
	}
	s := m.store(r)
	var resumed []string
	done := m.bulk(r, sel, func(sel store.Selection) (store.Bulk, error) {
		b, err := s.Purge(m.ctx, m.queue, sel)
		resumed = append(resumed, b.Resumed...)
		return b, err
	})
	want, wantResumed := m.model.purge(sel)
	m.same(r, "purged", done, want)
	slices.Sort(resumed)
	m.same(r, "resumed by a purge", resumed, wantResumed)
}

// bulk repeats a step until no more is left.
func (m *machine) bulk(r *rapid.T, sel store.Selection, step func(store.Selection) (store.Bulk, error)) int {
	done := 0
	for range 2 * len(someIDs) {
		b, err := step(sel)
		m.ok(r, err)
		done += b.Done
		if !b.More {
			return done
		}
		sel.Before = b.Before
	}
	r.Fatalf("a Replay or Purge of %d messages does not end", len(someIDs))
	return 0
}

func (m *machine) SetPaused(r *rapid.T) {
	paused := rapid.Bool().Draw(r, "paused")
	m.ok(r, m.store(r).SetPaused(m.ctx, m.queue, paused))
	m.model.paused, m.model.exists = paused, true
}

func (m *machine) SetDeadRetention(r *rapid.T) {
	maxCount := rapid.IntRange(0, 3).Draw(r, "count")
	if m.h.Sharded { // each shard keeps as many
		maxCount = 0
	}
	retention := store.Retention{MaxAge: drawDelay(r, "maximum age"), MaxCount: int64(maxCount)}
	var former *store.Retention
	if rapid.Bool().Draw(r, "with former") {
		former = &store.Retention{MaxCount: rapid.Int64Range(0, 3).Draw(r, "former count")}
	}
	err := m.store(r).SetDeadRetention(m.ctx, m.queue, retention, former)
	if former != nil && m.model.retained != *former {
		m.conflicts(r, err)
		return
	}
	m.ok(r, err)
	m.model.retained, m.model.exists = retention, true
}

// SetProperties draws few names, so that properties are replaced and removed. Check reads them.
func (m *machine) SetProperties(r *rapid.T) {
	names, values := rapid.SampledFrom([]string{"p", "q", "größe"}), rapid.SampledFrom([]string{"", "1", "2\n"})
	set := rapid.MapOfN(names, values, 1, 3).Draw(r, "properties")
	condition := m.drawCondition(r)
	err := m.store(r).SetProperties(m.ctx, m.queue, set, condition)
	if !m.model.meets(condition) {
		m.conflicts(r, err)
		return
	}
	m.ok(r, err)
	m.model.setProperties(set)
}

// Delete starts again with an empty queue. Earlier receipts and leases must remain invalid.
func (m *machine) Delete(r *rapid.T) {
	if rapid.IntRange(0, 3).Draw(r, "delete if 0") != 0 {
		r.Skip("rare, so that histories grow long")
	}
	m.ok(r, m.store(r).Delete(m.ctx, m.queue))
	m.begin(r)
}

func (m *machine) List(r *rapid.T) {
	req := store.ListRequest{
		State: rapid.SampledFrom(allStates).Draw(r, "state"),
		Limit: rapid.IntRange(1, 5).Draw(r, "limit"),
	}
	if rapid.Bool().Draw(r, "with from") {
		req.From = m.drawTime(r, "from")
	}
	if rapid.Bool().Draw(r, "with to") {
		req.To = m.drawTime(r, "to")
	}
	var want []string
	for _, x := range m.model.in(req.State) {
		at := x.due
		if req.State == store.StateDead {
			at = x.diedAt
		}
		if (req.From.IsZero() || at >= ms(req.From)) && (req.To.IsZero() || at < ms(req.To)) {
			want = append(want, describe(m.model.info(x.ID)))
		}
	}
	got := m.listAll(r, m.store(r), req)
	if req.State == store.StateLeased { // by lease, in any order, and possibly more than once
		slices.Sort(got)
		got = slices.Compact(got)
		slices.Sort(want)
	}
	m.same(r, "list", strings.Join(got, "\n      "), strings.Join(want, "\n      "))
}

func (m *machine) listAll(r *rapid.T, s store.Store, req store.ListRequest) (lines []string) {
	for range 100 * len(someIDs) { // earlier leases may take pages too
		page, err := s.List(m.ctx, m.queue, req)
		m.ok(r, err)
		if len(page.Messages) > req.Limit {
			r.Fatalf("a page with limit %d has %d messages", req.Limit, len(page.Messages))
		}
		for _, info := range page.Messages {
			lines = append(lines, describe(&info))
		}
		if page.Next == "" {
			return lines
		}
		req.Cursor = page.Next
	}
	r.Fatalf("a listing of at most %d messages does not end", len(someIDs))
	return nil
}

func (m *machine) Histogram(r *rapid.T) {
	bounds := []time.Time{m.drawTime(r, "first bound")}
	for _, part := range rapid.SliceOfN(rapid.IntRange(1, 50), 1, 5).Draw(r, "ms of each part") {
		bounds = append(bounds, bounds[len(bounds)-1].Add(time.Duration(part)*time.Millisecond))
	}
	got, err := m.store(r).Histogram(m.ctx, m.queue, bounds)
	m.ok(r, err)
	m.same(r, "histogram", got, m.model.histogram(store.BoundMillis(bounds)))
}
