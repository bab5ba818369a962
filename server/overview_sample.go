package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
)

const (
	// sampleFor is how long the events of all queues are sampled after the last overview.
	sampleFor = 5 * time.Minute
	// A sample has the events of historySlots times historyStep, and the lateness of maxLatenesses deliveries in it.
	historySlots  = 60
	historyStep   = 5 * time.Second
	maxLatenesses = 256
	// maxSampled is the number of queues with a sample. Further queues get none until sampled queues have had no events
	// for a while.
	maxSampled = 1000
)

// samples are the recent events of all queues, collected while an overview is being watched.
type samples struct {
	mu      sync.Mutex
	idle    *time.Timer // ends the sampling; nil while there is none
	queues  map[string]*sample
	cleaned int64 // the slot in which queues without events were removed
}

// sample is the recent events of one queue. The zero sample has none.
type sample struct {
	last       int64 // the number of the last slot
	slots      [historySlots]historyEntry
	latenesses []lateDelivery // a ring: the n-th is at n % maxLatenesses
	delivered  int
	events     int64 // all that were received or missed
}

// lateDelivery is the lateness of a delivery, and when it was.
type lateDelivery struct {
	slot int64
	late wire.Duration
}

func slotOf(t time.Time) int64 { return t.UnixMilli() / historyStep.Milliseconds() }

// use samples the events for the next sampleFor.
func (s *samples) use(server *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != nil && s.idle.Reset(sampleFor) {
		return
	}
	ctx, cancel := context.WithCancel(server.ending)
	s.queues = map[string]*sample{}
	idle := time.AfterFunc(sampleFor, cancel)
	s.idle = idle
	server.open.Go(func() {
		defer idle.Stop()
		server.followFeeds(ctx, nil, func(f *feed) {
			f.follow(ctx, f.end(), func(events []recentEvent, missed uint64) { s.add(events, missed, time.Now()) })
		}, func(error) {})
	})
}

// add adds events that arrived at a time, after others that were missed.
func (s *samples) add(events []recentEvent, missed uint64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if missed > 0 {
		s.missed()
	}
	slot := slotOf(now)
	for i := range events {
		if events[i].Kind == later.EventMissed {
			s.missed()
		}
		if q := s.get(events[i].Queue, slot); q != nil {
			q.add(&events[i].Event, slot)
		}
	}
}

// missed notes that events were missed, which can be of any queue. The caller has locked s.mu.
func (s *samples) missed() {
	for _, q := range s.queues {
		q.events++
	}
}

// get returns the sample of a queue, or nil if there are too many.
func (s *samples) get(queue string, slot int64) *sample {
	q := s.queues[queue]
	if q != nil || queue == "" {
		return q
	}
	if len(s.queues) >= maxSampled && s.cleaned != slot {
		s.cleaned = slot
		for name, other := range s.queues {
			if other.last <= slot-historySlots {
				delete(s.queues, name)
			}
		}
	}
	if len(s.queues) >= maxSampled {
		return nil
	}
	q = &sample{last: slot}
	s.queues[queue] = q
	return q
}

// of returns the samples of queues at a time.
func (s *samples) of(queues []string, now time.Time) map[string]sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]sample{}
	for _, queue := range queues {
		if q := s.queues[queue]; q != nil {
			q.move(slotOf(now))
			shown := *q
			shown.latenesses = slices.Clone(q.latenesses)
			found[queue] = shown
		}
	}
	return found
}

// move makes a slot the last one.
func (q *sample) move(slot int64) {
	for n := min(slot-q.last, historySlots); n > 0; n-- {
		q.slots[(slot-n+1)%historySlots] = historyEntry{}
	}
	q.last = max(q.last, slot)
}

func (q *sample) add(e *wire.Event, slot int64) {
	q.move(slot)
	q.slots[q.last%historySlots].count(e.Kind, 1)
	q.events++
	if e.Kind != later.EventClaimed {
		return
	}
	late := lateDelivery{q.last, e.Lateness}
	if len(q.latenesses) < maxLatenesses {
		q.latenesses = append(q.latenesses, late)
	} else {
		q.latenesses[q.delivered%maxLatenesses] = late
	}
	q.delivered++
}

// show sets the fields of a queue that come from the sample.
func (q sample) show(o *OverviewQueue) {
	o.Events = q.events
	if q.slots != [historySlots]historyEntry{} {
		h := &History{}
		for n := range int64(historySlots) {
			slot := q.slots[(q.last+1+n)%historySlots]
			h.Sent, h.Handled = append(h.Sent, slot.Sent), append(h.Handled, slot.Handled)
			h.Failed = append(h.Failed, slot.Failed)
		}
		o.History = h
	}
	var late []wire.Duration
	for _, l := range q.latenesses {
		if l.slot > q.last-historySlots {
			late = append(late, l.late)
		}
	}
	slices.Sort(late)
	if n := len(late); n > 0 {
		o.LatenessSamples, o.LatenessP50, o.LatenessP99 = n, late[(n*50+99)/100-1], late[(n*99+99)/100-1]
	}
}
