//go:build unix

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// producer is the role of a process that sends messages in various ways at a given rate. It repeats each send with the
// same id until the outcome is known.
type producer struct {
	role
	client    *later.Client
	queues    []*later.Queue
	journal   *journal
	followUps sync.WaitGroup
	refused   sync.Map // when a queue refused a message because of its urgency at last, by name
}

// senders returns the number of sending goroutines. Several let sends travel in one batch. At high rates each must not
// have to send faster than a server with appendfsync always replies.
func (r role) senders() int {
	if r.Clients > 0 {
		return 1
	}
	return max(4, r.Rate/150)
}

// resendLimit is how long a stopping producer tries to learn the outcome of its last sends.
const resendLimit = 20 * time.Second

func newProducer(r role, s store.Store, j *journal, log *slog.Logger) (*producer, error) {
	client, err := later.New(s, append(r.clientOptions(), later.WithLogger(log))...)
	if err != nil {
		return nil, err
	}
	p := &producer{role: r, client: client, journal: j}
	for _, name := range r.Queues {
		p.queues = append(p.queues, p.client.Queue(name))
	}
	return p, nil
}

func (p *producer) run(ctx context.Context) error {
	trying, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(resendLimit, cancel) })()
	var sending sync.WaitGroup
	for i := range p.senders() {
		sending.Go(func() { p.send(ctx, trying, i) })
	}
	sending.Wait()
	p.followUps.Wait()
	return p.client.Close()
}

// send runs one sending goroutine until ctx is done. Calls use trying as their context.
func (p *producer) send(ctx, trying context.Context, sender int) {
	random, senders := rand.New(rand.NewPCG(p.Seed, uint64(sender))), time.Duration(p.senders())
	next := time.Now()
	for n := 0; ctx.Err() == nil; {
		key := func() string { n++; return fmt.Sprintf("%s-%d-%d", p.Actor, sender, n) }
		q := p.queues[random.IntN(len(p.queues))]
		before := n
		do := random.IntN(10)
		if p.ordered(q) && (do == 9 || do == 8 && !p.Sharded) {
			inOneCall := do == 9
			if p.Sharded {
				inOneCall = random.IntN(2) == 0
			}
			p.sendInOrder(trying, q, random, inOneCall, key)
			do = -1
		}
		if p.Sharded && do >= 8 {
			p.sendOnce(trying, q, random, key())
			do = -1
		}
		switch do {
		case -1:
		case 0:
			p.sendGenerated(trying, q, random, key())
		case 1, 2:
			size := 2 + random.IntN(30)
			if p.Keyed && random.IntN(25) == 0 {
				size = floodSize
			}
			keys := make([]string, size)
			for i := range keys {
				keys[i] = key()
			}
			switch {
			case p.Grouped:
				p.sendGroup(trying, q, random, keys)
			case size == floodSize:
				p.flood(trying, q, random, keys)
			default:
				p.sendBatch(trying, q, random, keys)
			}
		default:
			p.sendWithID(trying, q, random, key())
		}
		next = next.Add(time.Duration(n-before) * senders * time.Second / time.Duration(p.Rate))
		if behind := time.Since(next); behind > 100*time.Millisecond {
			next = next.Add(behind) // do not catch up after an outage
		}
		sleep(ctx, time.Until(next))
	}
}

// attemptTimeout returns the timeout of one attempt. It is long, so that the store can retry, but occasionally so short
// that the attempt is interrupted.
func attemptTimeout(random *rand.Rand) time.Duration {
	if random.IntN(50) == 0 {
		return time.Duration(random.IntN(20)) * time.Millisecond
	}
	return 15 * time.Second
}

// sendGenerated sends a message with an id that the client generates. If that fails, it retries with the generated id.
func (p *producer) sendGenerated(trying context.Context, q *later.Queue, random *rand.Rand, key string) {
	o, due, flags := p.outgoing(q, random, key)
	o.ID = ""
	ctx, cancel := context.WithTimeout(trying, attemptTimeout(random))
	call := now()
	options := []later.SendOption{o.When, later.Headers(o.Headers)}
	if o.Key != "" {
		options = append(options, later.Key(o.Key))
	}
	if o.MaxAttempts > 0 {
		options = append(options, later.MaxAttempts(o.MaxAttempts))
	}
	options = append(options, urgent(&o)...)
	id, err := q.Send(ctx, o.Payload, options...)
	cancel()
	p.journal.put(func(add func(byte, int64, string, ...any)) {
		add(beginSend, call, id, key, due, plainFlags(flags), o.Key, o.MaxAttempts, 0, string(o.Urgency),
			q.Name())
		add(endSend, now(), id, outcomeOf(err))
	})
	if p.refusedBy(q, err) {
		return
	}
	if err != nil {
		again := later.Outgoing{ID: id, Payload: o.Payload, When: o.When, Headers: o.Headers, Key: o.Key,
			MaxAttempts: o.MaxAttempts, Urgency: o.Urgency}
		p.untilSent(trying, q, []later.Outgoing{again}, []string{key}, []string{due}, []string{plainFlags(flags)})
	}
}

