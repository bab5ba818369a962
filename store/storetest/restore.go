package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// newInfo returns a message as List or Get returns it.
func newInfo(id string, state store.State, due time.Time, changes ...func(*store.Info)) store.Info {
	info := store.Info{Message: message(id).Message, State: state, Due: due}
	for _, change := range changes {
		change(&info)
	}
	return info
}

// newDeadInfo returns a dead message as List or Get returns it.
func newDeadInfo(id string, reason store.DeadReason, died time.Time, changes ...func(*store.Info)) store.Info {
	info := newInfo(id, store.StateDead, died.Add(-time.Minute))
	info.DeadReason, info.DiedAt, info.Attempts, info.LastError, info.Delivered = reason, died, 1, "no: "+id, true
	for _, change := range changes {
		change(&info)
	}
	return info
}

func unreadable(raw string) func(*store.Info) {
	return func(i *store.Info) { i.Message, i.Raw = store.Message{ID: i.ID}, []byte(raw) }
}

// Times in the past and in the future of every clock that engines are tested with.
var (
	longAgo   = time.UnixMilli(1_000_000_000_123)
	farFuture = time.UnixMilli(5_000_000_000_456)
)

// everyKind returns messages of every kind that a store can return, except leased ones.
func everyKind() []store.Info {
	headers := func(i *store.Info) {
		i.Headers = map[string]string{"trace": "a=1;b=\x00\n", "größe": "", "tab": "\t"}
		i.Key, i.Group, i.Urgency = "k", "g", store.UrgencyHigh
	}
	all := []store.Info{
		newInfo("ready", store.StateReady, longAgo),
		newInfo("scheduled", store.StateScheduled, farFuture),
		newInfo("headers", store.StateScheduled, farFuture.Add(time.Hour), headers),
		newInfo("limits", store.StateReady, longAgo.Add(time.Second), func(i *store.Info) {
			i.MaxAttempts, i.Timeout, i.DedupWindow, i.SentAt = store.MaxAttempts, store.MaxLease, store.MaxDelay,
				longAgo
		}),
		newInfo("failed once", store.StateScheduled, farFuture.Add(time.Minute), func(i *store.Info) {
			i.Attempts, i.LastError, i.Delivered = 1, "tab\tand\nline: über", true
		}),
		newInfo("failed before it was replayed", store.StateReady, longAgo, func(i *store.Info) {
			i.Delivered = true
			i.Failures = []store.Failure{
				{Time: longAgo.Add(time.Hour), Attempt: 2, Duration: time.Minute, Worker: "host:1", Error: "über"},
				{Time: longAgo, Attempt: 1},
			}
		}),
		newInfo("snoozed", store.StateScheduled, farFuture, func(i *store.Info) { i.Delivered = true }),
		newInfo("expires", store.StateScheduled, farFuture, func(i *store.Info) { i.ExpireAfter = time.Hour }),
		newInfo("expired", store.StateReady, longAgo, func(i *store.Info) { i.ExpireAt = longAgo.Add(time.Minute) }),
		newInfo("delivered in time", store.StateReady, longAgo, func(i *store.Info) {
			i.ExpireAfter, i.Delivered = time.Second, true
		}),
		newInfo("empty", store.StateReady, longAgo, func(i *store.Info) { i.Payload, i.Urgency = nil, "low" }),
		newInfo("bytes", store.StateReady, longAgo, func(i *store.Info) { i.Payload = []byte("\x00\xff\t\n") }),
		newInfo("unreadable", store.StateReady, longAgo, unreadable("\xffof a later version")),
		newInfo("unreadable and empty", store.StateScheduled, farFuture, unreadable("")),
		newDeadInfo("dead and unreadable", store.DeadUnreadable, longAgo, unreadable("\xff\xff"), func(i *store.Info) {
			i.LastError, i.Attempts, i.Delivered = store.UnreadableText, 0, false
		}),
		newDeadInfo("dead of expiry", store.DeadExpired, longAgo, func(i *store.Info) {
			i.LastError, i.Attempts, i.Delivered, i.ExpireAfter = store.ExpiredText, 0, false, time.Second
		}),
		newDeadInfo("dead with headers", store.DeadBuried, longAgo, headers),
	}
	for n, reason := range []store.DeadReason{store.DeadFailed, store.DeadLeaseExpired, store.DeadBuried} {
		all = append(all, newDeadInfo("dead: "+string(reason), reason, longAgo.Add(time.Duration(n)*time.Second)))
	}
	made := store.NewID()
	sentAt, _ := store.IDTime(made)
	return append(all, newInfo(made, store.StateScheduled, farFuture, func(i *store.Info) { i.SentAt = sentAt }))
}

