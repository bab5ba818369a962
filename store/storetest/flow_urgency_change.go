package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// urgencyFlowRules are about flows that get urgencies or lose them.
var urgencyFlowRules = []rule{
	{"sorted messages keep the urgency for which they were sorted when the flow gets urgencies", func(e *env) {
		for _, key := range []string{"", "k"} {
			f := e.other()
			f.limit(fair)
			f.restoresAll(withKey(key))
			f.sort()
			f.limit(urgent)
			f.send(message("h", high, withKey("h")), message("l", low, withKey(key)), message("n", withKey(key)))
			f.inThisOrder("h", "a", "b", "c", "n", "l")
			f.empty()
		}
	}},
	{"sorted messages keep their urgency when the flow has urgencies no more", func(e *env) {
		for _, key := range []string{"", "k"} {
			f := e.other()
			f.limit(urgent)
			f.threeOf(key)
			f.sort()
			f.limit(fair)
			f.send(message("new", withKey(key)))
			f.restore(f.restored("as normal", time.Minute/2, high, withKey(key)))
			f.inThisOrder(key+"H", key+"N", "as normal", "new", key+"L")
			f.empty()
		}
	}},
	{"messages that are not sorted yet have no urgency once the flow has none", func(e *env) {
		e.limit(urgent)
		e.threeOf("k")
		e.limit(fair)
		e.inThisOrder("kL", "kN", "kH")
	}},
	{"leased messages that come back have the urgency that the flow allows then", func(e *env) {
		e.limit(urgent)
		e.advance(time.Second)
		e.threeOf("k")
		c := e.claim(3)
		e.limit(fair)
		e.send(message("n", withKey("k")))
		for _, m := range c {
			e.settle(nack(m, 0), store.StateReady)
		}
		e.inThisOrder("kH", "kL", "kN", "n") // all are due now
		e.limit(urgent)
		e.send(message("h", high), message("l", low))
		c = e.claim(3)
		e.equal("claimed last", c[len(c)-1].ID, "l")
		e.limit(fair)
		for _, m := range c {
			e.settle(store.Settlement{Receipt: m.Receipt, Action: store.Release}, store.StateReady)
		}
		e.limit(urgent)
		e.equal("claimed first", e.claimOne("h", held).Urgency, store.UrgencyHigh)
	}},
	{"high messages start first by the same rule after the flow has lost its urgencies", func(e *env) {
		s := e.starting()
		s.sendsOf(90, store.UrgencyHigh, "high", "", "k")
		s.sendsOf(20, store.UrgencyNormal, "normal", "")
		s.sendsOf(5, store.UrgencyLow, "low", "k")
		s.takesSome(11)
		s.limit(fair)
		s.drains(5, 1)
		s.equal("urgencies", s.order[:64], strings.Repeat("HHHHHHHN", 7)+"HHHHHHLN")
		s.empty()
	}},
	{"urgencies are set and removed while messages are sorted, leased and held", func(e *env) {
		one := store.KeyFlow{Concurrency: 1}
		flows := []store.Flow{urgentKeys(one), {Key: one}, urgentHalting, halting, urgentContinuing, fair, urgent, {},
			urgent, concurrency(50), urgentContinuing, {Key: one}}
		e.limit(urgent)
		sent, acked := 0, 0
		var leased []store.Claimed
		for round := range 4 {
			for i, flow := range flows {
				e.limit(flow)
				for j, u := range urgencies {
					key, ago := []string{"", "k", "l"}[(i+j+round)%3], time.Duration(sent%7)*time.Second
					e.restore(e.restored(fmt.Sprint("m", sent), ago, withKey(key), withUrgency(u)))
					sent++
				}
				c := e.claim(1 + i%4)
				for j, m := range slices.Concat(leased, c) {
					switch (i + j) % 3 {
					case 0:
						e.settle(nack(m, 0), store.StateReady)
					case 1:
						e.settle(store.Settlement{Receipt: m.Receipt, Action: store.Release}, store.StateReady)
					default:
						acked++
						e.ack(m)
					}
				}
				if leased = nil; i%3 > 0 {
					leased = e.claim(i % 3)
				}
			}
		}
		e.ack(leased...)
		acked += len(leased)
		for range sent {
			c := e.claim(10)
			acked += len(c)
			e.ack(c...)
		}
		e.equal("acked", acked, sent)
		e.empty()
	}},
	{"an order is removed and set while messages of several urgencies wait for their key", func(e *env) {
		for _, flow := range []store.Flow{urgent, urgentKeys(store.KeyFlow{Concurrency: 1}), fair} {
			f := e.other()
			f.limit(urgentContinuing)
			f.send(message("held", withKey("k"), at(f.now().Add(-2*time.Hour))))
			c := f.claimOne("held", held)
			f.threeOf("k")
			f.sort()
			f.settle(nack(c, time.Hour), store.StateScheduled)
			f.full()
			f.limit(flow)
			var got []string
			for range 3 {
				m := f.claimWith(1, held).Messages
				got = append(got, ids(m)...)
				f.ack(m...)
				f.limit(flow)
			}
			slices.Sort(got)
			f.equal("claimed", got, []string{"kH", "kL", "kN"})
			f.limit(urgent)
			f.threeOf("k")
			f.sort()
			f.limit(urgentContinuing)
			f.inOrder("k", "kL", "kN", "kH")
			f.keyCounts(0, 0, 0)
		}
	}},
	{"a queue that is fair no longer claims messages of all urgencies in order of due time, then id", func(e *env) {
		for _, plain := range []store.Flow{{}, concurrency(1500)} {
			for _, before := range []store.Flow{urgent, fair} {
				f := e.other()
				f.limit(urgent)
				now := f.now()
				var msgs []store.Outgoing
				for i := range 900 {
					msgs = append(msgs, message(fmt.Sprintf("m%03d", i), withKey([]string{"", "a", "b"}[i/3%3]),
						withUrgency(urgencies[i%3]), at(now.Add(-time.Duration(i)*time.Millisecond))))
				}
				f.send(msgs...)
				f.sort()
				f.limit(before)
				f.limit(plain)
				f.equal("flow", f.flow().Flow, plain)
				f.count(0, 900, 0, 0)
				f.equal("claimed", f.claimAll()[:4], []string{"m899", "m898", "m897", "m896"})
				f.count(0, 0, 900, 0)
				f.limit(urgent)
				f.equal("counts", f.flow().Keys, store.KeyCounts{})
			}
		}
	}},
	{"a queue that has urgencies again sorts its messages again", func(e *env) {
		e.limit(urgent)
		e.threeOf("k")
		e.sort()
		e.limit(store.Flow{})
		e.limit(urgent)
		e.equal("counts", e.flow().Keys, store.KeyCounts{})
		e.inThisOrder("kH", "kN", "kL")
		e.empty()
	}},
}

