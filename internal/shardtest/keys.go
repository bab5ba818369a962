package shardtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

// keysFlows are the limits of the queues of RunKeys.
var keysFlows = []store.Flow{
	{Key: store.KeyFlow{Order: store.OrderHalt}},
	{Concurrency: 6, Urgency: true, Key: store.KeyFlow{Order: store.OrderContinue}},
	{Fair: true, Key: store.KeyFlow{Concurrency: 2, Rate: store.Rate{N: 2, Per: time.Second, Burst: 2}}},
	{Concurrency: 8, Rate: store.Rate{N: 10, Per: time.Second, Burst: 7}},
	{Rate: store.Rate{N: 7, Per: 3 * time.Second, Burst: 5}, Key: store.KeyFlow{Order: store.OrderContinue,
		Rate: store.Rate{N: 1, Per: time.Second, Burst: 3}}},
}

// RunKeys runs random histories of messages with keys over queues with limits, while the number of shards changes again
// and again, in parts that may be interrupted at any call of the engine. The order and the limits of keys, and the
// limits of the queue, hold at every moment, and no message is left.
func RunKeys(t *testing.T, histories int, engine func(t *testing.T) Engine) {
	for seed := range uint64(histories) {
		for i, flow := range keysFlows {
			t.Run(fmt.Sprintf("flow %d seed %d", i, seed), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				var faults []*faulty
				h := open(t, engine(t), func(e shard.Engine) shard.Engine {
					f := &faulty{Engine: e, rnd: rnd, steps: -1}
					faults = append(faults, f)
					return f
				}, func(store.Store, string, string) {})
				k := &keysTest{T: t, rnd: rnd, h: h, faults: faults, flow: flow.Normal(), queue: fmt.Sprint("keys-", opened.Add(1)),
					messages: map[string]*keyed{}, holders: map[string]string{}, halted: map[string]string{},
					starts: map[string][]time.Time{}, unknown: map[string]bool{}}
				for _, s := range []store.Store{h.Store, h.Peer} {
					s := inner(s)
					shard.Stepwise(s)
					if k.late = seed%2 == 1; k.late { // claims take longer on a server
						shard.Patience(s, time.Millisecond)
					}
					shard.Windows(s, 1+rnd.IntN(3), time.Duration(rnd.IntN(1000))*time.Millisecond)
					k.stores = append(k.stores, s)
				}
				for _, f := range faults {
					f.between = k.between
				}
				k.run()
			})
		}
	}
}

// inner returns the store below a prefixed one.
func inner(s store.Store) store.Store {
	if f, ok := s.(forwarding); ok {
		return f.prefixed.Store
	}
	return s.(prefixed).Store
}

// keyed is a message of a history.
type keyed struct {
	id, key string
	due     time.Time
	number  int // of its send, if it was sent without a delay and keeps its place
	receipt store.Receipt
	leased  bool
	dead    bool
}

func isLeased(m *keyed) bool { return m.leased }
func isDead(m *keyed) bool   { return m.dead }

// keysTest is a history.
type keysTest struct {
	*testing.T
	rnd    *rand.Rand
	h      storetest.Harness
	faults []*faulty
	stores []store.Store
	queue  string
	flow   store.Flow

	sent            int
	messages        map[string]*keyed // that are present
	holders, halted map[string]string // ids by key
	starts          map[string][]time.Time
	changes         int
	// late is set if claims may come too late. Their messages are given back, which this test does not see. unknown has
	// the keys with a new order since, of which it does not know the holders.
	late    bool
	unknown map[string]bool
	log     []string
}

func (k *keysTest) note(format string, args ...any) {
	k.log = append(k.log, fmt.Sprintf(format, args...))
}

func (k *keysTest) ok(err error) {
	k.Helper()
	if err != nil {
		k.fail("unexpected error: %v", err)
	}
}

func (k *keysTest) fail(format string, args ...any) {
	k.Helper()
	for _, line := range k.log[max(0, len(k.log)-80):] {
		k.Log(line)
	}
	for _, s := range k.stores[:1] {
		directory, _ := shard.Directory(context.Background(), s, k.queue)
		k.Log(directory)
	}
	k.Fatalf(format, args...)
}

