package redisstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// turnsPair is a queue with turns, and their order in Go.
type turnsPair struct {
	*limitedQueue
	order *turns.Order
	rnd   *rand.Rand
	sent  int
	held  []store.Claimed

	ordered bool
	urgent  bool
	arrival int64           // the last place of a message that was sent
	pending []turns.Message // that came back and are not sorted
	dead    []turns.Message
}

func (p *turnsPair) now() int64 {
	p.Helper()
	now, err := p.rdb.Get(p.Context(), p.key("clock")).Int64()
	p.ok(err)
	return now
}

// send sends messages of random keys and sorts them, or leaves that to the next claim.
func (p *turnsPair) send(keys int) {
	p.Helper()
	var msgs []store.Outgoing
	for range 1 + p.rnd.IntN(40) {
		key := ""
		if k := p.rnd.IntN(keys); k > 0 {
			key = fmt.Sprintf("customer-number-%d", k)
		}
		p.sent++
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: fmt.Sprintf("m%06d", p.sent), Key: key}})
		if p.urgent {
			msgs[len(msgs)-1].Urgency = p.urgency()
		}
	}
	_, err := p.s.Send(p.Context(), p.queue, msgs)
	p.ok(err)
	if p.ordered {
		for _, m := range msgs {
			if m.Key != "" {
				p.arrival = max(p.now(), p.arrival+1)
				p.order.Sort(p.now(), turns.Message{Key: m.Key, Place: p.arrival, ID: m.ID, Urgency: m.Urgency})
			}
		}
		msgs = slices.DeleteFunc(msgs, func(m store.Outgoing) bool { return m.Key != "" })
	}
	p.advance(time.Millisecond)
	p.order.Wake(p.now(), 1000)
	p.sortPending()
	for _, m := range msgs {
		p.order.Sort(p.now(), turns.Message{Key: m.Key, Place: (p.now()/1000 - 1) * 1000, ID: m.ID, Urgency: m.Urgency})
	}
	for p.rnd.IntN(2) == 0 && p.sortReady().Unsorted {
	}
}

// urgency returns a random one: most messages are of high urgency, so that others are passed over often.
func (p *turnsPair) urgency() store.Urgency {
	return []store.Urgency{store.UrgencyHigh, store.UrgencyHigh, store.UrgencyHigh, store.UrgencyHigh,
		store.UrgencyNormal, store.UrgencyLow}[p.rnd.IntN(6)]
}

// sortPending sorts messages that have come back and are due.
func (p *turnsPair) sortPending() {
	p.Helper()
	now, left := p.now(), p.pending[:0]
	for _, m := range p.pending {
		if m.Place > now {
			left = append(left, m)
		} else {
			p.order.Sort(now, m)
		}
	}
	p.pending = left
}

// claim compares a claim of up to n messages.
func (p *turnsPair) claim(n int) {
	p.Helper()
	c := claim(p, p.s, p.queue, n, 365*24*time.Hour)
	var got, want []string
	for _, m := range c.Messages {
		got = append(got, m.Key+" "+m.ID+" "+string(m.Urgency))
	}
	now := p.now()
	p.order.Wake(now, 1000)
	p.sortPending()
	for range n {
		m, ok := p.order.Head(now)
		if !ok {
			break
		}
		p.order.Start(now, m, true)
		want = append(want, m.Key+" "+m.ID+" "+string(m.Urgency))
	}
	if !slices.Equal(got, want) {
		p.Fatalf("a claim of %d messages\n got %q\nwant %q", n, got, want)
	}
	p.held = append(p.held, c.Messages...)
}

func TestTurnsHaveTheSameOrderInRedisAndGo(t *testing.T) {
	for seed := range uint64(24) {
		urgent := seed%2 == 1
		rnd := rand.New(rand.NewPCG(seed, 7))
		limits := store.KeyFlow{Weight: 1 << rnd.IntN(3)}
		if rnd.IntN(2) == 0 {
			limits.Concurrency = 1 + rnd.IntN(6)
		}
		if rnd.IntN(2) == 0 {
			limits.Rate = store.Rate{N: 1 + rnd.IntN(7), Per: time.Second, Burst: 1 + rnd.IntN(9)}
		}
		q := newLimitedQueue(t, fmt.Sprint("turns and order ", seed), store.Flow{Fair: true, Urgency: urgent, Key: limits})
		p := &turnsPair{limitedQueue: q, order: turns.New(limits), rnd: rnd, urgent: urgent}
		keys := 2 + rnd.IntN(12)
		for k := 1; k < keys; k += 1 + rnd.IntN(4) {
			weight := 1 << rnd.IntN(3) // passes are exact, so that ties are the same
			o := store.KeyOverride{Weight: &weight}
			p.ok(p.s.SetKeyFlow(t.Context(), p.queue, fmt.Sprintf("customer-number-%d", k), o))
			p.order.SetOverride(p.now(), fmt.Sprintf("customer-number-%d", k), o)
		}
		for range 40 {
			switch rnd.IntN(4) {
			case 0:
				p.send(keys)
			case 1:
				p.advance(time.Duration(rnd.IntN(900)) * time.Millisecond)
			case 2:
				rnd.Shuffle(len(p.held), func(i, j int) { p.held[i], p.held[j] = p.held[j], p.held[i] })
				n := rnd.IntN(len(p.held) + 1)
				p.ack(p.held[:n])
				for _, m := range p.held[:n] {
					p.order.Free(p.now(), m.Key, 1)
				}
				p.held = p.held[n:]
			}
			p.claim(1 + rnd.IntN(30))
			if got, want := p.flow().Keys, p.order.Counts(p.now()); got != want {
				t.Fatalf("seed %d: counts of keys: got %+v, want %+v", seed, got, want)
			}
		}
		if found := p.issues(false); len(found) > 0 {
			t.Errorf("seed %d: %q", seed, found)
		}
	}
}
