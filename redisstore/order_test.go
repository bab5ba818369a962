package redisstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// settle settles some of the held messages in several ways, in one call.
func (p *turnsPair) settle(n int) {
	p.Helper()
	if n == 0 {
		return
	}
	now := p.now()
	settlements := make([]store.Settlement, n)
	for i, m := range p.held[:n] {
		s := store.Settlement{Receipt: m.Receipt, Action: store.Ack + store.Action(p.rnd.IntN(6)), Reason: "no"}
		if s.Action == store.Nack || s.Action == store.Snooze {
			s.Delay = time.Duration(p.rnd.IntN(3)*p.rnd.IntN(300)) * time.Millisecond
		}
		settlements[i] = s
	}
	results, err := p.s.Settle(p.Context(), p.queue, settlements)
	p.ok(err)
	for i, m := range p.held[:n] {
		due := now / 1000
		if delay := settlements[i].Delay.Milliseconds(); delay > 0 {
			due = (now+999)/1000 + delay
		}
		if settlements[i].Action == store.Release {
			due = m.Due.UnixMilli()
		}
		switch results[i].State {
		case store.StateDead:
			p.order.Halt(now, m.Key, m.ID)
			p.dead = append(p.dead, turns.Message{Key: m.Key, ID: m.ID, Urgency: m.Urgency})
		case store.StateScheduled, store.StateReady:
			p.order.Keep(now, m.Key, m.ID)
			p.pending = append(p.pending, turns.Message{Key: m.Key, Place: due * 1000, ID: m.ID, Urgency: m.Urgency})
		}
		p.order.Free(now, m.Key, 1)
	}
	p.held = p.held[n:]
}

// changeDead replays or removes a dead message, or resumes its key.
func (p *turnsPair) changeDead() {
	p.Helper()
	if len(p.dead) == 0 {
		return
	}
	i, now := p.rnd.IntN(len(p.dead)), p.now()
	m := p.dead[i]
	switch p.rnd.IntN(3) {
	case 0:
		one := store.Selection{State: store.StateDead, IDs: []string{m.ID}}
		_, err := p.s.Replay(p.Context(), p.queue, one, store.Due{})
		p.ok(err)
		p.order.Revive(now, m.ID)
		m.Place = now / 1000 * 1000
		p.pending = append(p.pending, m)
	case 1:
		_, err := p.s.Cancel(p.Context(), p.queue, store.CancelRequest{IDs: []string{m.ID}})
		p.ok(err)
		p.order.Drop(now, m.ID)
	case 2:
		err := p.s.ResumeKey(p.Context(), p.queue, m.Key)
		if resumed := p.order.Resume(now, m.Key); m.Key != "" && resumed != (err == nil) ||
			err != nil && m.Key != "" && !errors.Is(err, store.ErrNotFound) {
			p.Fatalf("resuming %q: %v, in Go %v", m.Key, err, resumed)
		}
		return
	}
	p.dead = slices.Delete(p.dead, i, i+1)
}

// cancelPending removes a message that has come back and is not due yet.
func (p *turnsPair) cancelPending() {
	p.Helper()
	if len(p.pending) == 0 {
		return
	}
	i := p.rnd.IntN(len(p.pending))
	_, err := p.s.Cancel(p.Context(), p.queue, store.CancelRequest{IDs: []string{p.pending[i].ID}})
	p.ok(err)
	p.order.Drop(p.now(), p.pending[i].ID)
	p.pending = slices.Delete(p.pending, i, i+1)
}