// plainFlags returns the flags that also apply to a send without options.
func plainFlags(flags string) string {
	kept := strings.Map(func(flag rune) rune {
		if flag == flagFar || flag == flagDurable {
			return flag
		}
		return -1
	}, flags)
	return cmp.Or(kept, flagNone)
}

// likelyLive is the shortest delay in ms of messages that are most likely still live when sent again at once.
const likelyLive = 100

// sendWithID sends a message with its own id. Occasionally it sends the message again, cancels it or reschedules it.
func (p *producer) sendWithID(trying context.Context, q *later.Queue, random *rand.Rand, key string) {
	o, due, flags := p.outgoing(q, random, key)
	options := []later.SendOption{later.WithID(o.ID)}
	if due != atOnce {
		options = append(options, o.When)
	}
	if o.DedupWindow > 0 {
		options = append(options, later.DedupWindow(o.DedupWindow))
	}
	if o.MaxAttempts > 0 {
		options = append(options, later.MaxAttempts(o.MaxAttempts))
	}
	if o.ExpireAfter > 0 {
		options = append(options, later.ExpireAfter(o.ExpireAfter))
	}
	if o.Headers != nil {
		options = append(options, later.Headers(o.Headers))
	}
	if o.Key != "" {
		options = append(options, later.Key(o.Key))
	}
	options = append(options, urgent(&o)...)
	more := 0
	if delay, _ := strconv.Atoi(strings.TrimPrefix(due, "+")); delay >= likelyLive && random.IntN(20) == 0 {
		more = 1
	}
	for trying.Err() == nil {
		ctx, cancel := context.WithTimeout(trying, attemptTimeout(random))
		p.journal.one(beginSend, now(), o.ID, key, due, flags, o.Key, o.MaxAttempts, 0, string(o.Urgency), q.Name())
		_, err := q.Send(ctx, o.Payload, options...)
		cancel()
		p.journal.one(endSend, now(), o.ID, outcomeOf(err))
		switch {
		case p.refusedBy(q, err):
			return
		case err != nil && !errors.Is(err, later.ErrDuplicate):
			sleep(trying, 20*time.Millisecond)
			continue
		case more > 0:
			more--
			continue
		}
		break
	}
	if o.DedupWindow > 0 && random.IntN(5) == 0 {
		wait := time.Duration(random.Int64N(int64(2 * p.Spread)))
		p.followUps.Go(func() {
			sleep(trying, wait) // most likely until it is acked
			p.untilSent(trying, q, []later.Outgoing{o}, []string{key}, []string{due}, []string{flags})
		})
	}
	wait := time.Duration(random.Int64N(int64(p.Spread)))
	if p.Sharded && strings.ContainsRune(flags, flagFar) {
		p.followUps.Go(func() { p.lookFor(trying, q, o.ID, wait) })
	}
	switch far := strings.ContainsRune(flags, flagFar); {
	case p.ordered(q) && random.IntN(30) == 0:
		p.followUps.Go(func() { p.cancelAfter(trying, q, o.ID, wait/4) })
	case random.IntN(100) == 0, far && random.IntN(4) == 0:
		p.followUps.Go(func() { p.cancelAfter(trying, q, o.ID, wait) })
	case far && random.IntN(2) == 0, p.ordered(q) && random.IntN(15) == 0:
		delay := time.Duration(random.Int64N(int64(p.Spread)))
		p.followUps.Go(func() { p.rescheduleAfter(trying, q, o.ID, wait, delay) })
	}
}

// rescheduleAfter reschedules a message that is due far in the future, until the outcome is known.
func (p *producer) rescheduleAfter(trying context.Context, q *later.Queue, id string, wait, delay time.Duration) {
	sleep(trying, wait)
	for trying.Err() == nil {
		p.journal.one(beginReschedule, now(), id, fmt.Sprint("+", delay.Milliseconds()))
		ctx, cancel := context.WithTimeout(trying, 15*time.Second)
		err := q.Reschedule(ctx, id, later.In(delay))
		cancel()
		p.journal.one(endReschedule, now(), id, outcomeOf(err))
		if err == nil || errors.Is(err, later.ErrNotFound) || errors.Is(err, later.ErrLeased) ||
			errors.Is(err, later.ErrDead) {
			return
		}
		sleep(trying, 20*time.Millisecond)
	}
}