// restore restores messages that must not be duplicates.
func (e *env) restore(msgs ...store.Info) {
	e.Helper()
	for batch := range slices.Chunk(msgs, store.MaxBatch) {
		for i, r := range e.tryRestore(batch...) {
			if r.Duplicate {
				e.Fatalf("message %q is a duplicate", batch[i].ID)
			}
		}
	}
}

func (e *env) tryRestore(msgs ...store.Info) []store.SendResult {
	e.Helper()
	for i := range msgs {
		e.ok(msgs[i].Check())
	}
	results, err := e.Store.Restore(e.Context(), e.queue, msgs)
	e.ok(err)
	e.equal("number of results", len(results), len(msgs))
	return results
}

func (e *env) remove(msgs ...store.Info) []bool {
	e.Helper()
	removed, err := e.Peer.Remove(e.Context(), e.queue, msgs)
	e.ok(err)
	e.equal("number of results", len(removed), len(msgs))
	return removed
}

// listAll returns the messages in all states.
func (e *env) listAll() (all []store.Info) {
	e.Helper()
	for _, state := range []store.State{store.StateLeased, store.StateScheduled, store.StateReady, store.StateDead} {
		for _, info := range e.list(store.ListRequest{State: state, Limit: 3}) {
			if !slices.ContainsFunc(all, func(other store.Info) bool { return other.ID == info.ID }) {
				all = append(all, info)
			}
		}
	}
	return all
}

