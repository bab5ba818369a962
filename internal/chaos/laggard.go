//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/laterq/later/store"
)

// laggard is the role of a process that settles and extends too late, on a queue of its own, so that no other claim
// ends its leases before. The engine must refuse that by its clock alone.
type laggard struct {
	role
	store   store.Store // records
	journal *journal
	sent    int
}

// lateActions are the settles that are made too late, each for the messages of one claim.
var lateActions = []store.Action{store.Ack, store.Nack, store.Snooze, store.Release, store.Bury, store.Ack}

const messagesPerLag = 2 // of a claim; acks of several take another path

// run sends messages, claims them and settles them when their lease has expired, again and again. In the end it acks
// all of them in time.
func (l *laggard) run(ctx context.Context) error {
	for ctx.Err() == nil {
		l.send(ctx)
		var claims []store.Claim
		for range lateActions {
			claims = append(claims, l.claim(ctx, messagesPerLag)...)
		}
		for i, c := range claims {
			if !sleep(ctx, time.Until(c.Deadline)+rand.N(30*time.Millisecond)) {
				break
			}
			if i%2 == 1 {
				l.store.Extend(ctx, l.Queues[0], []store.Extension{{Lease: c.Messages[0].Receipt.Lease, For: l.Lease}})
			}
			l.settle(ctx, c, lateActions[i%len(lateActions)])
		}
		for _, c := range l.claim(ctx, store.MaxBatch) {
			l.settle(ctx, c, store.Ack)
		}
	}
	end, cancel := context.WithTimeout(context.Background(), l.Lease+drainLimit)
	defer cancel()
	for end.Err() == nil {
		for _, c := range l.claim(end, store.MaxBatch) {
			l.settle(end, c, store.Ack)
		}
		s, err := l.store.Stats(end, l.Queues[0])
		if err == nil && s.Scheduled+s.Ready+s.Leased == 0 {
			break
		}
		sleep(end, 20*time.Millisecond)
	}
	return nil
}

// send sends enough messages for all actions. It repeats the call until its outcome is known.
func (l *laggard) send(ctx context.Context) {
	msgs := make([]store.Outgoing, messagesPerLag*len(lateActions))
	for i := range msgs {
		l.sent++
		id := fmt.Sprintf("%s-0-%d", l.Actor, l.sent)
		msgs[i].Message = store.Message{ID: id, Payload: makePayload(id, normal, 20)}
	}
	for {
		l.journal.put(func(add func(byte, int64, string, ...any)) {
			for i, at := 0, now(); i < len(msgs); i++ {
				add(beginSend, at, msgs[i].ID, msgs[i].ID, "+0", flagNone)
			}
		})
		results, err := l.store.Send(ctx, l.Queues[0], msgs)
		known := true
		l.journal.put(func(add func(byte, int64, string, ...any)) {
			for i, at := 0, now(); i < len(msgs); i++ {
				outcome := outcomeOf(err)
				if err == nil {
					outcome = outcomeOf(results[i].Err)
					if outcome == outcomeOK && results[i].Duplicate {
						outcome = outcomeDuplicate
					}
				}
				known = known && (outcome == outcomeOK || outcome == outcomeDuplicate)
				add(endSend, at, msgs[i].ID, outcome)
			}
		})
		if known || !sleep(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// claim returns one claim, or none.
func (l *laggard) claim(ctx context.Context, n int) []store.Claim {
	c, err := l.store.Claim(ctx, l.Queues[0], store.ClaimRequest{Max: n, Lease: l.Lease})
	if err != nil {
		sleep(ctx, 20*time.Millisecond)
	}
	if len(c.Messages) == 0 {
		return nil
	}
	return []store.Claim{c}
}

// settle settles the messages of a claim with one call.
func (l *laggard) settle(ctx context.Context, c store.Claim, action store.Action) {
	all := make([]store.Settlement, len(c.Messages))
	for i := range all {
		all[i] = store.Settlement{Receipt: c.Messages[i].Receipt, Action: action}
	}
	l.store.Settle(ctx, l.Queues[0], all)
}
