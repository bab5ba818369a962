package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/laterq/later/store"
)

// modelFlow is the limits of the model's queue. Intervals are whole microseconds here; other rules have fractions.
type modelFlow struct {
	store.Flow
	number int   // counts how often the queue got limits or lost them
	next   int64 // time of the next start as if all were evenly spaced, in microseconds
}

// interval returns the microseconds between two starts.
func (f *modelFlow) interval() int64 { return f.Rate.Per.Microseconds() / int64(f.Rate.N) }

// earliest returns when the rate allows a start, in microseconds.
func (f *modelFlow) earliest() int64 { return f.next - int64(f.Rate.Burst-1)*f.interval() }

// counted returns how many messages count against the concurrency.
func (m *model) counted() (n int) {
	for id, l := range m.leases {
		if !m.counts(l) {
			continue
		}
		for _, x := range m.messages {
			if x.receipt.Lease == id {
				n++
			}
		}
		for _, learned := range l.cancelled {
			if !learned {
				n++
			}
		}
		for _, learned := range l.purged {
			if !learned {
				n++
			}
		}
	}
	return n
}

func (m *model) counts(l *modelLease) bool { return m.flow.Limited() && l.flow == m.flow.number }

// limit returns how many messages may start now.
func (m *model) limit(forwards bool) int {
	n := math.MaxInt
	if m.flow.Concurrency > 0 && !forwards {
		n = max(0, m.flow.Concurrency-m.counted())
	}
	return m.flow.room(m.now, n)
}

// room returns how many of n messages the rate allows to start at a time in milliseconds.
func (f modelFlow) room(now int64, n int) (allowed int) {
	if f.Rate.N == 0 {
		return n
	}
	for ; allowed < min(n, store.MaxBatch) && f.earliest() <= now*1000; allowed++ {
		f.next = max(f.next, now*1000) + f.interval()
	}
	return allowed
}

// start counts n messages that start.
func (m *model) start(n int) {
	if m.flow.Rate.N > 0 && n > 0 {
		m.flow.next = max(m.flow.next, m.now*1000) + int64(n)*m.flow.interval()
	}
}

func (m *model) setFlow(f store.Flow) {
	flow, was, former, fair := m.flow.Flow, m.flow.Limited(), m.flow.Rate, m.flow.Fair
	m.exists, m.flow.Flow = true, f.Normal()
	if m.flow.Limited() != was {
		m.flow.number++
	}
	m.setFair(fair)
	m.setOrder()
	m.setUrgency(flow)
	if former.N == 0 || f.Rate.N == 0 {
		m.flow.next = 0
	} else {
		now := m.now * 1000
		ahead, slower := m.flow.next-now, average(f.Rate)/average(former)
		if ahead > 0 && slower > 1 { // starts that were used up stay so
			m.flow.next = now + int64(math.Ceil(float64(ahead)*slower))
		}
		m.flow.next = min(m.flow.next, now+int64(m.flow.Rate.Burst)*m.flow.interval())
	}
}

// average returns the average time between starts in microseconds.
func average(r store.Rate) float64 { return float64(r.Per.Microseconds()) / float64(r.N) }

// purgeLeases drops the leases of messages that are purged, except the ones that still count.
func (m *model) purgeLeases(purged []*modelMessage) {
	for id, l := range m.leases {
		if !m.counts(l) {
			delete(m.leases, id)
		}
	}
	for _, x := range purged {
		if l := m.leases[x.receipt.Lease]; l != nil {
			l.purged[key(x.receipt)] = false
		}
	}
}

// learn says that a Settle of a message was refused.
func (m *model) learn(r store.Receipt) {
	l := m.leases[r.Lease]
	if l == nil || l.deadline <= m.now {
		return
	}
	for _, lost := range []map[string]bool{l.cancelled, l.purged} {
		if _, ok := lost[key(r)]; ok {
			lost[key(r)] = true
		}
	}
}

func (m *model) flowLine() string {
	state := store.FlowState{Flow: m.flow.Flow, Now: time.UnixMilli(m.now)}
	if m.flow.Limited() {
		state.Leased = m.counted()
	}
	if m.flow.Rate.N > 0 {
		state.Next = time.UnixMicro(max(m.flow.earliest(), m.now*1000))
	}
	return flowLine(state)
}

func flowLine(f store.FlowState) string {
	f.Keys = store.KeyCounts{}
	next := "-"
	if !f.Next.IsZero() {
		next = fmt.Sprint(f.Next.Sub(f.Now).Microseconds())
	}
	return fmt.Sprintf("%+v leased=%d next=%s", f.Flow, f.Leased, next)
}
