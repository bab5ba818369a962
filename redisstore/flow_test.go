package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// limitedQueue is a queue with a flow on a clock that stands still.
type limitedQueue struct {
	*testing.T
	s     *Store
	rdb   redis.UniversalClient
	queue string
}

func newLimitedQueue(t *testing.T, queue string, f store.Flow) *limitedQueue {
	rdb := redistest.Shared(t).Client(t)
	q := &limitedQueue{t, newFrozenClock(t, rdb), rdb, queue}
	q.ok(q.s.Delete(t.Context(), queue))
	q.advance(0)
	q.set(f)
	return q
}

func (q *limitedQueue) ok(err error) {
	q.Helper()
	if err != nil {
		q.Fatal(err)
	}
}

func (q *limitedQueue) advance(d time.Duration) { advance(q.rdb)(q, q.queue, d) }

func (q *limitedQueue) set(f store.Flow) {
	q.Helper()
	q.ok(q.s.SetFlow(q.Context(), q.queue, f, nil))
}

func (q *limitedQueue) send(ids ...string) {
	q.Helper()
	for _, id := range ids {
		send(q, q.s, q.queue, id, store.Due{})
	}
}

// claim claims up to n messages for a minute and compares their ids.
func (q *limitedQueue) claim(n int, want ...string) []store.Receipt {
	q.Helper()
	c := claim(q, q.s, q.queue, n, time.Minute)
	var ids []string
	var held []store.Receipt
	for _, m := range c.Messages {
		ids = append(ids, m.ID)
		held = append(held, m.Receipt)
	}
	if !slices.Equal(ids, want) {
		q.Fatalf("claimed %v, want %v", ids, want)
	}
	return held
}

func (q *limitedQueue) settle(r store.Receipt, a store.Action) error {
	q.Helper()
	results, err := q.s.Settle(q.Context(), q.queue, []store.Settlement{{Receipt: r, Action: a, Reason: "boom",
		Delay: time.Hour}})
	q.ok(err)
	return results[0].Err
}

// flow returns the limits and their state.
func (q *limitedQueue) flow() store.FlowState {
	q.Helper()
	stats, err := q.s.Stats(q.Context(), q.queue)
	q.ok(err)
	return stats.Flow
}

// leased checks how many messages count, in the limits and in the leases.
func (q *limitedQueue) leased(want int) {
	q.Helper()
	f := q.flow()
	c := q.s.newCall("recount", q.queue, 1)
	c.add("0")
	reply, err := q.s.run(q.Context(), q.queue, c)
	q.ok(err)
	if held := reply.([]any)[1].(int64); f.Leased != want || held != int64(want) {
		q.Errorf("%d messages count and %d are in leases that count, want %d", f.Leased, held, want)
	}
}

// A message counts from its claim until it leaves its lease, whatever ends that, and once.
func TestSlotsAreFreed(t *testing.T) {
	q := newLimitedQueue(t, "slots", store.Flow{Concurrency: 2})
	q.send("a", "b", "c", "d", "e", "f", "g", "h")
	for i, action := range []store.Action{store.Ack, store.Nack, store.Snooze, store.Bury} {
		id := string(rune('a' + 2*i))
		held := q.claim(10, id, string(rune('b'+2*i)))
		q.leased(2)
		q.claim(10)
		q.ok(q.settle(held[0], action))
		q.leased(1)
		if err := q.settle(held[0], action); err == nil && action != store.Ack {
			t.Errorf("a second %v was not refused", action)
		}
		q.leased(1)
		q.ok(q.settle(held[1], action))
		q.leased(0)
	}
	q.send("i")
	held := q.claim(1, "i")
	q.ok(q.settle(held[0], store.Release))
	q.leased(0)
	q.claim(1, "i")
	q.leased(1)
	q.advance(2 * time.Minute)
	q.claim(1, "i") // the lease has ended
	q.leased(1)
}

func TestCancelledMessagesCountUntilTheHolderKnows(t *testing.T) {
	q := newLimitedQueue(t, "cancelled slots", store.Flow{Concurrency: 3})
	q.send("a", "b", "c", "d")
	held := q.claim(10, "a", "b", "c")
	_, err := q.s.Cancel(t.Context(), q.queue, store.CancelRequest{IDs: []string{"a", "b", "c"}})
	q.ok(err)
	q.leased(3)
	q.claim(10)
	if err := q.settle(held[0], store.Ack); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("ack of a cancelled message: %v", err)
	}
	q.leased(2)
	if err := q.settle(held[1], store.Nack); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("nack of a cancelled message: %v", err)
	}
	q.leased(1)
	extended, err := q.s.Extend(t.Context(), q.queue, []store.Extension{{Lease: held[0].Lease, For: time.Minute}})
	q.ok(err)
	if len(extended[0].Lost) != 1 || extended[0].Lost[0].ID != "c" {
		t.Errorf("Extend = %+v", extended)
	}
	q.leased(0)
	q.claim(10, "d")
}

