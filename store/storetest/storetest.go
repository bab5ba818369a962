// Package storetest checks that an engine keeps the store contract. Run is the conformance suite, with a subtest for
// every rule, and RunStateMachine compares random histories with a simple model. An engine's tests call both with a
// function that opens the engine. Start reading at Run. Of Later, the package imports only the store contract.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// Harness is one engine under test.
type Harness struct {
	// Store is the engine as one process uses it, and Peer the same data as used by another process. For an
	// engine inside the process they are the same.
	Store, Peer store.Store
	// Advance moves the engine's clock forward, at least for the queue. It is nil if the clock cannot be moved.
	Advance func(t testing.TB, queue string, d time.Duration)
	// Exact is set if only Advance moves the clock of a queue, from the first Advance until the queue is deleted.
	// Without it, rules that move the clock and the state machine are skipped.
	Exact bool
	// Back is set if Advance moves the clock back too, by a negative duration. Without it, rules that set the clock back
	// are skipped.
	Back bool
	// Sharded is set if queues get several shards when a message is sent to them. Rules about what such queues do not
	// have are skipped.
	Sharded bool
	// Asleep returns how many calls of Wait on a queue of Store sleep until they are notified or it is time. If it is
	// nil, rules cannot tell a wake-up of a waiter from a message that it finds before it sleeps.
	Asleep func(queue string) int
}

// Run runs the conformance suite: a subtest for every rule of the contract, named after the rule.
//
// It calls open for each group of rules, and for each rule that closes the store; open registers its cleanup with
// t.Cleanup. Every rule has its own queue.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	groups := []struct {
		name  string
		rules []rule
		whole bool // about queues with one shard
	}{
		{"send", sendRules, false},
		{"collapse", collapseRules, false},
		{"follow", followRules, false},
		{"once", onceRules, false},
		{"durable", durableRules, false},
		{"claim", claimRules, false},
		{"settle", settleRules, false},
		{"failures", failureRules, false},
		{"follow-ups", followUpRules, false},
		{"forward", forwardRules, false},
		{"lease", leaseRules, false},
		{"expiry", expiryRules, false},
		{"by id", idRules, false},
		{"list", listRules, false},
		{"groups", groupRules, false},
		{"keys", keyRules, false},
		{"dead", deadRules, false},
		{"purge", purgeRules, false},
		{"retention", retentionRules, false},
		{"properties", propertyRules, false},
		{"conditions", conditionRules, true},
		{"restore", restoreRules, false},
		{"remove", removeRules, false},
		{"queue", queueRules, false},
		{"events", eventRules, false},
		{"days ahead", daysAheadRules, false},
		{"wait", waitRules, false},
		{"flow", flowRules, true},
		{"flow of keys", keyFlowRules, true},
		{"order of keys", orderRules, true},
		{"urgency of messages", urgencyRules, true},
		{"sub-queues", subQueueRules, false},
		{"keys of sub-queues", subQueueKeyRules, false},
		{"concurrency", concurrencyRules, false},
	}
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			h := open(t)
			if group.whole && h.Sharded {
				t.Skip("queues have several shards")
			}
			for _, r := range group.rules {
				t.Run(r.name, func(t *testing.T) { r.test(newEnv(t, h)) })
			}
		})
	}
	t.Run("close", func(t *testing.T) {
		for _, r := range slices.Concat(closeRules, eventCloseRules) {
			t.Run(r.name, func(t *testing.T) { r.test(newEnv(t, open(t))) })
		}
	})
}

// rule is one statement of the contract.
type rule struct {
	name string
	test func(e *env)
}

// hangTimeout is how long a rule waits before it fails instead of hanging. No rule measures time with it.
const hangTimeout = 20 * time.Second

// wakeTimeout is how long a sleeping waiter may take to wake. It is shorter than the interval of an engine's own
// checks, which would hide that a notification is missing.
const wakeTimeout = 2 * time.Second