func TestOrderedKeysAreTheSameInRedisAndGo(t *testing.T) {
	for seed := range uint64(24) {
		urgent := seed%2 == 1
		rnd := rand.New(rand.NewPCG(seed, 11))
		limits := store.KeyFlow{Weight: 1 << rnd.IntN(3), Order: store.OrderContinue}
		if rnd.IntN(2) == 0 {
			limits.Order = store.OrderHalt
		}
		if rnd.IntN(2) == 0 {
			limits.Rate = store.Rate{N: 1 + rnd.IntN(7), Per: time.Second, Burst: 1 + rnd.IntN(9)}
		}
		limits = limits.Normal()
		q := newLimitedQueue(t, fmt.Sprint("order ", seed), store.Flow{Fair: true, Urgency: urgent, Key: limits})
		p := &turnsPair{limitedQueue: q, order: turns.New(limits), rnd: rnd, ordered: true, urgent: urgent}
		keys := 2 + rnd.IntN(6)
		for range 80 {
			switch rnd.IntN(7) {
			case 0:
				p.send(keys)
			case 1, 2:
				p.advance(time.Duration(rnd.IntN(400)) * time.Millisecond)
			case 3, 4:
				rnd.Shuffle(len(p.held), func(i, j int) { p.held[i], p.held[j] = p.held[j], p.held[i] })
				p.settle(rnd.IntN(len(p.held) + 1))
			case 5:
				p.changeDead()
			case 6:
				p.cancelPending()
			}
			p.claim(1 + rnd.IntN(12))
			if got, want := p.flow().Keys, p.order.Counts(p.now()); got != want {
				t.Fatalf("seed %d: counts of keys: got %+v, want %+v", seed, got, want)
			}
		}
		if found := p.issues(false); len(found) > 0 {
			t.Errorf("seed %d: %q", seed, found)
		}
	}
}

func (q *limitedQueue) claimOne(want string) store.Claimed {
	q.Helper()
	c, err := q.s.Claim(q.Context(), q.queue, store.ClaimRequest{Max: 1, Lease: time.Hour})
	q.ok(err)
	if len(c.Messages) != 1 || c.Messages[0].ID != want {
		q.Fatalf("claimed %v, want %q", c.Messages, want)
	}
	return c.Messages[0]
}

var ordered = store.Flow{Fair: true, Key: store.KeyFlow{Order: store.OrderHalt}}

func TestTheFenceStaysInALeaseThatBecomesShorter(t *testing.T) {
	q := newLimitedQueue(t, "fence", ordered)
	for _, key := range []string{"a", "b", "c"} {
		q.sendKeyed(key, store.Due{}, key)
	}
	c := claim(t, q.s, q.queue, 3, time.Hour)
	fence := c.Messages[0].Fence
	for i, action := range []store.Action{store.Nack, store.Ack} {
		q.ok(q.settle(c.Messages[i].Receipt, action))
		text, err := q.rdb.HGet(t.Context(), q.key("leases"), c.Messages[0].Receipt.Lease).Result()
		q.ok(err)
		if got := fenceIn(text); got != fence || fence == 0 {
			t.Errorf("after a %v the lease has the fence %d, want %d", action, got, fence)
		}
	}
}

func TestAResumeOfAKeyThatIsNotHaltedSaysSo(t *testing.T) {
	q := newLimitedQueue(t, "not halted", ordered)
	if err := q.s.ResumeKey(t.Context(), q.queue, "k"); err != store.ErrNotFound {
		t.Errorf("ResumeKey returns %v", err)
	}
}

