package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// urgencyRules are the rules of the urgency of messages.
var urgencyRules = slices.Concat(keptUrgencyRules, refusedUrgencyRules, acceptedUrgencyRules, urgencyTurnRules,
	urgencyShareRules, urgencyHistoryRules, urgencyLimitRules, urgencyOrderRules, urgencyHoldRules, urgencyFlowRules,
	urgencyChangeRules, urgencyCountRules, urgencyForwardRules, urgencyWaitRules, manyUrgencyRules)

// urgent is a flow with urgencies and without limits.
var urgent = store.Flow{Urgency: true}

func high(m *store.Outgoing) { m.Urgency = store.UrgencyHigh }
func low(m *store.Outgoing)  { m.Urgency = store.UrgencyLow }

func withUrgency(u store.Urgency) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.Urgency = u }
}

// urgencies are all urgencies, the most urgent first.
var urgencies = []store.Urgency{store.UrgencyHigh, store.UrgencyNormal, store.UrgencyLow}

// hasUrgency checks the urgency of a live message.
func (e *env) hasUrgency(id string, u store.Urgency) {
	e.Helper()
	e.equal("urgency of "+id, e.liveAnyhow(id).Urgency, u)
}

// inThisOrder claims messages one by one and acks them. None is left then.
func (e *env) inThisOrder(ids ...string) {
	e.Helper()
	for _, id := range ids {
		e.ack(e.starts(id))
	}
	e.full()
}

// starts claims one message, which must have the id. Claims may take none as long as they say that more is left.
func (e *env) starts(id string) store.Claimed {
	e.Helper()
	for range 10 {
		if c := e.claimWith(1, held); len(c.Messages) > 0 || !c.More {
			e.equal("claimed", ids(c.Messages), []string{id})
			return c.Messages[0]
		}
	}
	e.Fatalf("claims never come to %q", id)
	return store.Claimed{}
}

// empty checks that no message is left, and that nothing counts any more.
func (e *env) empty() {
	e.Helper()
	e.full()
	e.count(0, 0, 0, 0)
	e.counted(0)
	e.equal("counts of keys", e.flow().Keys, store.KeyCounts{})
	e.equal("keys that wait", keyNames(e.states(store.KeysRequest{Limit: 5})), []string(nil))
}

// fullOfHeaders has a message have as many headers as are allowed.
func fullOfHeaders(m *store.Outgoing) {
	m.Headers = map[string]string{}
	for i := range store.MaxHeaders {
		m.Headers[fmt.Sprintf("!%d", i)] = "v"
	}
}