func (k *keysTest) store() store.Store { return k.stores[k.rnd.IntN(len(k.stores))] }

// any returns one of the messages that a condition holds for, nil if there is none.
func (k *keysTest) any(holds func(m *keyed) bool) *keyed {
	var all []*keyed
	for _, m := range k.messages {
		if holds(m) {
			all = append(all, m)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *keyed) int { return cmp.Compare(a.id, b.id) })
	return all[k.rnd.IntN(len(all))]
}

func (k *keysTest) run() {
	k.advance(time.Millisecond)
	k.ok(k.store().SetFlow(k.Context(), k.queue, k.flow, nil))
	actions := []func(){k.send, k.send, k.send, k.claim, k.claim, k.claim, k.settle, k.settle, k.settle, k.step,
		k.step, k.step, k.replay, k.remove, k.reschedule, k.resume, func() { k.advance(time.Millisecond) },
		func() { k.advance(time.Duration(k.rnd.IntN(1500)) * time.Millisecond) }}
	for range 400 {
		actions[k.rnd.IntN(len(actions))]()
	}
	k.drain()
}

// advance moves the clock. No lease ends.
func (k *keysTest) advance(d time.Duration) {
	k.note("advance %v", d)
	k.h.Advance(k.T, k.queue, d)
}

// send sends messages of random keys, with or without a delay.
func (k *keysTest) send() {
	var msgs []store.Outgoing
	var ids store.IDs
	for range 1 + k.rnd.IntN(4) {
		k.sent++
		key := fmt.Sprint("k", k.rnd.IntN(7))
		if k.rnd.IntN(8) == 0 {
			key = ""
		}
		m := store.Outgoing{Message: store.Message{ID: fmt.Sprintf("%s/%d", key, k.sent), Key: key, MaxAttempts: 100}}
		if key == "" || k.rnd.IntN(3) == 0 {
			m.ID = ids.New(key)
		}
		if k.rnd.IntN(3) == 0 {
			m.Due = store.Due{Delay: time.Duration(k.rnd.IntN(3000)*(1+k.rnd.IntN(2)*9)) * time.Millisecond}
		}
		if k.flow.Urgency {
			m.Urgency = []store.Urgency{store.UrgencyNormal, store.UrgencyHigh, store.UrgencyLow}[k.rnd.IntN(3)]
		}
		msgs = append(msgs, m)
	}
	results, err := k.store().Send(k.Context(), k.queue, msgs)
	k.ok(err)
	k.ok(store.SendError(results))
	for _, m := range msgs {
		one := &keyed{id: m.ID, key: m.Key}
		if m.Due.Delay == 0 {
			one.number = k.sent
			k.sent++
		}
		k.messages[m.ID] = one
		k.look(one)
		k.note("sent %s of %s due %v", m.ID, m.Key, one.due.Format("05.000"))
	}
}

// look reads when a message is due.
func (k *keysTest) look(m *keyed) {
	k.Helper()
	infos, err := k.store().Get(k.Context(), k.queue, []string{m.id})
	k.ok(err)
	if infos[0] == nil {
		k.fail("message %s is lost", m.id)
	}
	m.due = infos[0].Due
}

// claim claims messages, and checks that each of them may start.
func (k *keysTest) claim() {
	s := k.store()
	if k.rnd.IntN(2) == 0 { // otherwise the process may not know that a shard was opened
		_, err := shard.Names(k.Context(), s, k.queue)
		k.ok(err)
	}
	c, err := s.Claim(k.Context(), k.queue, store.ClaimRequest{Max: 1 + k.rnd.IntN(5), Lease: 10 * time.Hour})
	k.ok(err)
	for _, one := range c.Messages {
		m := k.messages[one.ID]
		k.note("claimed %s of %s at %s, lease %s", one.ID, one.Key, c.Now.Format("05.000000"), one.Receipt.Lease)
		if m == nil || m.leased || m.dead {
			k.fail("message %s is claimed, and is %+v", one.ID, m)
		}
		if m.due.After(c.Now) {
			k.fail("message %s is claimed at %v, and is due at %v", m.id, c.Now, m.due)
		}
		k.inOrder(m)
		k.inRate("", k.flow.Rate, c.Now)
		if m.key != "" {
			k.inRate(m.key, k.flow.Key.Rate, c.Now)
		}
		m.leased, m.receipt = true, one.Receipt
		k.inConcurrency(m.key)
		if k.holders[m.key] == m.id {
			delete(k.holders, m.key)
		}
	}
}

