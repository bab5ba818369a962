package storetest

import (
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// forwardsTo returns an env with a queue that e's messages can be moved to in one step, and skips the rule if there is
// none.
func (e *env) forwardsTo() *env {
	e.Helper()
	f := e.other()
	forwarder, ok := e.Store.(store.Forwarder)
	if !ok {
		e.Skip("this engine moves messages with claims and follow-ups")
	}
	direct, err := forwarder.ForwardsTo(e.queue, store.Target{Kind: store.TargetQueue, Name: f.queue})
	e.ok(err)
	if !direct {
		e.Skip("this engine does not move messages to another queue in one step")
	}
	return f
}

// forward moves up to max messages to the queue of f.
func (e *env) forward(f *env, max int) store.Forwarded {
	e.Helper()
	forwarded, err := e.tryForward(store.ForwardRequest{
		To: store.Target{Kind: store.TargetQueue, Name: f.queue}, Max: max, IDs: true,
	})
	e.ok(err)
	e.equal("number of ids", len(forwarded.IDs), forwarded.Count)
	return forwarded
}

func (e *env) tryForward(req store.ForwardRequest) (store.Forwarded, error) {
	return e.Store.(store.Forwarder).Forward(e.Context(), e.queue, req)
}

var forwardRules = []rule{
	{"a message is moved whole, with its id and due time", func(e *env) {
		f := e.forwardsTo()
		whole := message("m", maxAttempts(3), dedupWindow(time.Hour))
		whole.Headers = map[string]string{"kind": "mail", "empty": ""}
		whole.Group = "order-42"
		whole.Timeout = time.Minute
		e.send(whole)
		was := e.live("m", store.StateReady)
		e.equal("moved", e.forward(f, 10).IDs, []string{"m"})
		e.gone("m")
		is := f.live("m", store.StateReady)
		e.equal("message", describe(is), describe(was))
		e.equal("duplicate", e.trySend(message("m"))[0].Duplicate, true)
		e.equal("payload that is claimed", string(f.claimOne("m", held).Payload), "payload of m")
	}},
	{"only ready messages are moved, earliest first, and up to the maximum", func(e *env) {
		f := e.forwardsTo()
		first := e.now().Add(-time.Hour)
		e.send(message("later", delay(time.Hour)))
		for _, i := range []int{3, 1, 4, 0, 2} {
			e.send(message(fmt.Sprint(i), at(first.Add(time.Duration(i)*time.Second))))
		}
		forwarded := e.forward(f, 2)
		e.equal("moved", forwarded.IDs, []string{"0", "1"})
		e.equal("more", forwarded.More, true)
		e.equal("moved", e.forward(f, 10).IDs, []string{"2", "3", "4"})
		e.count(1, 0, 0, 0)
		forwarded = e.forward(f, 10)
		e.equal("moved", forwarded.Count, 0)
		e.equal("more", forwarded.More, false)
		e.equal("order", f.claimAll(), []string{"0", "1", "2", "3", "4"})
	}},
	{"messages sent days ahead are moved when they are due", func(e *env) {
		f := e.forwardsTo()
		e.send(many(20, delay(48*time.Hour))...)
		e.equal("moved", e.forward(f, 100).Count, 0)
		e.advance(48*time.Hour + time.Second)
		f.advance(48*time.Hour + time.Second)
		e.equal("moved", e.forward(f, 100).Count, 20)
		c := f.claim(100)
		e.equal("number of messages", len(c), 20)
		for _, m := range c {
			e.equal("payload", string(m.Payload), "payload of "+m.ID)
		}
	}},
	{"leased, dead and cancelled messages are not moved", func(e *env) {
		f := e.forwardsTo()
		e.inEveryState()
		e.send(message("cancelled"))
		e.cancel("cancelled", store.StateReady)
		moved := e.forward(f, 100)
		f.count(0, int64(moved.Count), 0, 0)
		stats := e.stats()
		e.equal("scheduled, ready, leased, dead", []bool{stats.Scheduled > 0, stats.Ready > 0, stats.Leased > 0,
			stats.Dead > 0}, []bool{true, false, true, true})
	}},
	{"a message whose id the other queue knows is left out", func(e *env) {
		f := e.forwardsTo()
		f.send(message("live", delay(time.Hour)), message("acked", dedupWindow(time.Hour)))
		f.ack(f.claimOne("acked", held))
		e.send(message("live"), message("acked"), message("new"))
		e.equal("moved", e.forward(f, 10).Count, 3)
		e.count(0, 0, 0, 0)
		f.count(1, 1, 0, 0)
		f.claimOne("new", held)
	}},
	{"a message that has failed starts with no attempts, and its old receipt is lost", func(e *env) {
		f := e.forwardsTo()
		e.send(message("m", maxAttempts(2)))
		c := e.claimOne("m", held)
		e.settle(nack(c, 0), store.StateReady)
		e.pass(time.Millisecond)
		e.equal("moved", e.forward(f, 10).IDs, []string{"m"})
		e.equal("attempts", f.live("m", store.StateReady).Attempts, 0)
		e.equal("attempt", f.claimOne("m", held).Attempt, 1)
		e.refused(c.Receipt)
		e.send(message("m"))
		e.refused(c.Receipt)
		e.equal("attempts", e.live("m", store.StateReady).Attempts, 0)
	}},
	{"the messages of an expired lease are moved, or die without attempts", func(e *env) {
		f := e.forwardsTo()
		e.send(message("again"), message("last", maxAttempts(1)))
		e.claim(2)
		e.advance(held + time.Second)
		forwarded := e.forward(f, 10)
		e.equal("moved", forwarded.IDs, []string{"again"})
		e.equal("died", forwarded.Died, []string{"last"})
		e.live("last", store.StateDead)
	}},
	{"expired and unreadable messages die, and the others are moved", func(e *env) {
		f := e.forwardsTo()
		e.send(message("a"), message("expires", expireAfter(time.Second)), message("z"))
		e.restore(newInfo("unreadable", store.StateReady, longAgo, unreadable("\xffof a later version")))
		e.advance(time.Minute)
		f.advance(time.Minute)
		forwarded := e.forward(f, 10)
		e.equal("moved", forwarded.IDs, []string{"a", "z"})
		e.equal("number of dead messages", len(forwarded.Died), 2)
		e.equal("expired", forwarded.Expired, []string{"expires"})
		e.equal("reason", e.live("expires", store.StateDead).DeadReason, store.DeadExpired)
		e.equal("reason", e.live("unreadable", store.StateDead).DeadReason, store.DeadUnreadable)
		e.count(0, 0, 0, 2)
		f.count(0, 2, 0, 0)
	}},
	{"a message keeps its expiry in the other queue", func(e *env) {
		f := e.forwardsTo()
		f.send(message("default", delay(-time.Hour)))
		f.claim(1)
		e.send(message("m", expireAfter(time.Minute)))
		e.forward(f, 10)
		f.advance(time.Hour)
		e.equal("claimed", ids(f.claim(10)), []string{"default"})
		e.equal("reason", f.live("m", store.StateDead).DeadReason, store.DeadExpired)
	}},
	{"a paused queue moves nothing", func(e *env) {
		f := e.forwardsTo()
		e.send(message("m"))
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.equal("moved", e.forward(f, 10).Count, 0)
		e.ok(e.Store.SetPaused(e.Context(), e.queue, false))
		e.equal("moved", e.forward(f, 10).Count, 1)
	}},
	{"a forward of nothing creates no queue", func(e *env) {
		f := e.forwardsTo()
		e.equal("moved", e.forward(f, 10).Count, 0)
		e.equal("exists", e.stats().Exists, false)
		e.send(message("m", delay(time.Hour)))
		e.forward(f, 10)
		e.equal("the other exists", f.stats().Exists && f.stats().Ready > 0, false)
	}},
	{"a full batch of large messages is moved in parts", func(e *env) {
		f := e.forwardsTo()
		for i := range 12 {
			m := message(fmt.Sprintf("%02d", i))
			m.Payload = make([]byte, store.MaxPayload)
			e.send(m)
		}
		for moved := 0; moved < 12; {
			n := e.forward(f, store.MaxBatch).Count
			if n == 0 || n > 5 {
				e.Fatalf("%d messages of 1 MiB were moved in one call", n)
			}
			moved += n
		}
		e.equal("number of messages", len(f.claimAll()), 12)
	}},
	{"a moved message wakes the waiter of the other queue", func(e *env) {
		f := e.forwardsTo()
		f.ack(f.wakes("m", func() {
			e.send(message("m"))
			e.forward(f, 10)
		}))
	}},
	{"wait after a forward ends for the next message", func(e *env) {
		f := e.forwardsTo()
		e.send(message("first"))
		e.equal("moved", e.forward(f, 10).Count, 1)
		e.equal("moved", e.forward(f, 10).Count, 0)
		woken := make(chan error, 1)
		go func() { woken <- e.Store.Wait(e.timeoutContext(), e.queue) }()
		e.asleep(1)
		_, err := e.Peer.Send(e.Context(), e.queue, []store.Outgoing{message("second")})
		e.ok(err)
		e.ok(<-woken)
		e.equal("moved", e.forward(f, 10).IDs, []string{"second"})
	}},
	{"a queue cannot be moved to itself", func(e *env) {
		e.forwardsTo()
		e.send(message("m"))
		_, err := e.tryForward(store.ForwardRequest{To: store.Target{Kind: store.TargetQueue, Name: e.queue}, Max: 1})
		e.is(err, store.ErrInvalid)
		e.count(0, 1, 0, 0)
	}},
	{"a destination that is not allowed is refused", func(e *env) {
		e.forwardsTo()
		for _, to := range []store.Target{
			{}, {Kind: store.TargetQueue}, {Kind: store.TargetList}, {Kind: "table", Name: "x"},
			{Kind: store.TargetQueue, Name: "x", Front: true}, {Kind: store.TargetList, Name: "x", MaxLen: 1},
			{Kind: store.TargetStream, Name: "x", MaxLen: -1},
		} {
			_, err := e.Store.(store.Forwarder).ForwardsTo(e.queue, to)
			e.is(err, store.ErrInvalid)
			_, err = e.tryForward(store.ForwardRequest{To: to, Max: 1})
			e.is(err, store.ErrInvalid)
		}
	}},
}