// A key that goes on lets a process claim.
func TestEndsOfHoldsLetAProcessClaim(t *testing.T) {
	a, dead := []string{"a"}, store.Selection{State: store.StateDead}
	for name, ends := range map[string]struct {
		action store.Action // how the message that holds the key left its lease
		do     func(o *observed) error
	}{
		"cancel": {store.Nack, func(o *observed) error {
			_, err := o.s.Cancel(o.Context(), o.queue, store.CancelRequest{IDs: a})
			return err
		}},
		"purge": {store.Nack, func(o *observed) error {
			_, err := o.s.Purge(o.Context(), o.queue, store.Selection{State: store.StateScheduled})
			return err
		}},
		"replace": {store.Nack, func(o *observed) error {
			_, err := o.s.Send(o.Context(), o.queue, []store.Outgoing{{Message: store.Message{ID: "a", Key: "z"},
				Due: store.Due{Delay: time.Hour}, OnDuplicate: store.OnDuplicate{Mode: store.DuplicateReplace}}})
			return err
		}},
		"reschedule": {store.Nack, func(o *observed) error {
			_, err := o.s.Reschedule(o.Context(), o.queue, a, store.Due{})
			return err
		}},
		"cancel of a dead one": {store.Bury, func(o *observed) error {
			_, err := o.s.Cancel(o.Context(), o.queue, store.CancelRequest{IDs: a})
			return err
		}},
		"purge of dead ones": {store.Bury, func(o *observed) error {
			_, err := o.s.Purge(o.Context(), o.queue, dead)
			return err
		}},
		"resume": {store.Bury, func(o *observed) error { return o.s.ResumeKey(o.Context(), o.queue, "k") }},
		"replay": {store.Bury, func(o *observed) error {
			_, err := o.s.Replay(o.Context(), o.queue, dead, store.Due{})
			return err
		}},
		"continue": {store.Bury, func(o *observed) error { return o.s.SetFlow(o.Context(), o.queue, continues, nil) }},
		"no order": {store.Bury, func(o *observed) error {
			return o.s.SetFlow(o.Context(), o.queue, store.Flow{Fair: true}, nil)
		}},
		"no flow": {store.Bury, func(o *observed) error {
			return o.s.SetFlow(o.Context(), o.queue, store.Flow{}, nil)
		}},
	} {
		o := observe(t, "end of a hold: "+name, ordered)
		o.sendKeyed("k", store.Due{}, "a", "b")
		o.ok(o.settle(o.claimOne("a").Receipt, ends.action))
		o.claim(1)
		o.notifies(name, "0s", func() { o.ok(ends.do(o)) })
	}
}

// Former entries of messages are in their lane, and the clock of the test stands still.
func TestAMessageThatIsSentAgainInTheSameMillisecondStartsOnce(t *testing.T) {
	q := newLimitedQueue(t, "sent again", ordered)
	q.sendKeyed("k", store.Due{}, "a", "b")
	entries, err := q.rdb.ZRange(t.Context(), q.key("lanes"), 0, -1).Result()
	q.ok(err)
	_, err = q.s.Purge(t.Context(), q.queue, store.Selection{State: store.StateReady})
	q.ok(err)
	q.sendKeyed("k", store.Due{}, "b", "a")
	for _, entry := range entries { // as if the purge had left them
		q.ok(q.rdb.ZAdd(t.Context(), q.key("lanes"), redis.Z{Member: entry}).Err())
	}
	to := store.Target{Kind: store.TargetList, Name: "list of {sent again}"}
	f, err := q.s.Forward(t.Context(), q.queue, store.ForwardRequest{Max: 10, To: to, IDs: true})
	q.ok(err)
	if len(f.IDs) != 2 || q.entries("due") > 0 {
		t.Errorf("moved %q, and %d are left", f.IDs, q.entries("due"))
	}
	if c, err := q.s.Claim(t.Context(), q.queue, store.ClaimRequest{Max: 1, Lease: time.Hour}); err != nil ||
		len(c.Messages) > 0 {
		t.Errorf("claimed %v, %v", c.Messages, err)
	}
	if n := q.entries("lanes"); n > 0 {
		t.Errorf("%d entries are left", n)
	}
}

func TestAHolderThatIsMissingFreesItsKey(t *testing.T) {
	q := newLimitedQueue(t, "missing holder", ordered)
	q.sendKeyed("k", store.Due{}, "a", "b")
	q.ok(q.settle(q.claimOne("a").Receipt, store.Release))
	q.ok(q.rdb.HDel(t.Context(), q.key("messages"), "a").Err())
	if c := claim(t, q.s, q.queue, 1, time.Hour); len(c.Messages) > 0 {
		t.Fatalf("claimed %v", c.Messages)
	}
	q.claimOne("b")
	if n := q.entries("turns") + q.entries("rests"); n > 0 {
		t.Errorf("%d keys wait", n)
	}
}

