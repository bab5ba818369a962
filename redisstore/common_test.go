package redisstore

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// commonTest is a queue in a state, and a call of one message.
type commonTest struct {
	name   string
	before func(x *commonQueue)
	call   func(x *commonQueue) string
	common bool // its script does the work
}

// commonQueue is a queue with a frozen clock that two stores make the same calls for.
type commonQueue struct {
	*testing.T
	s    *Store
	rdb  redis.UniversalClient
	held []store.Receipt
}

const commonName = "common"

func (x *commonQueue) ok(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

func (x *commonQueue) key(name string) string { return x.s.keys.key(commonName, name) }

func (x *commonQueue) add(id string, delay time.Duration, change ...func(*store.Outgoing)) {
	m := store.Outgoing{Message: store.Message{ID: id, Payload: []byte(id)}, Due: store.Due{Delay: delay}}
	for _, c := range change {
		c(&m)
	}
	_, err := x.s.Send(x.Context(), commonName, []store.Outgoing{m})
	x.ok(err)
}

func (x *commonQueue) hold(n int) {
	c := claim(x.T, x.s, commonName, n, time.Minute)
	x.held = nil
	for _, m := range c.Messages {
		x.held = append(x.held, m.Receipt)
	}
}

func (x *commonQueue) settle(action store.Action, window time.Duration) string {
	st := store.Settlement{Receipt: x.held[0], Action: action, DedupWindow: window}
	r, err := x.s.Settle(x.Context(), commonName, []store.Settlement{st})
	return fmt.Sprint(r, err)
}

// move moves the clock, which has a whole number of ms unless d changes that.
func (x *commonQueue) move(d time.Duration) {
	key := x.key("clock")
	x.ok(x.rdb.IncrBy(x.Context(), key, d.Microseconds()).Err())
}

// lists lists processes as waiting, in order: each is a subscriber with a promise in ms from now, or without one.
func (x *commonQueue) lists(promises ...float64) {
	now, err := x.rdb.Get(x.Context(), x.key("clock")).Float64()
	x.ok(err)
	for i, promise := range promises {
		channel := fmt.Sprint(x.s.keys.prefix, "process", i)
		sub := x.rdb.Subscribe(x.Context(), channel)
		_, err := sub.Receive(x.Context())
		x.ok(err)
		x.Cleanup(func() { sub.Close() })
		score := now/1000 + promise
		if promise == idle {
			score = 1<<51 + float64(i)
		}
		x.ok(x.rdb.ZAdd(x.Context(), x.key("wake"), redis.Z{Score: score, Member: channel}).Err())
	}
}

const idle = -1e9 // in place of a promise

// dump returns everything about the queue, in a form that is the same for stores with the same history.
func (x *commonQueue) dump() string {
	var text []string
	keys, err := x.rdb.Keys(x.Context(), x.s.keys.prefix+"*").Result()
	x.ok(err)
	slices.Sort(keys)
	for _, key := range keys {
		kind := x.rdb.Type(x.Context(), key).Val()
		switch kind {
		case "hash":
			for field, value := range x.rdb.HGetAll(x.Context(), key).Val() {
				text = append(text, fmt.Sprintf("%s %q=%q", key, field, value))
			}
		case "zset":
			for _, z := range x.rdb.ZRangeWithScores(x.Context(), key, 0, -1).Val() {
				text = append(text, fmt.Sprintf("%s %q at %.0f", key, z.Member, z.Score))
			}
		case "string":
			text = append(text, fmt.Sprintf("%s is %s", key, x.rdb.Get(x.Context(), key).Val()))
		}
	}
	all := strings.Split(maskLeases(x.Context(), x, strings.Join(text, "\n")), "\n")
	slices.Sort(all)
	return strings.ReplaceAll(strings.Join(all, "\n"), x.s.keys.prefix, "")
}

func sendCommon(id string, delay time.Duration) func(x *commonQueue) string {
	return func(x *commonQueue) string {
		m := store.Outgoing{Message: store.Message{ID: id, Payload: []byte(id)}, Due: store.Due{Delay: delay}}
		r, err := x.s.Send(x.Context(), commonName, []store.Outgoing{m})
		return fmt.Sprint(r, err)
	}
}

func claimCommon(n int) func(x *commonQueue) string {
	return func(x *commonQueue) string {
		c, err := x.s.Claim(x.Context(), commonName, store.ClaimRequest{Max: n, Lease: time.Minute})
		text := fmt.Sprint(c.Now, c.Deadline, c.More, c.Died, c.Expired, c.Dropped, err)
		for _, m := range c.Messages {
			text += fmt.Sprintf(" %s %q %v %d %d", m.ID, m.Payload, m.Due, m.Attempt, m.Receipt.Epoch)
		}
		return text
	}
}

func ackCommon(x *commonQueue) string { return x.settle(store.Ack, 0) }

func ackAllCommon(x *commonQueue) string {
	var acks []store.Settlement
	for _, r := range x.held {
		acks = append(acks, store.Settlement{Receipt: r, Action: store.Ack})
	}
	r, err := x.s.Settle(x.Context(), commonName, acks)
	return fmt.Sprint(r, err)
}

func near(ids ...string) func(x *commonQueue) {
	return func(x *commonQueue) {
		for _, id := range ids {
			x.add(id, time.Second)
		}
	}
}

func ready(ids ...string) func(x *commonQueue) {
	return func(x *commonQueue) {
		for _, id := range ids {
			x.add(id, 0)
		}
	}
}

func many(n int) func(x *commonQueue) {
	return func(x *commonQueue) {
		for i := range n {
			x.add(fmt.Sprint("many", i), 0)
		}
	}
}

func heldOf(n, claimed int) func(x *commonQueue) {
	return func(x *commonQueue) {
		for i := range n {
			x.add(fmt.Sprint("held", i), 0)
		}
		x.hold(claimed)
	}
}

// also joins steps.
func also(steps ...func(x *commonQueue)) func(x *commonQueue) {
	return func(x *commonQueue) {
		for _, step := range steps {
			step(x)
		}
	}
}

func attempts(m *store.Outgoing) { m.MaxAttempts = 3 }

func commonTests() []commonTest {
	nothing := func(*commonQueue) {}
	failed := func(id string) func(x *commonQueue) {
		return func(x *commonQueue) {
			x.add(id, 0)
			x.hold(1)
			x.settle(store.Nack, 0)
		}
	}
	buried := func(x *commonQueue) {
		x.add("dead", 0)
		x.hold(1)
		x.settle(store.Bury, 0)
	}
	buriedTwice := also(buried, func(x *commonQueue) {
		x.add("dead as well", 0)
		x.hold(1)
		x.settle(store.Bury, 0)
	})
	deduped := func(x *commonQueue) {
		x.add("done", 0)
		x.hold(1)
		x.settle(store.Ack, time.Hour)
	}
	lists := func(promises ...float64) func(x *commonQueue) {
		return func(x *commonQueue) { x.lists(promises...) }
	}
	later := func(d time.Duration) func(x *commonQueue) { return func(x *commonQueue) { x.move(d) } }
	pause := func(x *commonQueue) { x.ok(x.s.SetPaused(x.Context(), commonName, true)) }
	retain := func(x *commonQueue) {
		x.ok(x.s.SetDeadRetention(x.Context(), commonName, store.Retention{MaxCount: 1}, nil))
	}
	retainAge := func(x *commonQueue) {
		x.ok(x.s.SetDeadRetention(x.Context(), commonName, store.Retention{MaxAge: time.Hour}, nil))
	}
	cancelHeld := func(x *commonQueue) {
		_, err := x.s.Cancel(x.Context(), commonName, store.CancelRequest{IDs: []string{"held0"}})
		x.ok(err)
	}
	repeated := func(x *commonQueue) {
		until := time.UnixMicro(1_900_000_000_000_003).Add(2 * rememberRequests).UnixMilli()
		x.ok(x.rdb.HSet(x.Context(), x.key("meta"), "repeats_until", until).Err())
	}
	newer := func(x *commonQueue) { x.ok(x.rdb.HSet(x.Context(), x.key("meta"), "format", "999").Err()) }
	return []commonTest{
		{"send to a new queue", nothing, sendCommon("new", time.Second), false},
		{"send", near("old"), sendCommon("new", time.Minute), true},
		{"send at once", near("old"), sendCommon("new", 0), true},
		{"send of a few ms", also(near("old"), later(123*time.Microsecond)), sendCommon("new", 5*time.Millisecond),
			true},
		{"send of a duplicate", near("old"), sendCommon("old", time.Minute), true},
		{"send of the longest", near("o"), sendCommon("longer", time.Minute), false},
		{"send of a far message", near("old"), sendCommon("far", 2*time.Hour), true},
		{"send with a record", also(near("longest"), failed("old")), sendCommon("new", time.Minute), true},
		{"send of an id with a record", also(near("longest"), failed("old")), sendCommon("old", time.Minute), false},
		{"send beside a dedup window", also(near("longest"), deduped), sendCommon("new", time.Minute), true},
		{"send within a dedup window", also(near("longest"), deduped), sendCommon("done", time.Minute), false},
		{"send to a newer format", also(near("old"), newer), sendCommon("new", time.Minute), false},
		{"send when sessions turn", also(near("old"), later(rememberRequests)), sendCommon("new", 0), false},
		{"send just before", also(near("old"), later(rememberRequests-time.Millisecond)), sendCommon("new", 0), true},
		{"send in the second when they turn", also(later(time.Second/2), near("old"), later(rememberRequests-time.Second/4)),
			sendCommon("new", 0), false},
		{"send after the reply of a duplicate", near("old", "old"), sendCommon("new", time.Minute), true},
		{"send with the tenth number", near("0", "1", "2", "3", "4", "5", "6", "7", "8"), sendCommon("n", 0), true},
		{"send that wakes", also(near("old"), lists(idle)), sendCommon("new", time.Millisecond), true},
		{"send that wakes at once", also(near("old"), lists(idle, idle)), sendCommon("new", 0), true},
		{"send before a promise", also(near("old"), lists(500)), sendCommon("new", 100*time.Millisecond), true},
		{"send after a promise", also(near("old"), lists(50)), sendCommon("new", 100*time.Millisecond), true},
		{"send with one of two promises", also(near("old"), lists(50, 60)), sendCommon("new", 0), false},
		{"send with a broken promise", also(near("old"), lists(-3000, 60)), sendCommon("new", 0), false},
		{"send that is not the earliest", also(ready("old"), lists(idle)), sendCommon("new", 0), true},

		{"claim", ready("a"), claimCommon(10), true},
		{"claim of one", ready("a"), claimCommon(1), true},
		{"claim of one of two", ready("a", "b"), claimCommon(1), true},
		{"claim of one before another", also(ready("a"), near("b")), claimCommon(1), true},
		{"claim of one beside a lease", also(heldOf(1, 1), ready("a")), claimCommon(1), true},
		{"claim of one just before a lease ends", also(heldOf(1, 1), ready("a"), later(time.Minute-time.Millisecond)),
			claimCommon(1), true},
		{"claim of one when a lease ends", also(heldOf(1, 1), ready("a"), later(time.Minute)), claimCommon(1), false},
		{"claim of one beside far messages", also(ready("a"), func(x *commonQueue) { x.add("far", 2*time.Hour) }),
			claimCommon(1), true},
		{"claim of one before a bucket", also(func(x *commonQueue) { x.add("far", 2*time.Hour) }, later(2*time.Hour),
			ready("a")), claimCommon(1), false},
		{"claim of one beside a dedup window", also(deduped, ready("a")), claimCommon(1), true},
		{"claim of one failed message", failed("a"), claimCommon(1), false},
		{"claim of two", ready("a", "b"), claimCommon(10), true},
		{"claim of two of two", ready("a", "b"), claimCommon(2), false},
		{"claim of three due at two times", also(ready("a"), near("b"), ready("c"), later(time.Second), near("d")),
			claimCommon(10), true},
		{"claim of many", many(8), claimCommon(10), true},
		{"claim of too many", many(9), claimCommon(20), false},
		{"claim of long ones", func(x *commonQueue) {
			for i := range 3 {
				x.add(fmt.Sprint("long", i), 0, func(m *store.Outgoing) { m.Payload = make([]byte, 1<<19) })
			}
		}, claimCommon(10), false},
		{"claim of none", near("a"), claimCommon(10), false},
		{"claim before another", also(ready("a"), near("b")), claimCommon(10), true},
		{"claim beside a lease", also(heldOf(1, 1), ready("a")), claimCommon(10), true},
		{"claim beside a lease and a message due soon", also(heldOf(1, 1), ready("a"), near("b"), later(time.Millisecond)),
			claimCommon(10), true},
		{"claim when a lease ends before a message due soon", also(heldOf(1, 1), later(time.Minute-time.Second/2),
			ready("a"), near("b"), later(time.Millisecond)), claimCommon(10), true},
		{"claim when a lease has ended beside a message due soon", also(heldOf(1, 1), later(time.Minute-time.Second/2),
			ready("a"), near("b"), later(time.Second/2)), claimCommon(10), false},
		{"claim after a lease", also(heldOf(1, 1), ready("a"), later(time.Hour)), claimCommon(10), false},
		{"claim of a failed message", failed("a"), claimCommon(10), false},
		{"claim beside a failed message", also(failed("b"), func(x *commonQueue) { x.hold(1) }, ready("a")),
			claimCommon(10), true},
		{"claim of one with attempts", func(x *commonQueue) { x.add("a", 0, attempts) }, claimCommon(10), false},
		{"claim beside far messages", also(ready("a"), func(x *commonQueue) { x.add("far", 2*time.Hour) }),
			claimCommon(10), true},
		{"claim of a message that was packed", also(func(x *commonQueue) {
			x.add("far", 2*time.Hour)
			x.move(2*time.Hour - time.Minute)
			claim(x.T, x.s, commonName, 10, time.Minute)
			x.move(2 * time.Minute)
		}), claimCommon(10), true},
		{"claim before a bucket", also(func(x *commonQueue) { x.add("far", 2*time.Hour) }, later(2*time.Hour),
			ready("a")), claimCommon(10), false},
		{"claim beside a dedup window", also(deduped, ready("a")), claimCommon(10), true},
		{"claim after a dedup window", also(deduped, later(time.Hour), ready("a")), claimCommon(10), false},
		{"claim of a paused queue", also(ready("a"), pause), claimCommon(10), false},
		{"claim with retention", also(ready("a"), retain), claimCommon(10), true},
		{"claim with as many dead as retained", also(retain, buried, ready("a")), claimCommon(10), true},
		{"claim with more dead than retained", also(retain, buriedTwice, ready("a")), claimCommon(10), false},
		{"claim with dead messages of an age", also(retainAge, buried, ready("a")), claimCommon(10), true},
		{"claim with dead messages beyond it", also(retainAge, buried, later(time.Hour), ready("a")), claimCommon(10),
			false},
		{"claim after a repeated one", also(ready("a"), repeated), claimCommon(10), false},
		{"claim of a newer format", also(ready("a"), newer), claimCommon(10), false},
		{"claim beside a waiting process", also(ready("a"), lists(idle)), claimCommon(10), true},
		{"claim beside a promise", also(ready("a"), near("b"), lists(20)), claimCommon(10), true},
		{"claim beside two promises", also(ready("a"), lists(20, 30)), claimCommon(10), true},
		{"claim beside a broken promise", also(ready("a"), lists(-3000, idle)), claimCommon(10), true},
		{"claim of one beside a promise", also(ready("a", "b"), lists(20)), claimCommon(1), false},

		{"ack", heldOf(1, 1), ackCommon, true},
		{"ack beside others", also(heldOf(1, 1), ready("a")), ackCommon, true},
		{"ack of one of two", heldOf(2, 2), ackCommon, true},
		{"ack of the other of two", also(heldOf(2, 2), func(x *commonQueue) {
			ackCommon(x)
			x.held = x.held[1:]
		}), ackCommon, true},
		{"ack of one of two twice", also(heldOf(2, 2), func(x *commonQueue) { ackCommon(x) }), ackCommon, false},
		{"ack of two leases", also(heldOf(1, 1), func(x *commonQueue) {
			first := x.held
			x.add("other", 0)
			x.hold(1)
			x.held = append(first, x.held...)
		}), ackAllCommon, false},
		{"ack of one due at the same time as others", also(many(3), func(x *commonQueue) { x.hold(3) }), ackCommon, true},
		{"ack of the first due time", also(ready("a"), near("b"), later(time.Second), func(x *commonQueue) { x.hold(2) }),
			ackCommon, true},
		{"ack of both of two", heldOf(2, 2), ackAllCommon, true},
		{"ack of both of two, one with a record", also(failed("a"), ready("b"), func(x *commonQueue) { x.hold(2) }),
			ackAllCommon, false},
		{"ack with a record", also(failed("a"), func(x *commonQueue) { x.hold(1) }), ackCommon, false},
		{"ack beside a dead message", also(buried, heldOf(1, 1)), ackCommon, true},
		{"ack beside a cancelled message", also(heldOf(1, 1), cancelHeld, ready("a"), func(x *commonQueue) { x.hold(1) }),
			ackCommon, false},
		{"ack of a cancelled message", also(heldOf(1, 1), cancelHeld), ackCommon, false},
		{"ack just before the lease ends", also(heldOf(1, 1), later(time.Minute-time.Millisecond)), ackCommon, true},
		{"ack when the lease ends", also(heldOf(1, 1), later(time.Minute)), ackCommon, false},
		{"ack beside a lease that has ended", also(heldOf(1, 1), later(time.Second), ready("a"), func(x *commonQueue) {
			x.hold(1)
			x.move(time.Minute - time.Second)
		}), ackCommon, true},
		{"ack after the lease", also(heldOf(1, 1), later(time.Hour)), ackCommon, false},
		{"ack twice", also(heldOf(1, 1), func(x *commonQueue) { x.settle(store.Ack, 0) }), ackCommon, false},
		{"ack in a newer format", also(heldOf(1, 1), newer), ackCommon, false},
		{"ack when sessions turn", also(heldOf(1, 1), func(x *commonQueue) {
			x.ok(x.rdb.HSet(x.Context(), x.key("sessions"), "since", 1).Err())
		}), ackCommon, false},
	}
}

// untried is the last of a commonUse that no call has tried.
const untried = 1

// A script for the common case does what the one for every case does, or nothing.
func TestCommonCaseEqualsEveryCase(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	for _, test := range commonTests() {
		t.Run(test.name, func(t *testing.T) {
			var replies, dumps []string
			for i, prefix := range []string{"common", "every"} {
				s := newFrozenClock(t, rdb, Prefix(fmt.Sprintf("%s%x:", prefix, crc32.ChecksumIEEE([]byte(test.name)))))
				s.sessions.name = "session"
				x := &commonQueue{T: t, s: s, rdb: rdb}
				x.ok(rdb.Set(t.Context(), x.key("clock"), int64(1_900_000_000_000_003), 0).Err())
				uses := &s.keys.of(commonName).common
				never := func() {
					for of := range uses {
						uses[of].skip.Store(1 << 30)
					}
				}
				never()
				test.before(x)
				if i == 0 {
					for of := range uses {
						uses[of].skip.Store(0)
						uses[of].last.Store(untried)
					}
				}
				ctx := context.WithoutCancel(t.Context())
				replies = append(replies, maskLeases(ctx, x, test.call(x)))
				dumps = append(dumps, x.dump())
				common := uses[sendOne].last.Load()*uses[claimFew].last.Load()*uses[ackFew].last.Load() == 0
				if i == 0 && common != test.common {
					t.Errorf("it is the common case: %v, want %v", common, test.common)
				}
				x.ok(s.Close())
			}
			if replies[0] != replies[1] {
				t.Errorf("replies\n%s\nand\n%s", replies[0], replies[1])
			}
			if dumps[0] != dumps[1] {
				t.Errorf("the queue is\n%s\nand\n%s", dumps[0], dumps[1])
			}
		})
	}
}

// maskLeases replaces the random names in a text.
func maskLeases(ctx context.Context, x *commonQueue, text string) string {
	for lease := range x.rdb.HGetAll(ctx, x.key("leases")).Val() {
		text = strings.ReplaceAll(text, lease, "LEASE")
	}
	for v := range x.s.waker.servers {
		text = strings.ReplaceAll(text, x.s.waker.servers[v].channel, "CHANNEL")
	}
	return text
}

// A key of a wrong type refuses the whole call, whichever key it is.
func TestCommonCaseChangesNothingWithAWrongKey(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	refused := 0
	for i, test := range []struct {
		of     commonCase
		before func(x *commonQueue)
		call   func(x *commonQueue) string
	}{
		{sendOne, near("old"), sendCommon("new", 0)},
		{claimFew, ready("a"), claimCommon(10)},
		{ackFew, heldOf(1, 1), ackCommon},
	} {
		for _, key := range commonScripts[test.of].keys {
			s := newFrozenClock(t, rdb, Prefix(fmt.Sprintf("wrong%d-%s:", i, key)))
			x := &commonQueue{T: t, s: s, rdb: rdb}
			x.ok(rdb.Set(t.Context(), x.key("clock"), int64(1_900_000_000_000_003), 0).Err())
			test.before(x)
			x.ok(rdb.Del(t.Context(), x.key(key)).Err())
			x.ok(rdb.SetArgs(t.Context(), x.key(key), "wrong", redis.SetArgs{}).Err())
			before := x.dump()
			text := test.call(x)
			if after := x.dump(); strings.Contains(text, "WRONGTYPE") {
				refused++
				if after != before {
					t.Errorf("%s, %s: %s, but the queue was\n%s\nand is\n%s", commonScripts[test.of].name, key, text, before,
						after)
				}
			}
			x.ok(s.Close())
		}
	}
	if refused < 20 {
		t.Errorf("%d calls were refused, want 20 or more", refused)
	}
}
