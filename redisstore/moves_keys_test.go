package redisstore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// expect has a queue expect keys.
func (q *limitedQueue) expect(keys ...string) {
	q.Helper()
	_, err := q.s.Expect(q.Context(), q.queue, store.Expected{Keys: keys})
	q.ok(err)
}

// depart moves messages and keys to another queue, and returns what has departed.
func (q *limitedQueue) depart(to *limitedQueue, ids []string, keys ...string) store.Departed {
	q.Helper()
	d, err := q.s.Depart(q.Context(), q.queue, store.Departure{To: to.queue, IDs: ids, Keys: keys})
	if q.ok(err); d.Parcel != nil {
		q.ok(q.s.Arrive(q.Context(), d.Parcel))
		q.ok(q.s.Empty(q.Context(), q.queue, d.Parcel.Number))
	}
	return d
}

// busy checks which keys stay.
func (q *limitedQueue) busy(d store.Departed, want ...string) {
	q.Helper()
	if !slices.Equal(d.Busy, want) {
		q.Errorf("busy are %v, want %v", d.Busy, want)
	}
}

// known returns the keys that a scan finds, in order.
func (q *limitedQueue) known() (names []string) {
	q.Helper()
	for cursor := ""; ; {
		part, err := q.s.Scan(q.Context(), q.queue, cursor)
		q.ok(err)
		names = append(names, part.Keys...)
		if cursor = part.Next; cursor == "" {
			slices.Sort(names)
			return slices.Compact(names)
		}
	}
}

// An attempt of an expectation that arrives after its repetition, and after the key, changes nothing.
func TestLateExpectationChangesNothing(t *testing.T) {
	q := newLimitedQueue(t, "late expectation", store.Flow{Fair: true})
	other := newLimitedQueue(t, "late expectation from", store.Flow{Fair: true})
	c, session := q.s.expectCall(q.queue, store.Expected{Keys: []string{"k"}}, "")
	defer q.s.sessions.release(session)
	none, session := q.s.expectCall(q.queue, store.Expected{From: other.queue, None: true}, "0")
	defer q.s.sessions.release(session)
	refused, session := q.s.expectCall(q.queue, store.Expected{From: other.queue, Keys: []string{"k"}}, "")
	defer q.s.sessions.release(session)
	do := func(c *call, want string) {
		t.Helper()
		if reply, err := q.s.runSafely(t.Context(), q.queue, c); err != nil || fmt.Sprint(reply) != want {
			t.Fatalf("%v, %v, want %s", reply, err, want)
		}
	}
	do(c, "[0 0]")
	q.sendKeyed("k", store.Due{}, "a")
	q.claim(9)
	do(none, "[0 0]")
	q.expect("k")
	do(none, "[0 0]")
	q.claim(9)
	other.depart(q, nil, "k")
	do(c, "[0 0]")
	do(refused, fmt.Sprint(replyConflict))
	do(refused, fmt.Sprint(replyConflict))
	q.claim(9, "a")
	q.sound()
}

// The end of many expectations takes several calls. One that goes on with a cursor of another server begins again.
func TestExpectationsEndInSteps(t *testing.T) {
	q := newLimitedQueue(t, "many expected", store.Flow{Fair: true})
	three, all, ids := 3, []string{"own"}, []string{}
	for i := range 1500 {
		all, ids = append(all, fmt.Sprintf("k%04d", i)), append(ids, fmt.Sprint(i))
	}
	for part := range slices.Chunk(all, store.MaxDeparture) {
		q.expect(part...)
	}
	q.ok(q.s.SetKeyFlow(t.Context(), q.queue, "own", store.KeyOverride{Weight: &three}))
	for i, id := range ids[:300] {
		q.sendKeyed(all[i], store.Due{}, id)
	}
	for q.sortReady().Unsorted {
	}
	if f := q.flow(); f.Keys.Full != 300 {
		t.Errorf("the flow is %+v", f)
	}
	kept := store.Expected{None: true, Keys: []string{"k0007"}}
	c, session := q.s.expectCall(q.queue, kept, "0123:99999")
	q.s.sessions.release(session)
	if reply, err := q.s.run(t.Context(), q.queue, c); err != nil || reply.([]any)[1] == any("0") {
		t.Fatalf("the first step: %v, %v", reply, err)
	}
	left := q.entries("key_flows")
	if left < 500 || left > 1200 {
		t.Errorf("after a step %d keys are expected", left)
	}
	_, err := q.s.Expect(t.Context(), q.queue, store.Expected{None: true, Keys: []string{"k0007", "new"}})
	q.ok(err)
	if fields := q.rdb.HGetAll(t.Context(), q.key("key_flows")).Val(); fmt.Sprint(fields) !=
		fmt.Sprint(map[string]string{"own": "\t\t\t\t3", "k0007": "\t\t\t\t\tx"}) {
		t.Errorf("left are %q", fields)
	}
	if f := q.flow(); f.Keys.Full != 1 || f.Keys.Waiting != 300 {
		t.Errorf("the flow is %+v", f)
	}
	q.sound()
}

