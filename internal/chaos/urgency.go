//go:build unix

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/laterq/later"
)

// Under the flow faults producers send messages of high, normal and low urgency. A queue whose flow has no Urgency at
// the moment refuses all of a call with a message of high or low urgency; its messages are then given up.

// mixedUrgency stands in the journal for the urgency of a normal message that one call sends with others.
const mixedUrgency = "mixed"

// refusedFor is how long a producer mostly sends normal messages to a queue after a refusal.
const refusedFor = 300 * time.Millisecond

// floodSize is the number of messages that one call sends now and then, most of them of high urgency, so that others
// get only their share of the starts for a while.
const floodSize = 260

// refusedBy reports whether a queue refused a message because of its urgency.
func (p *producer) refusedBy(q *later.Queue, err error) bool {
	if !errors.Is(err, later.ErrInvalid) {
		return false
	}
	p.refused.Store(q.Name(), time.Now())
	return true
}

// refuses reports whether a call should send only normal messages, because the queue has refused others. It is false
// for some of the calls.
func (p *producer) refuses(q *later.Queue, random *rand.Rand) bool {
	at, ok := p.refused.Load(q.Name())
	if p.Sharded { // its urgency stays as it is
		return ok && random.IntN(50) > 0
	}
	return ok && time.Since(at.(time.Time)) < refusedFor && random.IntN(10) > 0
}

// urgent returns the option for the urgency of a message.
func urgent(o *later.Outgoing) []later.SendOption {
	switch o.Urgency {
	case later.UrgencyHigh:
		return []later.SendOption{later.Urgent()}
	case later.UrgencyLow:
		return []later.SendOption{later.Background()}
	}
	return nil
}

// urgencyIn returns the urgency of a message for the journal, given all messages of its call.
func urgencyIn(msgs []later.Outgoing, i int) string {
	if u := msgs[i].Urgency; u != later.UrgencyNormal {
		return string(u)
	}
	if slices.ContainsFunc(msgs, func(o later.Outgoing) bool { return o.Urgency != later.UrgencyNormal }) {
		return mixedUrgency
	}
	return ""
}

// urgencyOf returns an urgency for a message: high or low for so many of 100.
func urgencyOf(random *rand.Rand, high, low int) later.Urgency {
	switch n := random.IntN(100); {
	case n < high:
		return later.UrgencyHigh
	case n < high+low:
		return later.UrgencyLow
	}
	return later.UrgencyNormal
}

// flood sends messages without a delay in one call.
func (p *producer) flood(trying context.Context, q *later.Queue, random *rand.Rand, keys []string) {
	msgs := make([]later.Outgoing, len(keys))
	dues, flags := make([]string, len(keys)), make([]string, len(keys))
	normally := p.refuses(q, random)
	for i, key := range keys {
		own := keyOf(random)
		msgs[i] = later.Outgoing{ID: p.idOf(key, own), Payload: makePayload(key, normal, p.PayloadMin), Key: own}
		if dues[i], flags[i] = atOnce, flagNone; !normally {
			msgs[i].Urgency = urgencyOf(random, 85, 4)
		}
	}
	p.untilSent(trying, q, msgs, keys, dues, flags)
}