// A message that was sent before the clock was set back comes back from a lease that counts no attempt.
func TestAMessageThatComesBackUntouchedStartsWhateverTheClockSays(t *testing.T) {
	q := newLimitedQueue(t, "set back", ordered)
	q.sendKeyed("k", store.Due{}, "b", "a")
	q.advance(-time.Hour)
	q.ok(q.settle(q.claimOne("b").Receipt, store.Release))
	for range 2 {
		c, err := q.s.Claim(t.Context(), q.queue, store.ClaimRequest{Max: 9, Lease: time.Minute, Uncounted: true})
		q.ok(err)
		if len(c.Messages) != 1 || c.Messages[0].ID != "b" {
			t.Fatalf("claimed %v, want b", c.Messages)
		}
		q.advance(time.Minute)
	}
	q.ok(q.settle(q.claimOne("b").Receipt, store.Ack))
	q.claimOne("a")
}

// A message that holds its key and cannot be read any more, or has another key now, does not block the key.
func TestAHolderWithOtherBytesFreesItsKey(t *testing.T) {
	for name, value := range map[string]string{"newer": "\xff", "damaged": "\x81abc", "no key": "\x00x"} {
		q := newLimitedQueue(t, "other bytes "+name, ordered)
		q.sendKeyed("k", store.Due{}, "a", "b")
		q.ok(q.settle(q.claimOne("a").Receipt, store.Snooze))
		q.ok(q.rdb.HSet(t.Context(), q.key("messages"), "a", value).Err())
		// As a send by a newer version.
		q.ok(q.rdb.HSet(t.Context(), q.key("meta"), "inspect_envelopes", 1).Err())
		q.advance(time.Hour)
		var started []string
		for range 3 {
			for _, m := range claim(t, q.s, q.queue, 9, time.Hour).Messages {
				started = append(started, m.ID)
			}
		}
		if !slices.Contains(started, "b") {
			t.Errorf("%s: %q start", name, started)
		}
		q.noIssues()
	}
}

// A message with a place in the same ms that is not the due time is found in its lane when it is removed.
func TestMessagesOfOneMillisecondLeaveTheirLane(t *testing.T) {
	q := newLimitedQueue(t, "one ms", ordered)
	q.sendMany(700, "k")
	var ids []string
	for i := range 400 {
		ids = append(ids, fmt.Sprintf("k%03d", i))
	}
	_, err := q.s.Cancel(t.Context(), q.queue, store.CancelRequest{IDs: ids})
	q.ok(err)
	if n := q.entries("lanes"); n != 300 {
		t.Errorf("the lanes have %d entries, want 300", n)
	}
	q.claimOne("k400")
}

// A forwarded message brings its place along to a queue that no message was sent to.
func TestAForwardedMessageLeavesItsLane(t *testing.T) {
	q, to := newLimitedQueue(t, "places", ordered), newLimitedQueue(t, "places to", ordered)
	q.advance(1500 * time.Microsecond) // places in us that are not due times in ms
	q.sendKeyed("k", store.Due{}, "b", "a")
	forward(t, q.s, q.queue, store.Target{Kind: store.TargetQueue, Name: to.queue}, 10, 2)
	_, err := to.s.Cancel(t.Context(), to.queue, store.CancelRequest{IDs: []string{"a", "b"}})
	to.ok(err)
	if n := to.entries("lanes") + to.entries("turns"); n > 0 {
		t.Errorf("%d entries are left", n)
	}
}

// The entry that a message left in the lane of its former key does not take it out of its lane.
func TestAMessageInTwoLanesStartsWithItsKey(t *testing.T) {
	q := newLimitedQueue(t, "two lanes", ordered)
	q.sendKeyed("k", store.Due{}, "a")
	entries, err := q.rdb.ZRange(t.Context(), q.key("lanes"), 0, -1).Result()
	q.ok(err)
	q.ok(q.rdb.ZAdd(t.Context(), q.key("lanes"), redis.Z{Member: "b" + entries[0][1:]}).Err())
	q.ok(q.rdb.ZAdd(t.Context(), q.key("turns"), redis.Z{Member: "b"}).Err())
	if m := q.claimOne("a"); m.Key != "k" {
		t.Errorf("claimed with key %q", m.Key)
	}
	if n := q.entries("lanes"); n > 0 {
		t.Errorf("%d entries are left", n)
	}
}