var keptUrgencyRules = []rule{
	{"an urgency is kept with the flow of the queue, and implies turns of keys", func(e *env) {
		for _, f := range []store.Flow{urgent, {Urgency: true, Concurrency: 3}, {Urgency: true, Key: store.KeyFlow{
			Order: store.OrderHalt, Weight: 3}}, fair} {
			e.limit(f)
			e.equal("flow", e.flow().Flow, f.Normal())
			e.equal("fair", e.flow().Fair, true)
		}
		e.is(e.Store.SetFlow(e.Context(), e.queue, fair, &urgent), store.ErrConflict)
		e.ok(e.Store.SetFlow(e.Context(), e.queue, urgent, &fair))
		e.is(e.Store.SetFlow(e.Context(), e.queue, fair, &fair), store.ErrConflict)
		e.ok(e.Store.SetFlow(e.Context(), e.queue, fair, &store.Flow{Urgency: true, Fair: true}))
		e.equal("urgency", e.flow().Urgency, false)
		e.limit(urgent)
		e.purge(store.Selection{})
		e.equal("urgency after a purge", e.flow().Urgency, true)
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		e.limit(fair)
		e.equal("urgency after a delete", e.flow().Urgency, false)
		for _, queue := range []string{"topic:" + e.queue, "schedules:"} {
			e.refusesFlow(queue, urgent)
		}
	}},
	{"an urgency is kept by Claim, Get, List and every settle that keeps the message", func(e *env) {
		e.limit(urgent)
		for i, u := range []store.Urgency{store.UrgencyHigh, store.UrgencyLow, store.UrgencyHigh, store.UrgencyLow} {
			id := fmt.Sprint(i)
			e.send(message(id, withUrgency(u), withKey(strings.Repeat("k", i/2)), maxAttempts(4)))
			for _, s := range []store.Settlement{
				{Action: store.Release}, {Action: store.Snooze}, {Action: store.Nack, Reason: "no"},
				{Action: store.GiveBack, Within: -1}, {Action: store.Bury, Reason: "bad"},
			} {
				e.hasUrgency(id, u)
				e.equal("listed", e.list(store.ListRequest{State: store.StateReady, Limit: 10})[0].Urgency, u)
				c := e.starts(id)
				e.equal("urgency of a claimed message", c.Urgency, u)
				e.hasUrgency(id, u)
				s.Receipt = c.Receipt
				e.ok(e.trySettle(s)[0].Err)
			}
			e.equal("urgency of a dead message", e.live(id, store.StateDead).Urgency, u)
			e.equal("replayed", e.replay(deadByID(id), store.Due{}), 1)
			e.hasUrgency(id, u)
			e.ok(e.tryReschedule(id, store.Due{Delay: 48 * time.Hour}))
			e.hasUrgency(id, u)
			e.ok(e.tryReschedule(id, store.Due{}))
			e.ack(e.starts(id))
			e.gone(id)
		}
		e.empty()
	}},
	{"an urgency goes with a group, with a key and with every header, and with none of them", func(e *env) {
		e.limit(urgent)
		e.send(message("m", high, withKey("k"), group("g"), fullOfHeaders),
			message("n", low, group("g"), fullOfHeaders), message("o", low, withKey("g")),
			message("p", high), message("q", withKey("k"), fullOfHeaders))
		e.inGroup("g", "m", "n")
		want := map[string]string{"m": "high k 64", "n": "low  64", "o": "low g 0", "p": "high  0", "q": " k 64"}
		for id := range want {
			want[id] = strings.Replace(want[id], "64", fmt.Sprint(store.MaxHeaders), 1)
		}
		for range 5 {
			c := e.claimWith(1, held).Messages[0]
			got := fmt.Sprint(c.Urgency, " ", c.Key, " ", len(c.Headers))
			e.equal("urgency, key and headers of "+c.ID, got, want[c.ID])
			e.ack(c)
		}
		e.empty()
		e.noIndex("g", "m", "n", "o", "p", "q")
	}},
	{"an urgency survives failed attempts, the end of a lease, expiry and days ahead", func(e *env) {
		e.limit(urgent)
		e.send(message("lost", high, maxAttempts(1)), message("far", low, delay(48*time.Hour)),
			message("far too", high, withKey("k"), delay(72*time.Hour)))
		e.claimOne("lost", 50*time.Millisecond)
		e.send(message("expired", low, expireAfter(time.Second), delay(time.Second)))
		e.advance(time.Minute)
		e.equal("claimed", len(e.claim(1)), 0)
		e.equal("urgency of a dead message", e.live("lost", store.StateDead).Urgency, store.UrgencyHigh)
		e.equal("urgency of a dead message", e.live("expired", store.StateDead).Urgency, store.UrgencyLow)
		e.advance(72 * time.Hour)
		e.equal("urgency of a claimed message", e.claimOne("far too", held).Urgency, store.UrgencyHigh)
		e.equal("urgency of a claimed message", e.claimOne("far", held).Urgency, store.UrgencyLow)
	}},
	{"a duplicate changes no urgency", func(e *env) {
		e.limit(urgent)
		e.send(message("m", high), message("n"))
		for _, r := range e.trySend(message("m", low), message("n", high), message("m")) {
			e.equal("duplicate", r.Duplicate, true)
		}
		e.hasUrgency("m", store.UrgencyHigh)
		e.hasUrgency("n", store.UrgencyNormal)
	}},
	{"a message that replaces or follows another has its own urgency", func(e *env) {
		e.limit(urgent)
		for name, mode := range modes {
			e.send(message(name, high, delay(time.Hour)), message(name+" none", low, withKey("k"), delay(time.Hour)))
			e.equal("results", e.trySend(message(name, mode, low)), wasReplaced)
			e.equal("results", e.trySend(message(name+" none", mode)), wasReplaced)
			e.hasUrgency(name, store.UrgencyLow)
			e.hasUrgency(name+" none", store.UrgencyNormal)
		}
		for _, ending := range endings {
			c := e.followed("m", low)
			e.hasUrgency("m", store.UrgencyLow)
			ending.Receipt = c.Receipt
			e.ok(e.trySettle(ending)[0].Err)
			e.hasUrgency("m", store.UrgencyLow)
			e.cancel("m", e.get("m").State)
		}
	}},
}