// inOrder checks that a message is the next one of its key.
func (k *keysTest) inOrder(m *keyed) {
	k.Helper()
	if k.flow.Key.Order == store.OrderNone || m.key == "" {
		return
	}
	if id := k.halted[m.key]; id != "" {
		k.fail("message %s starts, and %s halts its key", m.id, id)
	}
	if id := k.holders[m.key]; id != "" && id != m.id {
		k.fail("message %s starts, and %s holds its key", m.id, id)
	} else if id == m.id || k.unknown[m.key] { // a message that was given back goes first, whatever its due time
		return
	}
	for _, other := range k.messages {
		if other.key != m.key || other == m || other.leased || other.dead {
			continue
		}
		if other.due.Before(m.due) || other.due.Equal(m.due) && other.number > 0 && m.number > other.number {
			k.fail("message %s starts, due %v, number %d, and %s is before it, due %v, number %d", m.id, m.due, m.number,
				other.id, other.due, other.number)
		}
	}
}

// inConcurrency checks how many messages are leased.
func (k *keysTest) inConcurrency(key string) {
	k.Helper()
	all, ofKey := 0, 0
	for _, m := range k.messages {
		if m.leased {
			if all++; m.key == key {
				ofKey++
			}
		}
	}
	if most := k.flow.Concurrency; most > 0 && all > most {
		k.fail("%d messages are leased, and %d may be", all, most)
	}
	if most := k.flow.Key.Concurrency; key != "" && most > 0 && ofKey > most {
		k.fail("%d messages of %s are leased, and %d may be", ofKey, key, most)
	}
}

// inRate counts a start, and checks that there are not too many in any span.
func (k *keysTest) inRate(key string, r store.Rate, now time.Time) {
	k.Helper()
	if r.N == 0 {
		return
	}
	starts := append(k.starts[key], now)
	k.starts[key] = starts
	for i := range starts {
		n, span := len(starts)-i, now.Sub(starts[i])
		if int64(n-r.Burst)*r.Per.Microseconds() > int64(r.N)*span.Microseconds() {
			k.fail("%d messages of %q start in %v, which is more than %v", n, key, span, r)
		}
	}
}

// settle settles a leased message in a random way.
func (k *keysTest) settle() {
	m := k.any(isLeased)
	if m == nil {
		return
	}
	s := store.Settlement{Receipt: m.receipt, Reason: "no",
		Delay: time.Duration(k.rnd.IntN(3)*k.rnd.IntN(1000)) * time.Millisecond,
		Action: []store.Action{store.Ack, store.Ack, store.Ack, store.Nack, store.Snooze, store.Release,
			store.Bury}[k.rnd.IntN(7)]}
	k.settleBy(m, s)
}

func (k *keysTest) settleBy(m *keyed, s store.Settlement) {
	k.Helper()
	k.note("%v %s of %s after %v", s.Action, m.id, m.key, s.Delay)
	results, err := k.store().Settle(k.Context(), k.queue, []store.Settlement{s})
	k.ok(err)
	k.ok(results[0].Err)
	m.leased, m.number = false, 0
	switch ordered := k.flow.Key.Order != store.OrderNone && m.key != ""; {
	case s.Action == store.Ack:
		delete(k.messages, m.id)
	case s.Action == store.Bury:
		if m.dead = true; ordered && k.flow.Key.Order == store.OrderHalt {
			k.halted[m.key] = m.id
		}
	default:
		if k.look(m); ordered {
			k.holders[m.key] = m.id
		}
	}
}

// remove cancels a message that is not leased.
func (k *keysTest) remove() {
	m := k.any(func(m *keyed) bool { return !m.leased })
	if m == nil {
		return
	}
	k.note("cancel %s of %s", m.id, m.key)
	results, err := k.store().Cancel(k.Context(), k.queue, store.CancelRequest{IDs: []string{m.id}})
	k.ok(err)
	k.ok(results[0].Err)
	delete(k.messages, m.id)
	for _, held := range []map[string]string{k.holders, k.halted} {
		if held[m.key] == m.id {
			delete(held, m.key)
		}
	}
}