// Messages that are purged while they are leased count as cancelled ones do.
func TestPurgedMessagesCountUntilTheHolderKnows(t *testing.T) {
	q := newLimitedQueue(t, "purged slots", store.Flow{Concurrency: 3})
	q.send("a", "b", "c")
	held := q.claim(10, "a", "b", "c")
	_, err := q.s.Cancel(t.Context(), q.queue, store.CancelRequest{IDs: []string{"a"}})
	q.ok(err)
	q.send("a", "d")
	_, err = q.s.Purge(t.Context(), q.queue, store.Selection{})
	q.ok(err)
	q.leased(3)
	q.send("a", "b")
	q.claim(10)
	if err := q.settle(held[1], store.Ack); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("ack of a purged message: %v", err)
	}
	q.leased(2)
	q.claim(10, "a")
	extended, err := q.s.Extend(t.Context(), q.queue, []store.Extension{{Lease: held[0].Lease, For: time.Minute}})
	q.ok(err)
	if len(extended[0].Lost) != 2 || !errors.Is(extended[0].Err, store.ErrLeaseLost) {
		t.Errorf("Extend = %+v", extended)
	}
	q.leased(1)
	q.claim(10, "b")
	q.advance(2 * time.Minute)
	q.claim(10, "a", "b")
	q.leased(2)
	q.sound()
}

// sound checks the queue.
func (q *limitedQueue) sound() {
	q.Helper()
	x := &checkRun{s: q.s, report: func(f store.CheckResult) {
		if f.Severity != store.SeverityOK {
			q.Errorf("issue: %s", f.Text)
		}
	}}
	q.ok(x.queue(q.Context(), q.queue))
}

// Leases from before the flow do not count, also if they are from an earlier flow.
func TestLeasesFromBeforeTheFlowDoNotCount(t *testing.T) {
	q := newLimitedQueue(t, "earlier leases", store.Flow{Concurrency: 1})
	q.send("a", "b", "c", "d")
	first := q.claim(1, "a")
	q.set(store.Flow{})
	second := q.claim(1, "b")
	q.advance(time.Millisecond)
	q.set(store.Flow{Concurrency: 1})
	q.leased(0)
	third := q.claim(2, "c")
	for _, held := range [][]store.Receipt{first, second} {
		q.leased(1)
		q.ok(q.settle(held[0], store.Ack))
	}
	q.leased(1)
	q.claim(1)
	q.ok(q.settle(third[0], store.Ack))
	q.claim(1, "d")
	q.leased(1)
	q.set(store.Flow{Concurrency: 5}) // a changed limit keeps the count
	q.leased(1)
	q.sound()
}

// A repeated claim is charged once, and so is one whose first attempt arrives late.
func TestRepeatedClaimIsChargedOnce(t *testing.T) {
	q := newLimitedQueue(t, "charged once",
		store.Flow{Concurrency: 5, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 3}})
	q.send("a", "b", "c", "d")
	ctx := store.WithRequest(t.Context(), store.Request{Session: "s:1", Number: 7})
	next := func() time.Time {
		return q.flow().Next
	}
	var states []time.Time
	for range 3 {
		c, err := q.s.Claim(ctx, q.queue, store.ClaimRequest{Max: 2, Lease: time.Minute})
		if err != nil || len(c.Messages) != 2 || !c.Limited {
			t.Fatalf("Claim = %+v, %v", c, err)
		}
		q.leased(2)
		states = append(states, next())
	}
	if !states[1].Equal(states[0]) || !states[2].Equal(states[0]) {
		t.Errorf("the next start was %v", states)
	}
	q.claim(2, "c")
	q.claim(2)
}

// A claim takes no more than handlers are free for.
func TestLimitedClaimLeavesWhatIsAhead(t *testing.T) {
	q := newLimitedQueue(t, "ahead", store.Flow{Concurrency: 9})
	q.send("a", "b", "c")
	for _, want := range []int{2, 0, 1} {
		c, err := q.s.Claim(t.Context(), q.queue, store.ClaimRequest{Max: 4, Ahead: 4 - want, Lease: time.Minute})
		if err != nil || len(c.Messages) != want {
			t.Errorf("Claim = %+v, %v; want %d messages", c, err, want)
		}
	}
}