// refusesUrgency checks that sends of the messages return the error of NoUrgency for u, and write nothing.
func (e *env) refusesUrgency(u store.Urgency, msgs ...store.Outgoing) {
	e.Helper()
	want, before := store.NoUrgency(e.queue, u), e.everything(msgs)
	for _, s := range []store.Store{e.Store, e.Peer} {
		results, err := s.Send(e.Context(), e.queue, msgs)
		if e.is(err, store.ErrInvalid); !strings.Contains(err.Error(), want.Error()) {
			e.Fatalf("urgency is refused with %q, want %q", err, want)
		}
		e.equal("field", store.FieldOf(err), "urgency")
		e.equal("results", len(results), 0)
	}
	e.equal("queue and messages", e.everything(msgs), before)
}

// everything describes the queue and the messages with the ids of msgs.
func (e *env) everything(msgs []store.Outgoing) string {
	e.Helper()
	s := e.stats()
	text := fmt.Sprintln(s.Exists, s.Scheduled, s.Ready, s.Leased, s.Dead, e.listed(), e.flow().Flow)
	for _, m := range msgs {
		text += describe(e.get(m.ID)) + "\n"
	}
	return text
}

// withoutUrgency are flows of queues that refuse urgencies.
var withoutUrgency = []store.Flow{{}, concurrency(3), fair, keyConcurrency(1), continuing, halting}

var refusedUrgencyRules = []rule{
	{"an urgency is refused by a queue that does not exist, and does not create it", func(e *env) {
		for _, u := range []store.Urgency{store.UrgencyHigh, store.UrgencyLow} {
			for _, mode := range modes {
				e.refusesUrgency(u, message("m", withUrgency(u), mode))
			}
			e.refusesUrgency(u, message("m", withUrgency(u)))
			e.refusesUrgency(u, message("m", withUrgency(u), withKey("k"), delay(72*time.Hour), group("g")))
			e.refusesUrgency(u, message("m", withUrgency(u), once("key", "request")))
			e.refusesUrgency(u, message("m"), message("n", withUrgency(u)), message("o"))
		}
		e.equal("exists", e.stats().Exists, false)
		e.equal("duplicate", e.sendsOnce(message("m", once("key", "request"))).IsZero(), false) // nothing is remembered
	}},
	{"an urgency is refused by a queue without urgencies, whatever is sent", func(e *env) {
		for _, flow := range withoutUrgency {
			f := e.other()
			f.limit(flow)
			f.ack(f.inEveryState())
			f.send(message("leased", at(f.now().Add(-time.Hour))))
			f.claimOne("leased", held)
			for _, id := range []string{"scheduled", "ready", "leased", "dead", "new"} {
				for _, mode := range modes {
					f.refusesUrgency(store.UrgencyHigh, message(id, high, mode))
				}
				f.refusesUrgency(store.UrgencyHigh, message(id, high))
				f.refusesUrgency(store.UrgencyLow, message(id, low, withKey("k")))
				f.refusesUrgency(store.UrgencyLow, message(id, low, once("key", "request")))
				f.refusesUrgency(store.UrgencyLow, message(id, low, replacing, once("key", "request")))
				if known := f.get(id); known != nil {
					f.refusesUrgency(store.UrgencyHigh, message(id, high, keepingDue, unchanged(known)))
				}
			}
			f.refusesUrgency(store.UrgencyLow, message("a"), message("b", low), message("c", high), message("d"))
			f.refusesUrgency(store.UrgencyLow, message("a", once("a", "a")), message("b", low, once("b", "b")))
			f.refusesUrgency(store.UrgencyHigh, message("a", replacing), message("ready", high, keepingDue))
			f.count(1, 1, 1, 1)
		}
	}},
	{"an urgency is refused once the flow has no urgencies any more", func(e *env) {
		for _, flow := range withoutUrgency {
			f := e.other()
			f.limit(urgent)
			f.send(message("a", high), message("b", low, delay(time.Hour)), message("c", high, once("key", "request")))
			f.limit(flow)
			f.refusesUrgency(store.UrgencyHigh, message("m", high))
			f.refusesUrgency(store.UrgencyHigh, message("a", high, keepingDue))
			f.refusesUrgency(store.UrgencyHigh, message("c", high, once("key", "request")))
			f.limit(urgent)
			f.send(message("m", high))
			f.equal("results", f.trySend(message("b", low, keepingDue)), wasReplaced)
		}
	}},
}