// Expected keys have no limits of their own because of that, and a change of these does not end it.
func TestExpectedKeysAreNotListed(t *testing.T) {
	q := newLimitedQueue(t, "expected and listed", store.Flow{Concurrency: 9, Key: store.KeyFlow{Concurrency: 2}})
	three := 3
	set := func(o store.KeyOverride) { q.ok(q.s.SetKeyFlow(t.Context(), q.queue, "k", o)) }
	own := func(want string) {
		t.Helper()
		page, err := q.s.Keys(t.Context(), q.queue, store.KeysRequest{Overridden: true, Limit: 9})
		q.ok(err)
		one, err := q.s.Keys(t.Context(), q.queue, store.KeysRequest{Key: "k", Limit: 1})
		q.ok(err)
		if got := formatOverride(*orZero(one[0].Override)); got != want || (len(page) > 0) != (want != "") ||
			len(page) > 0 && formatOverride(*page[0].Override) != want || !slices.Equal(q.known(), names(page)) {
			t.Errorf("the limits are %q, and %+v are listed, want %q", got, page, want)
		}
		if q.claim(9); len(q.rdb.ZRange(t.Context(), q.key("rests"), 0, -1).Val()) != 1 {
			t.Error("the key does not rest")
		}
		q.sound()
	}
	q.sendKeyed("k", store.Due{}, "a", "b")
	q.expect("k")
	own("")
	set(store.KeyOverride{Concurrency: &three})
	own("3\t\t\t\t")
	q.expect("k")
	own("3\t\t\t\t")
	q.ok(q.s.Rename(t.Context(), q.queue, q.queue+"{g}", "sign", ""))
	q.queue += "{g}"
	own("3\t\t\t\t")
	set(store.KeyOverride{})
	own("")
	q.set(store.Flow{Concurrency: 9, Key: store.KeyFlow{Concurrency: 7}})
	own("")
	_, err := q.s.Expect(t.Context(), q.queue, store.Expected{None: true})
	q.ok(err)
	q.claim(9, "a", "b")
	if n := q.entries("key_flows"); n != 0 {
		t.Errorf("%d keys have limits", n)
	}
	q.sound()
}

func orZero(o *store.KeyOverride) *store.KeyOverride {
	if o == nil {
		return &store.KeyOverride{}
	}
	return o
}

func names(page []store.KeyState) (all []string) {
	for _, k := range page {
		all = append(all, k.Key)
	}
	return all
}

// A forward obeys no limits of keys, but leaves messages whose keys are expected, also one that holds its key.
func TestForwardsLeaveExpectedKeys(t *testing.T) {
	for i, flow := range []store.Flow{{Fair: true}, {Key: store.KeyFlow{Concurrency: 1}}, continues,
		{Urgency: true, Key: continues.Key}} {
		q := newLimitedQueue(t, fmt.Sprint("expected and forwarded ", i), flow)
		to := store.Target{Kind: store.TargetList, Name: q.queue + " list"}
		q.ok(q.rdb.Del(t.Context(), to.Name).Err())
		q.sendKeyed("k", store.Due{}, "a")
		held := q.claim(1, "a")
		q.sendKeyed("k", store.Due{}, "b")
		q.ok(q.settle(held[0], store.Release))
		q.sortReady()
		q.expect("k")
		q.sendKeyed("l", store.Due{}, "c")
		if f := forward(t, q.s, q.queue, to, 9, 1); !slices.Equal(f.IDs, []string{"c"}) {
			t.Errorf("forwarded %v", f.IDs)
		}
		_, err := q.s.Expect(t.Context(), q.queue, store.Expected{None: true})
		q.ok(err)
		for moved := 0; moved < 2; { // a message that holds its key moves alone
			f, err := q.s.Forward(t.Context(), q.queue, store.ForwardRequest{To: to, Max: 9})
			if q.ok(err); f.Count == 0 {
				t.Fatalf("%d messages have moved", moved)
			}
			moved += f.Count
		}
		q.sound()
	}
}