// describeAll describes messages in order of id. It describes a leased message as it is once it has been released.
func describeAll(infos []store.Info, now time.Time) string {
	var lines []string
	for _, info := range infos {
		if info.State == store.StateLeased {
			info.LeaseDeadline, info.Follows = time.Time{}, false
			if info.State = store.StateReady; info.Due.After(now) {
				info.State = store.StateScheduled
			}
		}
		lines = append(lines, describe(&info))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

var restoreRules = []rule{
	{"a restored message is the same as the original", func(e *env) {
		all := everyKind()
		e.restore(all...)
		for i := range all {
			e.equal("got", describe(e.get(all[i].ID)), describe(&all[i]))
		}
		e.equal("listed", describeAll(e.listAll(), e.now()), describeAll(all, e.now()))
		count := map[store.State]int64{}
		for i := range all {
			count[all[i].State]++
		}
		e.count(count[store.StateScheduled], count[store.StateReady], 0, count[store.StateDead])
	}},
	{"everything a queue lists can be restored once it is empty", func(e *env) {
		e.sendDead("buried", maxAttempts(3), dedupWindow(time.Hour))
		e.send(message("last", maxAttempts(1)))
		e.settle(nack(e.claimOne("last", held), 0), store.StateDead)
		e.send(message("crashed", maxAttempts(1)), message("crashes", expireAfter(time.Hour)))
		e.claimWith(2, short)
		e.send(message("expired", expireAfter(time.Millisecond)))
		e.advance(time.Second)
		e.equal("died", len(e.claimWith(1, held).Died), 2)
		e.send(message("failed"), message("snoozed"), message("leased", expireAfter(time.Hour)))
		for _, c := range e.claim(4) {
			switch c.ID {
			case "failed":
				e.settle(nack(c, time.Hour), store.StateScheduled)
			case "snoozed":
				e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Snooze, Delay: time.Hour},
					store.StateScheduled)
			}
		}
		e.send(message(store.NewID()), message("scheduled", delay(time.Hour)))
		all := e.listAll()
		e.equal("purged", e.purge(store.Selection{}), len(all))
		e.restore(all...)
		e.equal("listed", describeAll(e.listAll(), e.now()), describeAll(all, e.now()))
		e.count(3, 3, 0, 4)
	}},
	{"a leased message is restored as if it had been released", func(e *env) {
		now := e.now()
		leased := func(i *store.Info) { i.LeaseDeadline, i.Attempts, i.LastError = farFuture, 2, "no" }
		e.restore(newInfo("past", store.StateLeased, now.Add(-time.Minute), leased),
			newInfo("future", store.StateLeased, now.Add(time.Hour), leased))
		for id, want := range map[string]store.State{"past": store.StateReady, "future": store.StateScheduled} {
			info := e.live(id, want)
			e.equal("attempts", info.Attempts, 2)
			e.equal("last error", info.LastError, "no")
			e.equal("no deadline", info.LeaseDeadline.IsZero(), true)
		}
		e.equal("attempt", e.claimOne("past", held).Attempt, 3)
	}},
	{"a restored message keeps its remaining attempts", func(e *env) {
		e.restore(newInfo("m", store.StateReady, longAgo, func(i *store.Info) {
			i.MaxAttempts, i.Attempts, i.Delivered = 3, 1, true
		}))
		c := e.claimOne("m", held)
		e.equal("attempt", c.Attempt, 2)
		e.equal("payload", string(c.Payload), "payload of m")
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Nack, Reason: "no"}, store.StateReady)
		c = e.claimOne("m", held)
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Nack, Reason: "no"}, store.StateDead)
		e.equal("attempts", e.live("m", store.StateDead).Attempts, 3)
	}},
	{"a restored message is never early", func(e *env) {
		due := e.now().Add(time.Minute)
		e.restore(newInfo("m", store.StateReady, due)) // from a store with a clock ahead
		e.advance(time.Minute - time.Millisecond)
		e.equal("claimed a millisecond early", len(e.claim(1)), 0)
		e.advance(time.Millisecond)
		e.at("due", e.claimOne("m", held).Due, due)
	}},
	{"restore of an id that is live or within its dedup window changes nothing", func(e *env) {
		e.sendDead("dead")
		e.send(message("leased"))
		e.claimOne("leased", held)
		e.send(message("ready"), message("scheduled", delay(time.Hour)))
		f := e.other()
		f.send(message("acked", dedupWindow(time.Hour)))
		f.ack(f.claimOne("acked", held))
		for _, id := range []string{"scheduled", "ready", "leased", "dead"} {
			before := describe(e.get(id))
			for _, again := range []store.Info{
				newInfo(id, store.StateReady, longAgo), newDeadInfo(id, store.DeadFailed, longAgo),
			} {
				e.equal("results", e.tryRestore(again), []store.SendResult{{Duplicate: true}})
			}
			e.equal("message", describe(e.get(id)), before)
		}
		e.count(1, 1, 1, 1)
		acked, fresh := newInfo("acked", store.StateReady, longAgo), newInfo("new", store.StateReady, longAgo)
		e.equal("results", f.tryRestore(acked, fresh), []store.SendResult{{Duplicate: true}, {}})
		f.gone("acked")
		f.count(0, 1, 0, 0)
	}},
	{"the first of two equal ids in one restore wins", func(e *env) {
		first, second := newInfo("a", store.StateReady, longAgo), newDeadInfo("a", store.DeadFailed, longAgo)
		other := newInfo("b", store.StateReady, longAgo)
		e.equal("results", e.tryRestore(first, second, other), []store.SendResult{{}, {Duplicate: true}, {}})
		e.count(0, 2, 0, 0)
	}},
	{"a repeated restore changes nothing", func(e *env) {
		all := everyKind()
		e.restore(all...)
		before := describeAll(e.listAll(), e.now())
		for _, r := range e.tryRestore(all...) {
			e.equal("duplicate", r.Duplicate, true)
		}
		e.equal("listed", describeAll(e.listAll(), e.now()), before)
	}},
	{"an unreadable message is restored with its bytes and dies as unreadable", func(e *env) {
		raws := []string{"", "\xff", "\xff of a later version", "\x01", "\x40\xff\xff\xff\xff\xff\xff"}
		for i, raw := range raws {
			e.restore(newInfo(fmt.Sprint(i), store.StateReady, longAgo, unreadable(raw)))
		}
		e.send(message("readable"))
		var died, claimed []string
		for range 3 {
			c := e.claimWith(10, held)
			died, claimed = append(died, c.Died...), append(claimed, ids(c.Messages)...)
			e.equal("expired", len(c.Expired), 0)
		}
		slices.Sort(died)
		e.equal("died", died, []string{"0", "1", "2", "3", "4"})
		e.equal("claimed", claimed, []string{"readable"})
		for i, raw := range raws {
			info := e.live(fmt.Sprint(i), store.StateDead)
			e.equal("reason", info.DeadReason, store.DeadUnreadable)
			e.equal("last error", info.LastError, store.UnreadableText)
			e.equal("bytes", string(info.Raw), raw)
			e.equal("has raw bytes", info.Raw != nil, true)
		}
	}},
	{"the expiry of a restored message counts until it is delivered", func(e *env) {
		expires := func(i *store.Info) { i.ExpireAfter = time.Second }
		delivered := func(i *store.Info) { i.Delivered = true }
		e.restore(newInfo("a", store.StateReady, longAgo, expires),
			newInfo("b", store.StateReady, longAgo, expires, delivered))
		c := e.claimWith(10, held)
		e.equal("claimed", ids(c.Messages), []string{"b"})
		e.equal("expired", c.Expired, []string{"a"})
		e.equal("delivered", e.live("a", store.StateDead).Delivered, false)
	}},
	{"get reports whether the expiry still counts", func(e *env) {
		delivered := func(id string, want bool) {
			e.Helper()
			e.equal("delivered", e.get(id).Delivered, want)
		}
		e.send(message("m"))
		delivered("m", false)
		c := e.claimOne("m", held)
		delivered("m", false)
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Release}, store.StateReady)
		delivered("m", false)
		e.settle(store.Settlement{Receipt: e.claimOne("m", held).Receipt, Action: store.Snooze}, store.StateReady)
		delivered("m", true)
		e.cancel("m", store.StateReady)
		e.send(message("m"))
		delivered("m", false)
		e.settle(store.Settlement{Receipt: e.claimOne("m", held).Receipt, Action: store.Bury, Reason: "no"},
			store.StateDead)
		delivered("m", true)
		e.restore(newDeadInfo("n", store.DeadExpired, longAgo, func(i *store.Info) { i.Delivered = false }))
		delivered("n", false)
		e.equal("replayed", e.replay(allDead, store.Due{}), 2)
		delivered("n", true)
	}},
	{"restored dead messages are replayed and purged", func(e *env) {
		now := e.now()
		e.restore(newDeadInfo("a", store.DeadFailed, longAgo), newDeadInfo("b", store.DeadBuried, now),
			newDeadInfo("c", store.DeadExpired, longAgo.Add(time.Second)))
		e.equal("listed", infoIDs(e.list(store.ListRequest{State: store.StateDead, Limit: 10})),
			[]string{"a", "c", "b"})
		e.equal("purged", e.purge(deadByID("a")), 1)
		e.equal("replayed", e.replay(allDead, store.Due{}), 2)
		e.equal("attempts", e.live("b", store.StateReady).Attempts, 0)
		e.equal("claimed", e.claimAll(), []string{"b", "c"})
	}},
	{"a time of death in the future becomes now", func(e *env) {
		e.restore(newDeadInfo("m", store.DeadFailed, farFuture))
		e.at("died at", e.live("m", store.StateDead).DiedAt, e.now())
		e.equal("replayed", e.replay(allDead, store.Due{}), 1)
	}},
	{"restored messages are claimed among the others by due time", func(e *env) {
		now := e.now()
		e.send(message("b"), message("d", at(now.Add(-time.Minute))))
		e.restore(newInfo("c", store.StateReady, now.Add(-time.Hour)),
			newInfo("a", store.StateReady, now.Add(-time.Second)),
			newInfo("e", store.StateScheduled, now.Add(time.Hour)))
		e.equal("claimed", ids(e.claim(10)), []string{"c", "d", "a", "b"})
	}},
	{"wait ends for a restored message", func(e *env) {
		restore := func(id string, due time.Time) {
			_, err := e.Peer.Restore(e.Context(), e.queue, []store.Info{newInfo(id, store.StateReady, due)})
			e.ok(err)
		}
		e.wakes("m", func() { restore("m", longAgo) })
		e.wakes("n", func() { restore("n", e.now().Add(soon)); e.pass(soon) })
	}},
	{"a restore of only dead messages creates the queue", func(e *env) {
		e.equal("exists", e.stats().Exists, false)
		e.restore(newDeadInfo("m", store.DeadFailed, longAgo))
		e.count(0, 0, 0, 1)
		e.equal("exists", e.stats().Exists, true)
		e.equal("next due is zero", e.stats().NextDue.IsZero(), true)
	}},
	{"the lease of a cancelled message does not hold one restored under its id", func(e *env) {
		e.send(message("m"), message("n"))
		c := e.claim(2)
		e.cancel("m", store.StateLeased)
		e.restore(newInfo("m", store.StateReady, longAgo, func(i *store.Info) {
			i.Attempts, i.LastError, i.Delivered = 1, "no", true
		}))
		e.refused(c[0].Receipt)
		e.equal("attempt", e.claimOne("m", held).Attempt, 2)
		e.ack(c[1])
	}},
	{"a message at every limit is restored whole", func(e *env) {
		headers := map[string]string{}
		for i := range store.MaxHeaders {
			headers[strings.Repeat("h", 100)+string(rune('0'+i))] = strings.Repeat("v", 100)
		}
		big := newDeadInfo(strings.Repeat("ÿ", store.MaxID/2), store.DeadFailed, longAgo, func(i *store.Info) {
			i.Payload, i.Headers, i.Attempts = []byte(strings.Repeat("\x00", store.MaxPayload)), headers,
				store.MaxAttempts
			i.MaxAttempts, i.Timeout = store.MaxAttempts, store.MaxLease
			i.ExpireAfter, i.DedupWindow = store.MaxDelay, store.MaxDelay
			i.LastError = strings.Repeat("e", store.MaxReason)
			for range store.MaxFailures {
				i.Failures = append(i.Failures, store.Failure{
					Time: farFuture, Attempt: store.MaxAttempts, Duration: store.MaxDelay,
					Worker: strings.Repeat("w", store.MaxWorkerName), Error: strings.Repeat("e", store.MaxFailureText),
				})
			}
		})
		raw := newInfo("raw", store.StateReady, longAgo, unreadable(strings.Repeat("\xff", store.MaxBatchBytes)))
		for _, m := range []store.Info{big, raw} {
			e.restore(m)
			e.equal("same", e.get(m.ID).Same(&m), true)
		}
		e.equal("died", e.claimWith(1, held).Died, []string{"raw"})
	}},
	{"a full batch is restored and removed in one call each", func(e *env) {
		var all []store.Info
		for i, m := range many(store.MaxBatch) {
			info := newInfo(m.ID, store.StateReady, longAgo)
			if i%2 == 0 {
				info = newDeadInfo(m.ID, store.DeadFailed, longAgo)
			}
			all = append(all, info)
		}
		e.restore(all...)
		e.count(0, store.MaxBatch/2, 0, store.MaxBatch/2)
		e.equal("removed", slices.Contains(e.remove(all...), false), false)
		e.count(0, 0, 0, 0)
	}},
	{"the caller may reuse what it restored", func(e *env) {
		m := newInfo("m", store.StateReady, longAgo, func(i *store.Info) { i.Headers = map[string]string{"k": "v"} })
		raw := newInfo("raw", store.StateScheduled, farFuture, unreadable("\xffbytes"))
		e.restore(m, raw)
		copy(m.Payload, "XXXXXXX")
		m.Headers["k"] = "X"
		copy(raw.Raw, "XXXXXXX")
		c := e.claimOne("m", held)
		e.equal("payload", string(c.Payload), "payload of m")
		e.equal("headers", c.Headers, map[string]string{"k": "v"})
		e.equal("raw", string(e.get("raw").Raw), "\xffbytes")
	}},
}