func (p *producer) cancelAfter(trying context.Context, q *later.Queue, id string, wait time.Duration) {
	sleep(trying, wait)
	for trying.Err() == nil {
		p.journal.one(beginCancel, now(), id)
		ctx, cancel := context.WithTimeout(trying, 15*time.Second)
		state, err := q.Cancel(ctx, id)
		cancel()
		outcome := string(state)
		if err != nil {
			outcome = outcomeOf(err)
		}
		p.journal.one(endCancel, now(), id, outcome)
		if err == nil || errors.Is(err, later.ErrNotFound) {
			return
		}
		sleep(trying, 20*time.Millisecond)
	}
}

func (p *producer) sendBatch(trying context.Context, q *later.Queue, random *rand.Rand, keys []string) {
	msgs := make([]later.Outgoing, len(keys))
	dues, flags := make([]string, len(keys)), make([]string, len(keys))
	normally := p.refuses(q, random)
	for i, key := range keys {
		if msgs[i], dues[i], flags[i] = p.outgoing(q, random, key); normally {
			msgs[i].Urgency = later.UrgencyNormal
		}
	}
	p.untilSent(trying, q, msgs, keys, dues, flags)
}

// untilSent sends messages with their own ids until each is known to be sent, or refused because of its urgency.
func (p *producer) untilSent(
	trying context.Context, q *later.Queue, msgs []later.Outgoing, keys, dues, flags []string,
) {
	for len(msgs) > 0 && trying.Err() == nil {
		p.journal.put(func(add func(byte, int64, string, ...any)) {
			at := now()
			for i := range msgs {
				add(beginSend, at, msgs[i].ID, keys[i], dues[i], flags[i], msgs[i].Key, msgs[i].MaxAttempts, i+1,
					urgencyIn(msgs, i), q.Name())
			}
		})
		ctx, cancel := context.WithTimeout(trying, 15*time.Second)
		results, err := q.SendBatch(ctx, msgs)
		cancel()
		left := 0
		p.journal.put(func(add func(byte, int64, string, ...any)) {
			at := now()
			for i := range msgs {
				outcome := outcomeOf(err)
				if results != nil {
					outcome = outcomeOf(results[i].Err)
					if outcome == outcomeOK && results[i].Duplicate { // a duplicate need not be durable
						outcome = outcomeDuplicate
					}
				}
				add(endSend, at, msgs[i].ID, outcome)
				if outcome == outcomeInvalid {
					p.refused.Store(q.Name(), time.Now())
				} else if outcome != outcomeOK && outcome != outcomeDuplicate {
					msgs[left], keys[left], dues[left], flags[left] = msgs[i], keys[i], dues[i], flags[i]
					left++
				}
			}
		})
		if msgs = msgs[:left]; left > 0 {
			sleep(trying, 20*time.Millisecond)
		}
	}
}

// clientOptions returns the options of a producer's client.
func (r role) clientOptions() []later.Option {
	if r.Durable == 0 {
		return nil
	}
	return []later.Option{later.Durable(r.Durable, time.Second)}
}

// ordered reports whether the keys of a queue have an order most of the time.
func (p *producer) ordered(q *later.Queue) bool {
	return slices.Contains(p.queues[len(p.queues)-p.Ordered:], q)
}

// sendInOrder sends some messages with one key without a delay: one after the other, or all with one call.
func (p *producer) sendInOrder(
	trying context.Context, q *later.Queue, random *rand.Rand, inOneCall bool, name func() string,
) {
	own, normally := keyOf(random), p.refuses(q, random)
	var msgs []later.Outgoing
	var keys, dues, flags []string
	for range 2 + random.IntN(8) {
		key := name()
		o := later.Outgoing{ID: p.idOf(key, own), Payload: makePayload(key, normal, p.PayloadMin), Key: own}
		if !normally {
			o.Urgency = urgencyOf(random, 40, 25)
		}
		msgs = append(msgs, o)
		keys, dues, flags = append(keys, key), append(dues, atOnce), append(flags, flagNone)
	}
	if inOneCall {
		p.untilSent(trying, q, msgs, keys, dues, flags)
		return
	}
	for i := range msgs {
		p.untilSent(trying, q, msgs[i:i+1], keys[i:i+1], dues[i:i+1], flags[i:i+1])
	}
}