// urgencyChangeRules are about messages that change while they wait.
var urgencyChangeRules = []rule{
	{"a sorted message that gets another urgency and keeps its due time goes where that is", func(e *env) {
		for _, c := range []struct {
			id   string
			u    store.Urgency
			want []string
		}{
			{"L", "high", []string{"L", "h", "H", "N", "n"}}, {"H", "low", []string{"h", "N", "n", "L", "H"}},
			{"N", "high", []string{"N", "h", "H", "n", "L"}}, {"L", "", []string{"h", "H", "L", "N", "n"}},
		} {
			for i := range 4 {
				key := []string{"", "k"}[i/2]
				f := e.other()
				f.limit(urgent)
				f.threeOf(key)
				f.send(message(key+"h", withKey(key), high, at(f.now().Add(-2*time.Second))),
					message(key+"n", withKey(key)))
				f.sort()
				m := message(key+c.id, keepingDue, withKey(key), withUrgency(c.u))
				if i%2 == 1 {
					m.OnDuplicate.Unchanged = f.get(m.ID)
				}
				f.equal("results", f.trySend(m), wasReplaced)
				for _, id := range c.want {
					f.ack(f.starts(key + id))
				}
				f.empty()
			}
		}
	}},
	{"a sorted message that is replaced with another urgency and due time goes where they are", func(e *env) {
		e.limit(urgent)
		e.threeOf("k")
		e.sort()
		e.equal("results", e.trySend(message("kH", replacing, withKey("k"), low)), wasReplaced)
		e.equal("results", e.trySend(message("kN", replacing, withKey("k"), high, delay(time.Second))), wasReplaced)
		e.inThisOrder("kL", "kH")
		e.advance(time.Second)
		e.inThisOrder("kN")
		e.threeOf("k")
		e.sort()
		e.equal("results", e.trySend(message("kL", replacing, withKey("l"), high)), wasReplaced)
		e.equal("results", e.trySend(message("kH", debounced(time.Second, time.Minute), low)), wasReplaced)
		e.inThisOrder("kL", "kN")
		e.advance(time.Second)
		e.inThisOrder("kH")
		e.empty()
	}},
	{"a message that gets another urgency again and again starts once", func(e *env) {
		e.limit(urgent)
		e.threeOf("k")
		for i := range 40 {
			e.sort()
			m := message("kN", keepingDue, withKey("k"), withUrgency(urgencies[i%3]))
			e.equal("results", e.trySend(m), wasReplaced)
		}
		e.inThisOrder("kN", "kH", "kL")
		e.empty()
	}},
	{"a message that gets another urgency after the flow has lost its urgencies is normal", func(e *env) {
		e.limit(urgent)
		e.threeOf("k")
		e.sort()
		e.limit(fair)
		e.equal("results", e.trySend(message("kH", keepingDue, withKey("k"))), wasReplaced)
		e.inThisOrder("kN", "kH", "kL")
		e.empty()
	}},
	{"a sorted message of any urgency that is cancelled or removed does not start", func(e *env) {
		for _, limit := range []store.Flow{urgent, urgentContinuing} {
			for i, id := range []string{"kH", "kN", "kL"} {
				for _, cancel := range []bool{true, false} {
					f := e.other()
					f.limit(limit)
					f.threeOf("k")
					f.sort()
					if cancel {
						f.cancel(id, store.StateReady)
					} else {
						f.equal("removed", f.remove(*f.get(id)), []bool{true})
					}
					left := slices.Delete([]string{"kH", "kN", "kL"}, i, i+1)
					if limit.Key.Order != store.OrderNone {
						slices.Reverse(left)
					}
					f.inThisOrder(left...)
					f.empty()
				}
			}
		}
	}},
	{"a message that is cancelled and sent again with another urgency is a new one", func(e *env) {
		e.limit(urgent)
		e.threeOf("k")
		e.sort()
		due := e.get("kL").Due
		e.cancel("kL", store.StateReady)
		e.send(message("kL", withKey("k"), high, at(due)))
		e.cancel("kH", store.StateReady)
		e.send(message("kH", withKey("k"), low))
		e.inThisOrder("kL", "kN", "kH")
		e.empty()
	}},
	{"cancelled messages of one urgency leave no turn to it", func(e *env) {
		s := e.starting()
		s.sendsOf(60, store.UrgencyHigh, "high", "")
		s.sendsOf(9, store.UrgencyNormal, "normal", "k")
		s.sendsOf(9, store.UrgencyLow, "low", "k")
		s.takesSome(3)
		for id, one := range s.live {
			if one.urgency != store.UrgencyHigh {
				s.cancel(id, store.StateReady)
				delete(s.live, id)
			}
		}
		s.equal("counts", s.flow().Keys, store.KeyCounts{Waiting: 1})
		s.drains(10)
		s.equal("urgencies", s.order, strings.Repeat("H", 60))
		s.empty()
	}},
	{"a purge removes sorted messages of all urgencies", func(e *env) {
		for _, limit := range []store.Flow{urgent, urgentContinuing, urgentKeys(store.KeyFlow{Concurrency: 1})} {
			for _, sel := range []store.Selection{{}, {State: store.StateReady}} {
				f := e.other()
				f.limit(limit)
				f.threeOf("k")
				f.threeOf("l")
				f.sort()
				f.equal("purged", f.purge(sel), 6)
				f.count(0, 0, 0, 0)
				f.full()
				f.empty()
				f.threeOf("k")
				f.equal("claimed", len(f.claimWith(1, held).Messages), 1)
				f.equal("waiting", f.key("k").Waiting, int64(2))
			}
		}
	}},
	{"a delete removes sorted messages of all urgencies", func(e *env) {
		e.limit(urgent)
		e.threeOf("k")
		e.sort()
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		e.equal("exists", e.stats().Exists, false)
		e.limit(urgent)
		e.empty()
		e.send(message("kL", low, withKey("k")), message("n"))
		e.inThisOrder("n", "kL")
		e.empty()
	}},
}