var removeRules = []rule{
	{"a message is removed if it is unchanged", func(e *env) {
		e.restore(everyKind()...)
		all := e.listAll()
		for _, removed := range e.remove(all...) {
			e.equal("removed", removed, true)
		}
		e.count(0, 0, 0, 0)
		for i := range all {
			e.gone(all[i].ID)
		}
		e.send(message("ready"))
		e.equal("attempt", e.claimOne("ready", held).Attempt, 1)
	}},
	{"a message that has become ready is unchanged", func(e *env) {
		e.send(message("m", delay(time.Minute)))
		info := *e.live("m", store.StateScheduled)
		e.advance(time.Hour)
		e.equal("removed", e.remove(info), []bool{true})
	}},
	{"a message that has changed is not removed", func(e *env) {
		rescheduled, replayed, again, failed := "rescheduled", "replayed", "sent again", "failed"
		e.sendDead(replayed)
		e.send(message(failed))
		c := e.claimOne(failed, held)
		e.send(message(rescheduled), message(again))
		var was []store.Info
		for _, id := range []string{rescheduled, replayed, again, failed} {
			was = append(was, *e.get(id))
		}
		was[3].State, was[3].LeaseDeadline = store.StateReady, time.Time{}
		e.ok(e.tryReschedule(rescheduled, store.Due{Delay: time.Hour}))
		e.replay(allDead, store.Due{At: was[1].Due})
		e.cancel(again, store.StateReady)
		other := message(again, at(was[2].Due))
		other.Payload = []byte("another payload")
		e.send(other)
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Nack, Reason: "no"}, store.StateReady)
		e.ok(e.tryReschedule(failed, store.Due{At: was[3].Due}))
		e.equal("removed", e.remove(was...), []bool{false, false, false, false})
		e.count(1, 3, 0, 0)
		e.equal("payload", string(e.get(again).Payload), "another payload")
	}},
	{"a leased message is not removed", func(e *env) {
		e.send(message("m"))
		before := *e.get("m")
		c := e.claimOne("m", held)
		e.equal("removed", e.remove(before, *e.get("m")), []bool{false, false})
		e.ack(c)
	}},
	{"remove ignores messages that do not exist", func(e *env) {
		e.send(message("m"), message("n"))
		m := *e.get("m")
		e.cancel("m", store.StateReady)
		unknown := newInfo("unknown", store.StateReady, longAgo)
		e.equal("removed", e.remove(m, unknown, *e.get("n")), []bool{false, false, true})
		f := e.other()
		e.equal("removed", f.remove(m), []bool{false})
		e.equal("exists", f.stats().Exists, false)
	}},
	{"a message given twice is removed once", func(e *env) {
		e.send(message("m"))
		m := *e.get("m")
		e.equal("removed", e.remove(m, m), []bool{true, false})
	}},
	{"the lease of a cancelled message does not hold one sent after a removal", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", held)
		e.cancel("m", store.StateLeased)
		e.send(message("m"))
		e.equal("removed", e.remove(*e.get("m")), []bool{true})
		e.send(message("m"))
		e.refused(c.Receipt)
		e.claimOne("m", held)
		e.refused(c.Receipt)
	}},
}