// Entries of messages that have gone keep no key, and a message that is leased keeps its own and not that of its
// successor.
func TestKeysDepartWithoutStaleEntries(t *testing.T) {
	q := newLimitedQueue(t, "stale departs", store.Flow{Fair: true})
	to := newLimitedQueue(t, "stale to", store.Flow{Fair: true})
	q.sendMany(20, "k")
	q.sortReady()
	_, err := q.s.Purge(t.Context(), q.queue, store.Selection{State: store.StateReady})
	q.ok(err)
	if n := q.entries("lanes"); n != 20 {
		t.Fatalf("%d entries are left", n)
	}
	q.busy(q.depart(to, nil, "k"))
	if q.entries("lanes")+q.entries("turns")+q.entries("key_states") > 0 {
		t.Error("the key is left")
	}
	q.sendKeyed("first", store.Due{}, "x")
	q.claim(1, "x")
	follow := store.Outgoing{Message: store.Message{ID: "x", Key: "second"}}
	follow.OnDuplicate.Mode = store.DuplicateFollow
	_, err = q.s.Send(t.Context(), q.queue, []store.Outgoing{follow})
	q.ok(err)
	q.busy(q.depart(to, []string{"x"}, "second"), "first")
	q.sound()
	to.sound()
}

// A parcel between queues of different flows has no holds, places and keys that the other one does not know.
func TestMessagesMoveBetweenFlows(t *testing.T) {
	urgent := store.Flow{Urgency: true, Key: store.KeyFlow{Order: store.OrderHalt}}
	flows := []store.Flow{{}, {Concurrency: 9}, {Fair: true}, continues, urgent,
		{Key: store.KeyFlow{Rate: store.Rate{N: 1, Per: time.Second, Burst: 5}}}}
	for i, from := range flows {
		for k, to := range flows {
			a := newLimitedQueue(t, fmt.Sprint("moves from ", i, k), from)
			b := newLimitedQueue(t, fmt.Sprint("moves to ", i, k), to)
			a.sendKeyed("k", store.Due{}, "a")
			held := a.claim(1, "a")
			a.sendKeyed("k", store.Due{}, "b", "c")
			a.sendKeyed("l", store.Due{}, "d")
			a.sendKeyed("m", store.Due{Delay: 2 * time.Hour}, "e")
			a.ok(a.settle(held[0], store.Bury))
			if from.Normal().Fair {
				a.sortReady()
			}
			a.busy(a.depart(b, []string{"a", "b", "c", "d", "e"}, "k", "l", "m"))
			st, err := b.s.Stats(t.Context(), b.queue)
			if b.ok(err); st.Ready != 3 || st.Dead != 1 || st.Scheduled != 1 {
				t.Errorf("%+v to %+v: %+v", from, to, st)
			}
			halts := from.Key.Order == store.OrderHalt && to.Key.Order == store.OrderHalt
			if f := b.flow(); (f.Keys.Halted == 1) != halts {
				t.Errorf("%+v to %+v: %+v", from, to, f)
			}
			got := 0
			for range 4 {
				c := claim(t, b.s, b.queue, 9, time.Minute)
				got += len(c.Messages)
				b.ack(c.Messages)
			}
			if want := map[bool]int{true: 1, false: 3}[halts]; got != want {
				t.Errorf("%+v to %+v: claimed %d messages, want %d", from, to, got, want)
			}
			a.sound()
			b.sound()
			a.ok(a.s.Delete(t.Context(), a.queue))
			b.ok(b.s.Delete(t.Context(), b.queue))
		}
	}
}