// held is the length of a lease that does not expire by accident.
const held = time.Minute

var queues atomic.Int64

func newQueueName() string { return fmt.Sprintf("storetest-%d", queues.Add(1)) }

// env is the environment of a rule: an engine and a queue of its own.
type env struct {
	*testing.T
	Harness
	queue string
}

func newEnv(t *testing.T, h Harness) *env {
	e := &env{T: t, Harness: h, queue: newQueueName()}
	if h.Advance != nil {
		h.Advance(t, e.queue, time.Millisecond)
	}
	return e
}

// other returns an env of the same engine with another queue.
func (e *env) other() *env { return newEnv(e.T, e.Harness) }

func (e *env) advance(d time.Duration) {
	e.Helper()
	if e.Advance == nil || !e.Exact {
		e.Skip("this engine's clock cannot be moved exactly")
	}
	e.Advance(e.T, e.queue, d)
}

// whole skips a rule about queues with one shard.
func (e *env) whole() {
	e.Helper()
	if e.Sharded {
		e.Skip("queues have several shards")
	}
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("unexpected error: %v", err)
	}
}

func (e *env) is(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("error is %v, want %v", err, want)
	}
}

// equal compares values of any kind. Nil and empty slices are equal.
func (e *env) equal(what string, got, want any) {
	e.Helper()
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	if g.Kind() == reflect.Slice && w.Kind() == reflect.Slice && g.Len() == 0 && w.Len() == 0 {
		return
	}
	if !reflect.DeepEqual(got, want) {
		e.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// at compares times in whole milliseconds, because an engine may return its clock with a higher resolution. If the
// clock stands still, they must be equal. If it does not, got may be later than want, but never earlier.
func (e *env) at(what string, got, want time.Time) {
	e.Helper()
	late := got.Truncate(time.Millisecond).Sub(want.Truncate(time.Millisecond))
	if late < 0 || e.Exact && late > 0 || late > hangTimeout {
		e.Fatalf("%s: got %s, want %s (late by %v)", what, got, want, late)
	}
}

func (e *env) stats() store.Stats {
	e.Helper()
	s, err := e.Peer.Stats(e.Context(), e.queue)
	e.ok(err)
	return s
}

// now returns the engine's clock in whole milliseconds.
func (e *env) now() time.Time {
	e.Helper()
	return e.stats().Now.Truncate(time.Millisecond)
}

// count checks the number of messages in each state.
func (e *env) count(scheduled, ready, leased, dead int64) {
	e.Helper()
	s := e.stats()
	e.equal("scheduled, ready, leased, dead", [4]int64{s.Scheduled, s.Ready, s.Leased, s.Dead},
		[4]int64{scheduled, ready, leased, dead})
}

// message returns a message that is ready at once, unless a change makes it due later.
func message(id string, changes ...func(*store.Outgoing)) store.Outgoing {
	m := store.Outgoing{Message: store.Message{ID: id, Payload: []byte("payload of " + id)}}
	for _, change := range changes {
		change(&m)
	}
	return m
}

// allStates are the states of a live message.
var allStates = []store.State{store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead}

func delay(d time.Duration) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.Due = store.Due{Delay: d} }
}

func at(t time.Time) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.Due = store.Due{At: t} }
}

func maxAttempts(n int) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.MaxAttempts = n }
}

func expireAfter(d time.Duration) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.ExpireAfter = d }
}

func expireAt(t time.Time) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.ExpireAt = t }
}

func dedupWindow(d time.Duration) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.DedupWindow = d }
}

// send sends messages that must not be duplicates.
func (e *env) send(msgs ...store.Outgoing) {
	e.Helper()
	for batch := range slices.Chunk(msgs, store.MaxBatch) {
		for i, r := range e.trySend(batch...) {
			if r.Duplicate {
				e.Fatalf("message %q is a duplicate", batch[i].ID)
			}
		}
	}
}

