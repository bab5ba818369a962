package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// hasFailures checks the failures of a message, given as "attempt duration worker error", latest first.
func (e *env) hasFailures(id string, want ...string) []store.Failure {
	e.Helper()
	failures := e.get(id).Failures
	var got []string
	for _, f := range failures {
		got = append(got, fmt.Sprintf("%d %v %s %s", f.Attempt, f.Duration, f.Worker, f.Error))
	}
	e.equal("failures", got, want)
	return failures
}

// fails claims a message and settles it as failed.
func (e *env) fails(id string, s store.Settlement, want store.State) {
	e.Helper()
	s.Receipt = e.claimOne(id, held).Receipt
	e.settle(s, want)
}

var failureRules = []rule{
	{"a message remembers its last five failures, latest first", func(e *env) {
		e.send(message("m"))
		e.equal("at first", len(e.get("m").Failures), 0)
		var want []string
		for n := 1; n <= store.MaxFailures+2; n++ {
			e.advance(time.Second)
			now := e.now()
			took, worker, text := time.Duration(n)*time.Second, fmt.Sprintf("host:%d", n), fmt.Sprintf("error %d", n)
			e.fails("m", store.Settlement{Action: store.Nack, Duration: took, Worker: worker, Reason: text},
				store.StateReady)
			want = append([]string{fmt.Sprintf("%d %v %s %s", n, took, worker, text)}, want...)
			got := e.hasFailures("m", want[:min(n, store.MaxFailures)]...)
			e.at("time", got[0].Time, now)
		}
		e.equal("last error", e.get("m").LastError, fmt.Sprintf("error %d", store.MaxFailures+2))
		for _, listed := range e.list(store.ListRequest{State: store.StateReady, Limit: 1}) {
			e.equal("failures listed", len(listed.Failures), store.MaxFailures)
		}
	}},
	{"the end of a lease is a failure of an unknown holder, at its deadline", func(e *env) {
		e.send(message("m", maxAttempts(2)))
		c := e.claimWith(1, short)
		e.advance(time.Minute)
		again := e.claimWith(1, short)
		e.equal("claimed", ids(again.Messages), []string{"m"})
		got := e.hasFailures("m", "1 0s  "+store.LeaseExpiredText)
		e.equal("time", ms(got[0].Time), ms(c.Deadline))
		e.advance(time.Minute)
		e.equal("died", e.claimWith(1, short).Died, []string{"m"})
		got = e.hasFailures("m", "2 0s  "+store.LeaseExpiredText, "1 0s  "+store.LeaseExpiredText)
		e.equal("time", ms(got[0].Time), ms(again.Deadline))
	}},
	{"a bury is a failure, and a replay keeps the failures", func(e *env) {
		e.send(message("m"))
		e.fails("m", store.Settlement{Action: store.Nack, Reason: "no", Worker: "a"}, store.StateReady)
		e.fails("m", store.Settlement{Action: store.Bury, Reason: "hopeless", Worker: "b"}, store.StateDead)
		e.hasFailures("m", "2 0s b hopeless", "1 0s a no")
		e.equal("replayed", e.replay(deadByID("m"), store.Due{}), 1)
		e.hasFailures("m", "2 0s b hopeless", "1 0s a no")
		e.equal("last error", e.get("m").LastError, "")
		e.fails("m", store.Settlement{Action: store.Nack, Reason: "again"}, store.StateReady)
		e.hasFailures("m", "1 0s  again", "2 0s b hopeless", "1 0s a no")
	}},
	{"the last attempt of a message is its last failure", func(e *env) {
		e.send(message("m", maxAttempts(1)))
		e.fails("m", store.Settlement{Action: store.Nack, Reason: "at last"}, store.StateDead)
		e.hasFailures("m", "1 0s  at last")
		for _, listed := range e.list(store.ListRequest{State: store.StateDead, Limit: 1}) {
			e.equal("failures listed", len(listed.Failures), 1)
		}
	}},
	{"snooze, release and reschedule keep the failures and add none", func(e *env) {
		e.send(message("m"))
		e.fails("m", store.Settlement{Action: store.Nack, Reason: "no"}, store.StateReady)
		for _, action := range []store.Action{store.Snooze, store.Release} {
			e.settle(store.Settlement{Receipt: e.claimOne("m", held).Receipt, Action: action, Worker: "w"},
				store.StateReady)
			e.hasFailures("m", "1 0s  no")
		}
		e.ok(e.tryReschedule("m", store.Due{Delay: time.Hour}))
		e.hasFailures("m", "1 0s  no")
	}},
	{"a snooze resets the attempts if asked to, and keeps the failures", func(e *env) {
		e.send(message("m", maxAttempts(2)))
		for range 3 {
			e.fails("m", store.Settlement{Action: store.Nack, Reason: "no"}, store.StateReady)
			e.fails("m", store.Settlement{Action: store.Snooze, ResetAttempts: true}, store.StateReady)
			info := e.live("m", store.StateReady)
			e.equal("attempts", info.Attempts, 0)
			e.equal("last error", info.LastError, "")
			e.equal("delivered", info.Delivered, true)
		}
		e.hasFailures("m", "1 0s  no", "1 0s  no", "1 0s  no")
		e.fails("m", store.Settlement{Action: store.Nack, Reason: "no"}, store.StateReady)
		c := e.claimOne("m", held)
		e.equal("attempt", c.Attempt, 2)
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Snooze}, store.StateReady) // keeps them
		e.fails("m", store.Settlement{Action: store.Nack, Reason: "no"}, store.StateDead)
	}},
	{"a message that is given back is not an attempt, and remembers since when", func(e *env) {
		e.send(message("m", maxAttempts(2)))
		e.fails("m", store.Settlement{Action: store.Nack, Reason: "no"}, store.StateReady)
		e.advance(time.Second)
		since := e.now()
		for n := 1; n <= 3; n++ {
			worker, text := fmt.Sprintf("host:%d", n), fmt.Sprintf("unknown %d\nto this version", n)
			e.fails("m", store.Settlement{Action: store.GiveBack, Delay: time.Minute, Within: -1, Worker: worker,
				Reason: text}, store.StateScheduled)
			info := e.live("m", store.StateScheduled)
			e.at("due", info.Due, e.now().Add(time.Minute))
			e.equal("attempts", info.Attempts, 1)
			e.equal("delivered", info.Delivered, true)
			e.equal("last error", info.LastError, text)
			got := e.hasFailures("m", fmt.Sprintf("0 0s %s unknown %d", worker, n), "1 0s  no")
			e.at("time", got[0].Time, since)
			e.advance(time.Minute)
		}
		c := e.claimOne("m", held)
		e.equal("attempt", c.Attempt, 2)
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Release}, store.StateReady)
		e.hasFailures("m", "0 0s host:3 unknown 3", "1 0s  no") // it was not handled
		e.fails("m", store.Settlement{Action: store.Nack, Reason: "at last"}, store.StateDead)
		e.hasFailures("m", "2 0s  at last", "0 0s host:3 unknown 3", "1 0s  no")
	}},
	{"a message that is given back for too long is dead as unreadable, and a replay begins anew", func(e *env) {
		e.send(message("m"))
		giveBack := store.Settlement{Action: store.GiveBack, Within: time.Hour, Worker: "w", Reason: "new"}
		for range 2 {
			e.fails("m", giveBack, store.StateReady)
			e.advance(time.Hour - time.Second)
			e.fails("m", giveBack, store.StateReady)
			e.advance(time.Second)
			now := e.now()
			e.fails("m", giveBack, store.StateDead)
			info := e.live("m", store.StateDead)
			e.equal("reason", info.DeadReason, store.DeadUnreadable)
			e.equal("last error", info.LastError, "new")
			e.equal("attempts", info.Attempts, 1)
			e.equal("failure", fmt.Sprintf("%d %s %s", info.Failures[0].Attempt, info.Failures[0].Worker,
				info.Failures[0].Error), "1 w new")
			e.at("time", info.Failures[0].Time, now)
			e.equal("raw bytes", len(info.Raw), 0)
			e.equal("replayed", e.replay(deadByID("m"), store.Due{}), 1)
		}
		e.hasFailures("m", "1 0s w new", "1 0s w new")
		giveBack.Within = 0
		e.fails("m", giveBack, store.StateDead)
	}},
	{"a snooze ends the time in which a message is given back", func(e *env) {
		e.send(message("m"))
		e.fails("m", store.Settlement{Action: store.Nack, Reason: "no"}, store.StateReady)
		giveBack := store.Settlement{Action: store.GiveBack, Within: time.Hour, Reason: "new"}
		for _, reset := range []bool{false, true} {
			e.fails("m", giveBack, store.StateReady)
			e.fails("m", store.Settlement{Action: store.Snooze, ResetAttempts: reset}, store.StateReady)
			e.hasFailures("m", "1 0s  no")
			e.equal("last error", e.get("m").LastError, "")
			e.advance(2 * time.Hour)
		}
		e.fails("m", giveBack, store.StateReady)
		e.hasFailures("m", "0 0s  new", "1 0s  no")
	}},
	{"a message that is sent under the id of one that failed has no failures", func(e *env) {
		for _, end := range []func(){
			func() { e.ack(e.claimOne("m", held)) },
			func() { e.cancel("m", store.StateReady) },
			func() { e.claimOne("m", held); e.cancel("m", store.StateLeased) },
		} {
			e.send(message("m"))
			e.fails("m", store.Settlement{Action: store.Nack, Reason: "no"}, store.StateReady)
			end()
			e.send(message("m"))
			e.equal("failures", len(e.get("m").Failures), 0)
			e.cancel("m", store.StateReady)
		}
	}},
	{"a failure keeps one line of its texts, cut to their limits, and rounds its duration up", func(e *env) {
		e.send(message("m"))
		reason := store.CutReason("panic:\tboom\x1e\x1f \xff\n\ngoroutine 1")
		e.fails("m", store.Settlement{
			Action: store.Nack, Reason: reason, Worker: "host\n:1\x1f", Duration: time.Nanosecond,
		}, store.StateReady)
		e.hasFailures("m", "1 1ms host panic: boom   \uFFFD")
		e.equal("last error", e.get("m").LastError, reason)
		long := strings.Repeat("ü", store.MaxReason)
		e.fails("m", store.Settlement{
			Action: store.Nack, Reason: store.CutReason("x" + long), Worker: "x" + long,
		}, store.StateReady)
		f := e.get("m").Failures[0]
		e.equal("error", f.Error, "x"+long[:store.MaxFailureText-2])
		e.equal("worker", f.Worker, "x"+long[:store.MaxWorkerName-2])
	}},
}
