package diskstore

import (
	"slices"
	"strings"

	"github.com/laterq/later/store"
)

// facts is what there is of one message.
type facts struct {
	id      string
	message bool
	record  bool
	j       judgement
	place   placing // where it should be
	held    *holding
	entries []placing // where the indexes have it
	broken  [][]byte  // keys of indexes that are no entries; then id says nothing
}

// wrong is the short name of a check, and what is wrong with the messages that it counts.
type wrong struct{ check, text string }

var (
	wrongOrphanDue    = wrong{"orphans", "entries by due time without a message"}
	wrongOrphanDead   = wrong{"orphans", "entries by time of death without a message"}
	wrongOrphanRecord = wrong{"orphans", "records without a message"}
	wrongOrphanHeld   = wrong{"orphans", "places in leases without a message"}
	wrongBroken       = wrong{"keys", "keys of an index that are too short"}
	wrongNowhere      = wrong{"states", "messages in no state, so that nobody would ever get them"}
	wrongSeveral      = wrong{"states", "messages in several states"}
	wrongElsewhere    = wrong{"states", "messages listed at another time or state than their own"}
	wrongUnreadable   = wrong{"unreadable", "messages that cannot be read and are not set aside"}
	wrongRecord       = wrong{"records", "records that cannot be read"}
	wrongLease        = wrong{"leases", "messages with something else in their lease than in their record"}
)

// wrongs tells what is wrong with a message.
func (f *facts) wrongs() (all []wrong) {
	add := func(is bool, w wrong) {
		if is {
			all = append(all, w)
		}
	}
	if len(f.broken) > 0 {
		return []wrong{wrongBroken}
	}
	right, other := 0, map[byte]bool{}
	for _, p := range f.entries {
		if f.message && p == f.place {
			right++
		} else {
			other[p.kind] = true
		}
	}
	if !f.message {
		add(other[kindDue], wrongOrphanDue)
		add(other[kindDead], wrongOrphanDead)
		add(f.record, wrongOrphanRecord)
		add(f.held != nil, wrongOrphanHeld)
		return all
	}
	held := f.held != nil
	add(f.j.short || f.j.unreadable && f.j.record.deadReason == "", wrongUnreadable)
	add(f.j.badRecord, wrongRecord)
	add(held && f.held.mismatch && f.place.kind == kindLease, wrongLease)
	switch n := len(other); {
	case held && (n > 0 || f.place.kind != kindLease), right > 0 && n > 0, n > 1:
		add(true, wrongSeveral)
	case n == 1:
		add(!f.j.badRecord, wrongElsewhere)
	case right == 0 && f.place.kind != kindLease:
		add(true, wrongNowhere)
	}
	return all
}

// suspects calls f with what there is of the messages whose sums differ and that have something wrong, as many at
// a time as memory is meant for.
func (l *queueLook) suspects(f func(all []*facts) error) error {
	var left []int
	for i := range sums {
		if l.want[i] != l.have[i] {
			left = append(left, i)
		}
	}
	lost := l.lostHoldings()
	if len(left) == 0 && len(lost) == 0 {
		return nil
	}
	entries := l.messages + l.records + l.counted.due + l.counted.dead
	n := int(max(1, l.limit*sums/max(entries, l.limit)))
	for {
		some := map[int]bool{}
		for _, i := range left[:min(n, len(left))] {
			some[i] = true
		}
		left = left[min(n, len(left)):]
		all, err := l.gather(some, lost)
		if err == nil {
			err = f(all)
		}
		if err != nil || len(left) == 0 {
			return err
		}
		lost = nil
	}
}

// lostHoldings gives the places in leases that have no message.
func (l *queueLook) lostHoldings() (lost []*holding) {
	for _, h := range l.held {
		if !h.exists {
			lost = append(lost, h)
		}
	}
	return lost
}

// gather reads the queue once more, and gives what there is of the messages in some sums.
func (l *queueLook) gather(some map[int]bool, lost []*holding) ([]*facts, error) {
	all := map[string]*facts{}
	of := func(id []byte) *facts {
		if !some[l.sumOf(id)] {
			return nil
		}
		f := all[string(id)]
		if f == nil {
			f = &facts{id: string(id), held: l.held[string(id)]}
			all[f.id] = f
		}
		return f
	}
	records := map[string][]byte{}
	broken := &facts{}
	err := l.each(kindRecord, func(id, value []byte) error {
		if f := of(id); f != nil {
			f.record = true
			records[f.id] = slices.Clone(value)
		}
		return nil
	})
	if err == nil {
		err = l.each(kindMessage, func(id, value []byte) error {
			if f := of(id); f != nil {
				f.message = true
				f.j = judge(value, records[f.id], f.record)
				f.place = f.j.place(f.held != nil)
			}
			return nil
		})
	}
	for _, kind := range []byte{kindDue, kindDead, kindForget} {
		if err != nil {
			break
		}
		err = l.each(kind, func(rest, value []byte) error {
			at, id, ok := splitTime(rest)
			if !ok {
				if some[l.sumOf(rest)] {
					broken.broken = append(broken.broken, append(appendKey(nil, l.number, kind), rest...))
				}
				return nil
			}
			if kind == kindForget {
				return nil
			}
			if f := of(id); f != nil {
				f.entries = append(f.entries, placing{kind, at, len(value) > 0})
			}
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	for _, h := range lost {
		if all[h.id] == nil {
			all[h.id] = &facts{id: h.id, held: h}
		}
	}
	wrong := []*facts{}
	if len(broken.broken) > 0 {
		wrong = append(wrong, broken)
	}
	for _, f := range all {
		if len(f.wrongs()) > 0 {
			wrong = append(wrong, f)
		}
	}
	slices.SortFunc(wrong, func(a, b *facts) int { return strings.Compare(a.id, b.id) })
	return wrong, nil
}

// tally counts what is wrong.
type tally struct {
	order []wrong
	count map[wrong]int64
	ids   map[wrong][]string
}

func (c *tally) add(w wrong, id string, n int64) {
	if c.count == nil {
		c.count, c.ids = map[wrong]int64{}, map[wrong][]string{}
	}
	if c.count[w] == 0 {
		c.order = append(c.order, w)
	}
	if c.count[w] += n; len(c.ids[w]) <= maxExamples {
		c.ids[w] = append(c.ids[w], id)
	}
}

// findings makes a finding of each kind of wrong.
func (c *tally) findings(queue string, repaired bool) (all []store.Finding) {
	for _, w := range c.order {
		f := store.Finding{Severity: store.SeverityError, Check: w.check, Queue: queue, Count: c.count[w], Repaired: repaired,
			Text: countText(w.text, c.count[w], c.ids[w])}
		if !repaired {
			f.Advice = repairAdvice
		}
		all = append(all, f)
	}
	return all
}