func (e *env) trySend(msgs ...store.Outgoing) []store.SendResult {
	e.Helper()
	results, err := e.Store.Send(e.Context(), e.queue, msgs)
	e.ok(err)
	e.equal("number of results", len(results), len(msgs))
	return results
}

// many returns n messages with ids in increasing order.
func many(n int, changes ...func(*store.Outgoing)) []store.Outgoing {
	msgs := make([]store.Outgoing, n)
	for i := range msgs {
		msgs[i] = message(fmt.Sprintf("m%05d", i), changes...)
	}
	return msgs
}

func (e *env) claimWith(max int, lease time.Duration) store.Claim {
	e.Helper()
	c, err := e.Store.Claim(e.Context(), e.queue, store.ClaimRequest{Max: max, Lease: lease})
	e.ok(err)
	if len(c.Messages) > max {
		e.Fatalf("a claim of %d returned %d messages", max, len(c.Messages))
	}
	return c
}

func (e *env) claim(max int) []store.Claimed {
	e.Helper()
	return e.claimWith(max, held).Messages
}

// claimOne claims one message, which must have the id.
func (e *env) claimOne(id string, lease time.Duration) store.Claimed {
	e.Helper()
	c := e.claimWith(1, lease)
	e.equal("claimed", ids(c.Messages), []string{id})
	return c.Messages[0]
}

// claimAll claims until nothing is ready and returns the ids.
func (e *env) claimAll() []string {
	e.Helper()
	var all []string
	for {
		c := e.claimWith(store.MaxBatch, held)
		all = append(all, ids(c.Messages)...)
		if !c.More {
			return all
		}
		if len(c.Messages)+len(c.Died)+len(c.Dropped) == 0 {
			e.Fatalf("a claim did nothing, but More is set")
		}
	}
}

func ids(claimed []store.Claimed) []string {
	var all []string
	for _, c := range claimed {
		all = append(all, c.ID)
	}
	return all
}

func (e *env) trySettle(settlements ...store.Settlement) []store.SettleResult {
	e.Helper()
	results, err := e.Peer.Settle(e.Context(), e.queue, settlements)
	e.ok(err)
	e.equal("number of results", len(results), len(settlements))
	return results
}

// settle settles a message that is held and checks its new state.
func (e *env) settle(s store.Settlement, want store.State) {
	e.Helper()
	r := e.trySettle(s)[0]
	e.ok(r.Err)
	e.equal("state after "+s.Action.String(), r.State, want)
}

// nack returns a Settlement that nacks a message.
func nack(c store.Claimed, delay time.Duration) store.Settlement {
	return store.Settlement{Receipt: c.Receipt, Action: store.Nack, Delay: delay, Reason: "no"}
}

func (e *env) ack(claimed ...store.Claimed) {
	e.Helper()
	for _, c := range claimed {
		e.settle(ackOf(c), store.StateNone)
	}
}

// ackOf returns a Settlement that acks a message.
func ackOf(c store.Claimed) store.Settlement {
	return store.Settlement{
		Receipt: c.Receipt, Action: store.Ack, DedupWindow: c.DedupWindow, Grouped: c.Group != "",
	}
}

// refused checks that every action under a receipt is refused and changes nothing.
func (e *env) refused(r store.Receipt) {
	e.Helper()
	before, was := e.stats(), e.get(r.ID)
	for _, action := range []store.Action{store.Ack, store.Nack, store.Snooze, store.Release, store.Bury,
		store.GiveBack} {
		result := e.trySettle(store.Settlement{Receipt: r, Action: action, Delay: time.Second, Reason: "late"})[0]
		e.is(result.Err, store.ErrLeaseLost)
		e.equal("state of a refused "+action.String(), result.State, store.StateNone)
	}
	if e.Exact {
		after := e.stats()
		after.Flow, before.Flow = store.FlowState{}, store.FlowState{} // the holder has learned of a cancellation
		e.equal("stats after refused settles", after, before)
		e.equal("message after refused settles", describe(e.get(r.ID)), describe(was))
	}
}

