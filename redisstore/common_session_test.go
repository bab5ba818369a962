package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// turnSessions makes the sessions of a queue turn, as another process does.
func (x *commonQueue) turnSessions() {
	x.Helper()
	x.ok(x.rdb.Rename(x.Context(), x.key("sessions"), x.key("old_sessions")).Err())
	since, err := x.rdb.Get(x.Context(), x.key("clock")).Int64()
	x.ok(err)
	x.ok(x.rdb.HSet(x.Context(), x.key("sessions"), "since", since/1000).Err())
}

func newCommonQueue(t *testing.T) *commonQueue {
	rdb := redistest.Shared(t).Client(t)
	x := &commonQueue{T: t, s: newFrozenClock(t, rdb), rdb: rdb}
	x.ok(x.s.Delete(t.Context(), commonName))
	x.ok(rdb.Set(t.Context(), x.key("clock"), int64(1_900_000_000_000_003), 0).Err())
	return x
}

// A session that has looked lately sends and acks in the common case. It finds out when the sessions have turned since,
// or are gone, and it looks again after lookAgainAfter.
func TestSessionLooksAtSessionsNowAndThen(t *testing.T) {
	x := newCommonQueue(t)
	uses := &x.s.keys.of(commonName).common
	common := func(of commonCase, call func(x *commonQueue) string, want bool) {
		t.Helper()
		uses[of].skip.Store(0)
		uses[of].last.Store(untried)
		text := call(x)
		if is := uses[of].last.Load() == 0; is != want || of == sendOne && text != "[{false false false <nil> <nil>}] <nil>" {
			t.Errorf("call = %s, the common case: %v, want %v", text, is, want)
		}
	}
	x.add("0", 0)
	x.add("1", 0)
	sess := x.s.sessions.free[0]
	if !sess.hasLookedAt(x.s.keys.of(commonName)) {
		t.Error("a send in the common case has not looked")
	}
	common(sendOne, sendCommon("2", 0), true)
	x.hold(1)
	common(ackFew, ackCommon, true)
	x.turnSessions()
	common(sendOne, sendCommon("3", 0), false)
	common(sendOne, sendCommon("4", 0), true)
	x.ok(x.rdb.Del(t.Context(), x.key("sessions"), x.key("old_sessions")).Err())
	common(sendOne, sendCommon("5", 0), false)
	x.move(rememberRequests)
	common(sendOne, sendCommon("6", 0), true) // seconds after a look the sessions may turn a little late
	sess.at = sess.at.Add(-lookAgainAfter)
	common(sendOne, sendCommon("7", 0), false)
	since, err := x.rdb.HGet(t.Context(), x.key("sessions"), "since").Int64()
	if want := int64(1_900_000_000_000) + rememberRequests.Milliseconds(); since != want || err != nil {
		t.Errorf("the sessions began at %d, want %d, %v", since, want, err)
	}
	sess.look(x.s.keys.of("other"), time.Now())
	if sess.hasLookedAt(x.s.keys.of(commonName)) {
		t.Error("a session that has looked in another queue does not look")
	}
	if n := x.rdb.HLen(t.Context(), x.key("messages")).Val(); n != 7 {
		t.Errorf("the queue has %d messages, want 7", n)
	}
}

// A session looks again after its machine was suspended, which only the wall clock notices, and after that clock was
// set back.
func TestSessionLooksAgainAfterTheMachineWasSuspended(t *testing.T) {
	queue := &queueKeys{}
	for _, c := range []struct {
		name     string
		at, wall time.Duration // ago
		looked   bool
	}{
		{"lately", time.Second, time.Second, true},
		{"before the machine was suspended", time.Second, rememberRequests, false},
		{"before the clock was set back", rememberRequests, -time.Hour, false},
	} {
		var sess session
		sess.look(queue, time.Now().Add(-c.at))
		sess.wall = sess.wall.Add(c.at - c.wall)
		if is := sess.hasLookedAt(queue); is != c.looked {
			t.Errorf("a session that looked %s has looked: %v, want %v", c.name, is, c.looked)
		}
	}
}

// The sessions of many processes are looked up without a search through all of them.
func TestManySessionsAreNotSearched(t *testing.T) {
	x := newCommonQueue(t)
	x.add("0", 0)
	x.move(16*time.Microsecond - 3*time.Microsecond) // such a send does work on behalf of others
	for n, want := range []string{"listpack", "hashtable"} {
		for i := range 40 * n {
			x.ok(x.rdb.HSet(t.Context(), x.key("sessions"), fmt.Sprint("process:", i), i).Err())
		}
		x.add(fmt.Sprint(n+1), 0)
		if is := x.rdb.ObjectEncoding(t.Context(), x.key("sessions")).Val(); is != want {
			t.Errorf("with %d more sessions their encoding is %s, want %s", 40*n, is, want)
		}
		x.add(fmt.Sprint(n+5), 0)
	}
	if n := x.rdb.HLen(t.Context(), x.key("messages")).Val(); n != 5 {
		t.Errorf("the queue has %d messages, want 5", n)
	}
}

// A request of a session that has looked lately is executed once, whenever its first attempt arrives: also after a
// request with a number of more digits.
func TestRequestsOfASessionThatHasLookedAreExecutedOnce(t *testing.T) {
	for _, turned := range []bool{false, true} {
		x := newCommonQueue(t)
		x.add("0", time.Hour)
		other, l := newDelayedStore(t, x.s, commonName)
		send := func(id string) {
			t.Helper()
			m := store.Outgoing{Message: store.Message{ID: id}, Due: store.Due{Delay: time.Second}}
			r, err := other.Send(t.Context(), commonName, []store.Outgoing{m})
			if err != nil || r[0].Duplicate {
				t.Errorf("send of %s = %+v, %v", id, r, err)
			}
		}
		l.skip = 8
		for id := range 10 {
			send(fmt.Sprint(id + 1)) // the first attempt of 9 is delayed
		}
		if len(l.held) == 0 || !other.sessions.free[0].hasLookedAt(other.keys.of(commonName)) {
			t.Fatal("no attempt of a session that has looked was delayed")
		}
		if n := l.held[2].(int); n != len(commonScripts[sendOne].keys)-1 {
			t.Errorf("the delayed attempt has %d keys", n)
		}
		if turned {
			x.turnSessions()
		}
		_, err := x.s.Cancel(t.Context(), commonName, store.CancelRequest{IDs: []string{"9"}})
		x.ok(err)
		l.deliver(t)
		if n := x.rdb.HLen(t.Context(), x.key("messages")).Val(); n != 10 {
			t.Errorf("turned: %v: after the late attempt the queue has %d messages, want 10", turned, n)
		}
	}
}

// A lease that has lost its deadline never ends, so an ack of its message is right, and leaves nothing.
func TestAckOfALeaseWithoutDeadlineLeavesNothing(t *testing.T) {
	x := newCommonQueue(t)
	x.add("a", 0)
	x.hold(1)
	x.ok(x.rdb.Del(t.Context(), x.key("lease_deadlines")).Err())
	if text := ackCommon(x); text != "[{ <nil>}] <nil>" {
		t.Errorf("ack = %s", text)
	}
	if n := x.rdb.Exists(t.Context(), x.key("messages"), x.key("leases")).Val(); n != 0 {
		t.Errorf("%d keys of messages and leases are left", n)
	}
}
