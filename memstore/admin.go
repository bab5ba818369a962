package memstore

import (
	"bytes"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

func (q *queue) get(now int64, id string) *store.Info {
	m := q.messages[id]
	if m == nil {
		return nil
	}
	info := &store.Info{
		Message:    clone(m.Message),
		State:      m.state(now),
		Due:        store.Time(m.due),
		Attempts:   m.attempts,
		Delivered:  m.delivered,
		Follows:    m.follows,
		LastError:  m.lastError,
		Failures:   slices.Clone(m.failures),
		DeadReason: m.deadReason,
		DiedAt:     store.Time(m.diedAt),
		Raw:        bytes.Clone(m.raw),
	}
	if m.lease != nil {
		info.LeaseDeadline = store.Time(m.lease.deadline)
	}
	return info
}

// list returns the page that starts at from or at req.From, whichever is later.
func (q *queue) list(now int64, req store.ListRequest, from entry) store.Page {
	last := int64(never)
	if !req.From.IsZero() {
		from = later(from, entry{at: store.UnixMillis(req.From)})
	}
	if !req.To.IsZero() {
		last = store.UnixMillis(req.To) - 1
	}
	var x index
	switch req.State {
	case store.StateNone:
		var ok bool
		if x, ok = q.groups[req.Group]; !ok {
			return store.Page{}
		}
	case store.StateScheduled:
		x, from = q.due, later(from, entry{at: now + 1})
	case store.StateReady:
		x, last = q.due, min(last, now)
	case store.StateLeased:
		x = q.held
	case store.StateDead:
		x = q.dead
	}
	var page store.Page
	var end entry
	size := 0
	for e := range x.between(from, last) {
		m := q.messages[e.id]
		info := &store.Info{Message: store.Message{ID: e.id}}
		if !req.IDsOnly {
			info = q.get(now, e.id)
			size += m.size()
		}
		if n := len(page.Messages); n == req.Limit || n > 0 && size > store.MaxBatchBytes {
			page.Next = end.cursor()
			break
		}
		page.Messages = append(page.Messages, *info)
		end = e
	}
	return page
}

func later(e, f entry) entry {
	if e.less(f) {
		return f
	}
	return e
}

// bulk applies f to the messages of at most store.MaxBatch entries.
func (q *queue) bulk(entries iter.Seq[entry], before int64, f func(*message)) store.Bulk {
	result := store.Bulk{Before: store.Time(before)}
	var chosen []*message
	for e := range entries {
		if len(chosen) == store.MaxBatch {
			result.More = true
			break
		}
		chosen = append(chosen, q.messages[e.id])
	}
	for _, m := range chosen {
		f(m)
	}
	result.Done = len(chosen)
	return result
}

// deadByID returns the entries of the dead messages among ids, each once.
func (q *queue) deadByID(ids []string) iter.Seq[entry] {
	seen := map[string]bool{}
	return func(yield func(entry) bool) {
		for _, id := range ids {
			m := q.messages[id]
			if m == nil || m.deadReason == "" || seen[id] {
				continue
			}
			seen[id] = true
			if !yield(entry{m.diedAt, id}) {
				return
			}
		}
	}
}

var start = entry{at: math.MinInt64}

func (q *queue) replay(now int64, sel store.Selection, due store.Due) store.Bulk {
	limit := sel.Limit(now)
	entries := q.dead.between(start, limit)
	if len(sel.IDs) > 0 {
		entries = q.deadByID(sel.IDs)
	}
	return q.bulk(entries, limit, func(m *message) {
		q.dead.remove(m.diedAt, m.ID)
		m.deadReason, m.diedAt, m.lastError, m.attempts = "", 0, "", 0
		m.delivered = true // its expiry no longer counts
		m.setDue(q.dueAt(now, due))
		q.wait(m, false)
		if q.flow.Fair {
			q.flow.keys.Revive(q.micros, m.ID)
		}
	})
}

func (q *queue) purge(now int64, sel store.Selection) store.Bulk {
	limit := sel.Limit(now)
	ready := q.due.between(start, min(limit, now))
	scheduled := q.due.between(entry{at: now + 1}, never)
	dead := q.dead.between(start, limit)
	var entries iter.Seq[entry]
	all := false
	switch {
	case len(sel.IDs) > 0:
		entries = q.deadByID(sel.IDs)
	case sel.State == store.StateScheduled:
		entries = scheduled
	case sel.State == store.StateReady:
		entries = ready
	case sel.State == store.StateDead:
		entries = dead
	default:
		all = true
		entries = chain(ready, scheduled, dead, q.held.between(start, never))
	}
	var resumed []string
	result := q.bulk(entries, limit, func(m *message) {
		if m.lease != nil && q.flow.counts(m.lease) {
			m.lease.lose(m)
		}
		if key := q.remove(m); key != "" {
			resumed = append(resumed, key)
		}
	})
	result.Resumed = resumed
	if all && !result.More {
		q.dropLeases()
	}
	return result
}

// dropLeases drops the leases of messages that were purged, except the ones that still count.
func (q *queue) dropLeases() {
	for _, l := range q.leases {
		if !q.flow.counts(l) {
			q.endLease(l)
		}
	}
}

func chain(parts ...iter.Seq[entry]) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		for _, part := range parts {
			for e := range part {
				if !yield(e) {
					return
				}
			}
		}
	}
}

func (q *queue) stats(now int64) store.Stats {
	ready := q.due.before(now + 1)
	s := store.Stats{
		Scheduled: int64(q.due.len() - ready),
		Ready:     int64(ready),
		Leased:    int64(q.held.len()),
		Dead:      int64(q.dead.len()),
		Paused:    q.paused,
		Exists:    q.exists,
		Now:       store.Time(now),

		DeadRetention: q.retention,
		Dropped:       q.dropped,
		Flow:          turns.FlowState(q.flow.Flow, q.flow.starts, q.flow.counted, q.flow.keys, q.micros),
	}
	if e := q.due.first(); e.at != never {
		s.NextDue = store.Time(e.at)
	}
	return s
}

// setProperties sets properties and removes the properties with an empty value, if a condition is met.
func (q *queue) setProperties(set map[string]string, condition *store.Condition) error {
	if !q.meets(condition) {
		return store.ErrConflict
	}
	changed := make(map[string]string, len(q.properties)+len(set))
	maps.Copy(changed, q.properties)
	sets := false
	for name, value := range set {
		if value == "" {
			delete(changed, name)
			continue
		}
		changed[name] = value
		sets = true
	}
	if err := store.CheckPropertyCount(len(changed)); err != nil {
		return err
	}
	q.properties = changed
	q.exists = q.exists || sets
	return nil
}

// meets reports whether a condition is met. None always is.
func (q *queue) meets(c *store.Condition) bool {
	return c == nil || q.properties[c.Property] == c.Value
}

// histogram counts the due times between each two adjacent bounds.
func (q *queue) histogram(bounds []int64) []int64 {
	counts := make([]int64, len(bounds)-1)
	for i := range counts {
		counts[i] = int64(q.due.before(bounds[i+1]) - q.due.before(bounds[i]))
	}
	return counts
}