func (e *env) tryExtend(lease string, d time.Duration) store.ExtendResult {
	e.Helper()
	results, err := e.Store.Extend(e.Context(), e.queue, []store.Extension{{Lease: lease, For: d}})
	e.ok(err)
	e.equal("number of results", len(results), 1)
	return results[0]
}

func (e *env) get(id string) *store.Info {
	e.Helper()
	infos, err := e.Peer.Get(e.Context(), e.queue, []string{id})
	e.ok(err)
	e.equal("number of results", len(infos), 1)
	return infos[0]
}

// live returns a message that must be live and in a state.
func (e *env) live(id string, want store.State) *store.Info {
	e.Helper()
	info := e.get(id)
	if info == nil {
		e.Fatalf("message %q is gone, want it %s", id, want)
	}
	e.equal("state of "+id, info.State, want)
	return info
}

func (e *env) gone(id string) {
	e.Helper()
	if info := e.get(id); info != nil {
		e.Fatalf("message %q is %s, want it gone", id, info.State)
	}
}

func (e *env) tryCancel(id string) store.CancelResult {
	e.Helper()
	return e.cancelAll(store.CancelRequest{IDs: []string{id}})[0]
}

func (e *env) cancelAll(req store.CancelRequest) []store.CancelResult {
	e.Helper()
	results, err := e.Peer.Cancel(e.Context(), e.queue, req)
	e.ok(err)
	e.equal("number of results", len(results), len(req.IDs))
	return results
}

// cancel cancels a live message and checks the state it was in.
func (e *env) cancel(id string, was store.State) {
	e.Helper()
	r := e.tryCancel(id)
	e.ok(r.Err)
	e.equal("state that was cancelled", r.State, was)
}

func (e *env) tryReschedule(id string, due store.Due) error {
	e.Helper()
	errs, err := e.Peer.Reschedule(e.Context(), e.queue, []string{id}, due)
	e.ok(err)
	e.equal("number of results", len(errs), 1)
	return errs[0]
}

// sendDead sends a message and buries it, with its id as the reason.
func (e *env) sendDead(id string, changes ...func(*store.Outgoing)) {
	e.Helper()
	e.send(message(id, changes...))
	c := e.claimOne(id, held)
	e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Bury, Reason: id}, store.StateDead)
}

// histogram counts the messages due between each of the bounds and the next.
func (e *env) histogram(bounds []time.Time) []int64 {
	e.Helper()
	counts, err := e.Store.Histogram(e.Context(), e.queue, bounds)
	e.ok(err)
	return counts
}

// list returns all pages of a listing.
func (e *env) list(req store.ListRequest) []store.Info {
	e.Helper()
	var all []store.Info
	for seen := map[string]bool{}; ; {
		page, err := e.Store.List(e.Context(), e.queue, req)
		e.ok(err)
		if len(page.Messages) > req.Limit {
			e.Fatalf("a page with limit %d has %d messages", req.Limit, len(page.Messages))
		}
		all = append(all, page.Messages...)
		if page.Next == "" {
			return all
		}
		if seen[page.Next] {
			e.Fatalf("cursor %q was returned twice", page.Next)
		}
		seen[page.Next], req.Cursor = true, page.Next
	}
}

func infoIDs(infos []store.Info) []string {
	var all []string
	for _, info := range infos {
		all = append(all, info.ID)
	}
	return all
}

// timeoutContext returns a context that ends after hangTimeout.
func (e *env) timeoutContext() context.Context { return e.within(hangTimeout) }

// within returns a context that ends after d.
func (e *env) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(e.Context(), d, fmt.Errorf("nothing happened within %v", d))
	e.Cleanup(cancel)
	return ctx
}
