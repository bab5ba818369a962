package server

import (
	"context"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

// narrow drops empty sources, and notes when the first message of the other ones is due, if the store or the last
// overview tells that faster than reading them.
func (m *merge) narrow(ctx context.Context, known func(queue string) (store.Stats, bool)) error {
	prober, probes := store.As[store.Prober](m.client.Store())
	if !probes || m.byQueue {
		m.sources = slices.DeleteFunc(m.sources, func(s *mergeSource) bool {
			counts, ok := known(s.queue)
			return ok && !s.expect(counts)
		})
		return nil
	}
	clock, err := m.client.Queue(reserved.Schedules).Stats(ctx)
	if err != nil {
		return err
	}
	m.prober, m.now, m.soon = prober, clock.Now.Add(-mergedSkew), clock.Now.Add(mergedSoon)
	m.sources = slices.DeleteFunc(m.sources, m.isLate)
	for _, state := range []later.State{later.StateReady, later.StateScheduled, later.StateDead} {
		var some []*mergeSource
		for i, s := range m.sources {
			if s.state == state && (i == 0 || !m.tells(m.sources[i-1], s)) {
				some = append(some, s)
			}
		}
		if err := m.probe(ctx, some); err != nil {
			return err
		}
	}
	m.sources = slices.DeleteFunc(m.sources, func(s *mergeSource) bool { return s.done || m.isLate(s) })
	return nil
}

// tells has a source of scheduled messages begin where the ready ones of its queue do, if the store has looked there
// for both and found none that is ready. It reports whether it did.
func (m *merge) tells(ready, s *mergeSource) bool {
	if ready.queue != s.queue || ready.probed.After(s.bound) || !ready.done && !ready.bound.After(m.now) {
		return false
	}
	s.done, s.probed = ready.done, ready.probed
	if ready.bound.After(s.bound) {
		s.bound = ready.bound
	}
	return true
}

// isLate reports whether a source has ready messages only of a time when none is ready.
func (m *merge) isLate(s *mergeSource) bool {
	return s.state == later.StateReady && s.bound.After(m.soon)
}

// probe raises the bounds of sources that are not read yet, and notes which ones are empty.
func (m *merge) probe(ctx context.Context, some []*mergeSource) error {
	for _, dead := range []bool{false, true} {
		var sources []*mergeSource
		var queues []string
		var from []time.Time
		for _, s := range some {
			if (s.state == later.StateDead) == dead {
				sources, queues = append(sources, s), append(queues, s.queue)
				if s.probed = s.bound; s.state == later.StateScheduled && s.bound.Before(m.now) {
					s.probed = m.now
				}
				from = append(from, s.probed)
			}
		}
		if len(queues) == 0 {
			continue
		}
		found, err := m.prober.Earliest(ctx, queues, from, dead)
		if err != nil {
			return err
		}
		for i, s := range sources {
			if !found[i].Known {
				s.probed = lastDue
				continue
			}
			s.done = !found[i].Any
			if found[i].Time.After(s.bound) {
				s.bound = found[i].Time
			}
		}
	}
	return nil
}

// probeAgain probes sources to read if that costs less, and reports whether it has: if they are many, of later times,
// and the store did not tell yet where exactly they begin.
func (m *merge) probeAgain(ctx context.Context, unread []*mergeSource) (bool, error) {
	if m.prober == nil || len(unread) <= overviewReaders {
		return false, nil
	}
	some := slices.DeleteFunc(slices.Clone(unread), func(s *mergeSource) bool {
		return !s.bound.After(s.probed) || s.state != later.StateDead && !s.bound.After(m.soon)
	})
	if len(some) <= overviewReaders {
		return false, nil
	}
	return true, m.probe(ctx, some)
}

// expect reports whether a queue with these counts has messages for the source, and notes when the first is due.
func (s *mergeSource) expect(counts store.Stats) bool {
	n := counts.Scheduled + counts.Ready + counts.Leased + counts.Dead
	switch s.state {
	case later.StateScheduled:
		n = counts.Scheduled
	case later.StateReady:
		n = counts.Ready
		if n == 0 && !counts.NextDue.After(counts.Now.Add(mergedSoon)) { // they may be ready by now
			n = counts.Scheduled
		}
	case later.StateLeased:
		n = counts.Leased
	case later.StateDead:
		n = counts.Dead
	}
	if due := counts.NextDue; (s.state == later.StateScheduled || s.state == later.StateReady) && due.After(s.bound) {
		s.bound = due
	}
	return n > 0
}
