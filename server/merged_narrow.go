package server

import (
	"context"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

// narrow drops empty sources, and notes when the first message of the other ones is due, if the store
// or the last overview tells that faster than reading them.
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
	m.soon = clock.Now.Add(mergedSoon)
	for _, state := range []later.State{later.StateReady, later.StateScheduled, later.StateDead} {
		if err := m.probe(ctx, prober, state, clock.Now); err != nil {
			return err
		}
	}
	return nil
}

// probe narrows the sources of a state.
func (m *merge) probe(ctx context.Context, prober store.Prober, state later.State, now time.Time) error {
	var from time.Time
	var queues []string
	for _, s := range m.sources {
		if s.state != state {
			continue
		}
		if len(queues) == 0 || s.bound.Before(from) {
			from = s.bound
		}
		queues = append(queues, s.queue)
	}
	if len(queues) == 0 {
		return nil
	}
	if state == later.StateScheduled && from.Before(now) {
		from = now
	}
	found, err := prober.Earliest(ctx, queues, state == later.StateDead, from)
	if err != nil {
		return err
	}
	m.sources = slices.DeleteFunc(m.sources, func(s *mergeSource) bool {
		if s.state != state {
			return false
		}
		first := found[0]
		if found = found[1:]; !first.Known {
			return false
		}
		if first.Time.After(s.bound) {
			s.bound = first.Time
		}
		return !first.Any || state == later.StateReady && first.Time.After(m.soon)
	})
	return nil
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