// The state of the rate of a key is converted to the rate where it arrives.
func TestRatesOfKeysAreConverted(t *testing.T) {
	rate := func(n int, per time.Duration, burst int) store.Flow {
		return store.Flow{Key: store.KeyFlow{Rate: store.Rate{N: n, Per: per, Burst: burst}}}
	}
	a := newLimitedQueue(t, "rate from", rate(3, time.Second, 3))
	b := newLimitedQueue(t, "rate to", rate(1, time.Second, 2))
	a.sendMany(2, "k")
	a.ack(claim(t, a.s, a.queue, 9, time.Minute).Messages)
	began := a.flow().Now
	a.depart(b, nil, "k")
	b.ok(b.s.SetKeyFlow(t.Context(), b.queue, "k", store.KeyOverride{Rate: &store.Rate{N: 1, Per: time.Second}}))
	page, err := b.s.Keys(t.Context(), b.queue, store.KeysRequest{Key: "k", Limit: 1})
	if b.ok(err); page[0].Next.Sub(began) != 666667*time.Microsecond { // after two of three starts in a second
		t.Errorf("the next start is %v ahead", page[0].Next.Sub(began))
	}
	// A state that is too far ahead for the rate is brought nearer.
	a.set(rate(1, time.Hour, 1))
	a.sendMany(1, "l")
	a.ack(claim(t, a.s, a.queue, 9, time.Minute).Messages)
	a.depart(b, nil, "l")
	page, err = b.s.Keys(t.Context(), b.queue, store.KeysRequest{Key: "l", Limit: 1})
	if b.ok(err); page[0].Next.Sub(page[0].Now) != time.Second {
		t.Errorf("the next start is %v ahead", page[0].Next.Sub(page[0].Now))
	}
	b.advance(time.Hour)
	b.sortReady()
	b.empty()
	a.sound()
	b.sound()
}

// A full server ends expectations: the messages of keys that are expected may be the ones that fill it.
func TestExpectationsEndOnAFullServer(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s, ctx := newStore(t, rdb), t.Context()
	a := subQueue(t, s, "full", "g1", "a")
	if err := s.SetFlow(ctx, a, store.Flow{Fair: true}, nil); err != nil {
		t.Fatal(err)
	}
	m := store.Outgoing{Message: store.Message{ID: "x", Key: "k"}}
	if _, err := s.Send(ctx, a, []store.Outgoing{m}); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for _, e := range []store.Expected{{Keys: []string{"k"}}, {None: true}} {
		if _, err := s.Expect(ctx, a, e); err != nil {
			t.Error(err)
		}
	}
	if c := claim(t, s, a, 1, time.Minute); len(c.Messages) != 1 {
		t.Errorf("claimed %+v", c)
	}
	if err := rdb.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
}

// A sub-queue is created with the same fields as a flow that is set later.
func TestASubQueueIsCreatedWithTheFieldsOfItsFlow(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	for i, flow := range []store.Flow{{}, {Concurrency: 3}, fullFlow, fairFlow, orderedFlow, urgentFlow,
		{Rate: store.Rate{N: 7, Per: time.Second}, Key: store.KeyFlow{Weight: 3, Concurrency: 2}}} {
		s, ctx := newFrozenClock(t, rdb), t.Context()
		created, set := fmt.Sprint("created{g", i, "}"), fmt.Sprint("set{g", i, "}")
		advance(rdb)(t, created, 0)
		advance(rdb)(t, set, 0)
		fields := map[string]map[string]string{}
		for name, f := range map[string]store.Flow{created: flow, set: {}} {
			if err := s.Create(ctx, name, store.Settings{Flow: f}); err != nil {
				t.Fatal(err)
			}
			if name == set {
				if err := s.SetFlow(ctx, set, flow, nil); err != nil {
					t.Fatal(err)
				}
			}
			fields[name] = withoutStarts(ctx, rdb, s.keys.key(name, "meta"))
		}
		if fmt.Sprint(fields[created]) != fmt.Sprint(fields[set]) {
			t.Errorf("created with %v, and set to %v", fields[created], fields[set])
		}
	}
}

// withoutStarts returns the fields of a meta without times.
func withoutStarts(ctx context.Context, rdb *redis.Client, meta string) map[string]string {
	fields := rdb.HGetAll(ctx, meta).Val()
	for _, name := range []string{"flow_since", "flow_keyed"} {
		if fields[name] != "" {
			fields[name] = "since"
		}
	}
	delete(fields, "flow_next_us")
	delete(fields, "flow_rem")
	return fields
}