// reschedule makes a message due at another time.
func (k *keysTest) reschedule() {
	m := k.any(func(m *keyed) bool { return !m.leased && !m.dead })
	if m == nil {
		return
	}
	errs, err := k.store().Reschedule(k.Context(), k.queue, []string{m.id},
		store.Due{Delay: time.Duration(k.rnd.IntN(2000)) * time.Millisecond})
	k.ok(err)
	if k.late && errors.Is(errs[0], store.ErrLeased) { // by a claim that is too late
		return
	}
	k.ok(errs[0])
	k.look(m)
	m.number = 0
	if k.late {
		k.unknown[m.key] = true
	}
	k.note("%s of %s is due %v", m.id, m.key, m.due.Format("05.000"))
}

// replay makes a dead message ready again.
func (k *keysTest) replay() {
	m := k.any(isDead)
	if m == nil {
		return
	}
	bulk, err := k.store().Replay(k.Context(), k.queue, store.Selection{State: store.StateDead, IDs: []string{m.id}},
		store.Due{})
	k.note("replay %s of %s: %+v, %v", m.id, m.key, bulk, err)
	if k.ok(err); bulk.Done != 1 {
		k.fail("replayed: %+v", bulk)
	}
	if m.dead = false; k.halted[m.key] == m.id {
		delete(k.halted, m.key)
		k.holders[m.key] = m.id
	}
	k.look(m)
}

// resume resumes a key.
func (k *keysTest) resume() {
	key := fmt.Sprint("k", k.rnd.IntN(7))
	err := k.store().ResumeKey(k.Context(), k.queue, key)
	k.note("resume %s: %v", key, err)
	if halts := k.halted[key] != ""; halts != (err == nil) || err != nil && !errors.Is(err, store.ErrNotFound) {
		k.fail("key %s is resumed: %v, and is halted: %v", key, err, halts)
	}
	delete(k.halted, key)
}

// step does a part of a change of the number of shards.
func (k *keysTest) step() {
	steps := k.rnd.IntN(14)
	for _, f := range k.faults {
		f.steps = steps
	}
	n := 1 + k.rnd.IntN(5)
	ended, err := shard.Step(moving(k.Context()), k.store(), k.queue, n)
	k.note("step to %d with %d calls, ended %v: %v", n, steps, ended, err)
	for _, f := range k.faults {
		f.steps = -1
	}
	if err != nil && !errors.Is(err, errFaulty) {
		k.fail("step: %v", err)
	}
	if ended {
		k.changes++
	}
}

// between settles a message between two calls of a step.
func (k *keysTest) between() {
	steps := k.faults[0].steps
	for _, f := range k.faults {
		f.steps = -1
	}
	k.settle()
	for _, f := range k.faults {
		f.steps = steps
	}
}

// drain handles all messages, while a last change goes on.
func (k *keysTest) drain() {
	k.note("drain")
	for key := range k.halted {
		k.ok(k.store().ResumeKey(k.Context(), k.queue, key))
	}
	clear(k.halted)
	for m := k.any(isDead); m != nil; m = k.any(isDead) {
		_, err := k.store().Cancel(k.Context(), k.queue, store.CancelRequest{IDs: []string{m.id}})
		k.ok(err)
		delete(k.messages, m.id)
	}
	for range 2000 {
		if len(k.messages) == 0 {
			k.T.Logf("%d messages, %d changes", k.sent, k.changes)
			return
		}
		for m := k.any(isLeased); m != nil; m = k.any(isLeased) {
			k.settleBy(m, store.Settlement{Receipt: m.receipt, Action: store.Ack})
		}
		_, err := shard.Step(k.Context(), k.store(), k.queue, 3)
		k.ok(err)
		k.claim()
		k.advance(500 * time.Millisecond)
	}
	keys, err := k.store().Keys(k.Context(), k.queue, store.KeysRequest{Limit: 10})
	k.fail("%d messages are left: %+v; keys %+v, %v", len(k.messages), k.any(func(*keyed) bool { return true }), keys, err)
}
