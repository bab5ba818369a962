//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/laterq/later"
)

// Calls of producers for groups.
const (
	cancelGroup     = "cancel"
	rescheduleGroup = "reschedule"
)

// sendGroup sends messages in a group. Most groups are then cancelled, while some of their messages may be handled, or
// rescheduled to be due within the run.
func (p *producer) sendGroup(trying context.Context, q *later.Queue, random *rand.Rand, keys []string) {
	group, do := "group-"+keys[0], ""
	switch random.IntN(5) {
	case 0, 1:
		do = cancelGroup
	case 2, 3:
		do = rescheduleGroup
	}
	msgs := make([]later.Outgoing, len(keys))
	dues, flags := make([]string, len(keys)), make([]string, len(keys))
	p.journal.put(func(add func(byte, int64, string, ...any)) {
		for i, key := range keys {
			msgs[i], dues[i], flags[i] = p.outgoing(q, random, key)
			msgs[i].Group = group
			if do == rescheduleGroup {
				msgs[i].When, dues[i], flags[i] = later.In(p.Far), fmt.Sprint("+", p.Far.Milliseconds()),
					string(flagFar)
				msgs[i].DedupWindow = 0
			}
			add(grouped, now(), key, group)
		}
	})
	p.untilSent(trying, q, msgs, append([]string(nil), keys...), dues, flags)
	if do != "" {
		wait := time.Duration(random.Int64N(int64(p.Spread)))
		// In whole milliseconds, as in the journal: the rest of one would make the message due after the time that the
		// rule expects.
		delay := time.Duration(random.Int64N(p.Spread.Milliseconds())) * time.Millisecond
		p.followUps.Go(func() { p.changeGroup(trying, q, do, group, keys, wait, delay) })
	}
}

// changeGroup cancels or reschedules a group until the outcome is known.
func (p *producer) changeGroup(
	trying context.Context, q *later.Queue, do, group string, keys []string, wait, delay time.Duration,
) {
	sleep(trying, wait)
	for trying.Err() == nil {
		begin := now()
		p.journal.put(func(add func(byte, int64, string, ...any)) {
			for _, key := range keys {
				if do == cancelGroup {
					add(beginCancel, begin, key)
				} else {
					add(beginReschedule, begin, key, fmt.Sprint("+", delay.Milliseconds()))
				}
			}
		})
		ctx, cancel := context.WithTimeout(trying, 15*time.Second)
		changed, kept, err := changeGroup(ctx, q, do, group, delay)
		cancel()
		end := now()
		p.journal.put(func(add func(byte, int64, string, ...any)) {
			for _, key := range keys { // the reply does not say which messages were changed
				if do == cancelGroup {
					add(endCancel, end, key, outcomeGroup)
				} else {
					add(endReschedule, end, key, outcomeGroup)
				}
			}
			add(groupChanged, end, "-", group, do, begin, delay.Milliseconds(), outcomeOf(err), changed, kept)
		})
		if err == nil {
			return
		}
		sleep(trying, 20*time.Millisecond)
	}
}

// changeGroup returns how many messages of the group it changed, and how many it left as they were.
func changeGroup(
	ctx context.Context, q *later.Queue, do, group string, delay time.Duration,
) (changed, kept int, err error) {
	if do == cancelGroup {
		result, err := q.CancelGroup(ctx, group)
		return result.Total(), 0, err
	}
	result, err := q.RescheduleGroup(ctx, group, later.In(delay))
	return result.Rescheduled, result.Leased + result.Dead, err
}

// disruptGroups kills the server, loses replies or delays requests.
func disruptGroups(ctx context.Context, r *run) error {
	switch r.injected % 3 {
	case 1:
		return loseReplies(ctx, r)
	case 2:
		return delayRequests(ctx, r)
	}
	return killServer(ctx, r)
}