// The script and internal/gcra decide the same over random histories, also when the clock is set back.
func TestRatesAreExact(t *testing.T) {
	q := newLimitedQueue(t, "exact rate", store.Flow{Concurrency: 1})
	for i := range 9 {
		send(t, q.s, q.queue, fmt.Sprint(i), store.Due{At: time.UnixMilli(1)})
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		r := store.Rate{N: 1 + rnd.IntN(9), Burst: 1 + rnd.IntN(7)}
		r.Per = time.Duration(r.N+rnd.IntN(5000)) * time.Microsecond
		if rnd.IntN(4) == 0 {
			r.N, r.Per = 1+rnd.IntN(store.MaxRate), store.MaxPeriod-time.Duration(rnd.IntN(1000))*time.Microsecond
			r.Burst = 1 + rnd.IntN(r.N)
		}
		q.set(store.Flow{})
		q.set(store.Flow{Rate: r})
		var state gcra.State
		for range 15 {
			interval := r.Per / time.Duration(r.N)
			steps := []time.Duration{0, time.Microsecond, interval, interval + 1000, 3 * interval, -5 * interval}
			q.advance(steps[rnd.IntN(len(steps))])
			f := q.flow()
			if want := state.Next(r, f.Now.UnixMicro()); f.Next.UnixMicro() != want {
				t.Fatalf("rate %v: next start at %d, want %d; now %d", r, f.Next.UnixMicro(), want, f.Now.UnixMicro())
			}
			n := 1 + rnd.IntN(9)
			c := claim(t, q.s, q.queue, n, time.Minute)
			want := state.May(r, c.Now.UnixMicro(), n)
			state.Start(r, c.Now.UnixMicro(), want)
			if len(c.Messages) != want {
				t.Fatalf("rate %v: %d of %d messages started, want %d", r, len(c.Messages), n, want)
			}
			for _, m := range c.Messages {
				q.ok(q.settle(m.Receipt, store.Release))
			}
		}
	}
}

// Each client learns of a flow that another one sets or removes.
func TestClientsFollowTheFormat(t *testing.T) {
	q := newLimitedQueue(t, "formats", store.Flow{})
	other := newFrozenClock(t, q.rdb)
	for range 3 {
		for _, concurrency := range []int{1, 0} {
			q.ok(other.SetFlow(t.Context(), q.queue, store.Flow{Concurrency: concurrency}, nil))
			for _, s := range []*Store{q.s, other} {
				send(t, s, q.queue, "m", store.Due{})
				c := claim(t, s, q.queue, 5, time.Minute)
				if len(c.Messages) != 1 || c.Limited != (concurrency > 0) {
					t.Fatalf("claimed %+v with concurrency %d", c, concurrency)
				}
				q.leased(concurrency)
				st, err := s.Settle(t.Context(), q.queue, []store.Settlement{{Receipt: c.Messages[0].Receipt,
					Action: store.Ack}})
				if err != nil || st[0].Err != nil {
					t.Fatal(st, err)
				}
			}
			want := map[int]string{0: "11", 1: "15"}[concurrency]
			if format := metaFormat(t, q.rdb, q.queue); format != want {
				t.Errorf("format %s, want %s", format, want)
			}
		}
	}
	q.ok(other.SetFlow(t.Context(), q.queue, store.Flow{Concurrency: 1}, nil))
	q.ok(other.Delete(t.Context(), q.queue)) // it is created again as a plain queue
	send(t, q.s, q.queue, "m", store.Due{})
	if c := claim(t, q.s, q.queue, 5, time.Minute); len(c.Messages) != 1 || c.Limited {
		t.Errorf("claimed %+v", c)
	}
}

// A program that knows no flows refuses the queue.
func TestOlderProgramRefusesAFlow(t *testing.T) {
	q := newLimitedQueue(t, "older program", store.Flow{Concurrency: 1})
	older := scripts{}
	for name, s := range frozenClockScripts {
		older[name] = &script{name: name, body: s.body, sha: s.sha, id: s.id}
	}
	s := newWith(t, older, q.rdb)
	_, err := s.Claim(t.Context(), q.queue, store.ClaimRequest{Max: 1, Lease: time.Minute})
	if !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Claim = %v", err)
	}
	_, err = s.Send(t.Context(), q.queue, []store.Outgoing{{Message: store.Message{ID: "a"}}})
	if !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Send = %v", err)
	}
}

// A call to a queue of an unknown format ends.
func TestUnknownFormatIsRefusedInBothRenderings(t *testing.T) {
	q := newLimitedQueue(t, "unknown format", store.Flow{Concurrency: 1})
	q.send("a")
	setFormat(t, q.rdb, q.queue, flowFormat+1)
	for range 2 {
		_, err := q.s.Claim(context.Background(), q.queue, store.ClaimRequest{Max: 1, Lease: time.Minute})
		if !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("Claim = %v", err)
		}
	}
}

// A durable send learns of the flow, too, and a repeated one of a message that exists keeps the format.
func TestDurableSendToLimitedQueue(t *testing.T) {
	primary := redistest.Start(t)
	redistest.StartReplica(t, primary)
	rdb := primary.Client(t)
	if err := newStore(t, rdb).SetFlow(t.Context(), "q", store.Flow{Concurrency: 1}, nil); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, rdb)
	for i := range 2 {
		m := store.Outgoing{Message: store.Message{ID: "a"}, Durable: oneReplica}
		r, err := s.Send(t.Context(), "q", []store.Outgoing{m})
		if err != nil || r[0].Err != nil || r[0].Duplicate != (i > 0) {
			t.Errorf("Send = %+v, %v", r, err)
		}
		s = newStore(t, rdb)
	}
	if format := metaFormat(t, rdb, "q"); format != "15" {
		t.Errorf("format %s", format)
	}
}
