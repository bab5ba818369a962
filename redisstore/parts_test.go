package redisstore

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// A script that stops early replies for the first ids or leases, and the store calls again for the others. If the first
// reply is lost, the repetition must not reply for the ones that the first attempt did not reach.
func TestCallsThatStopEarlyAreContinued(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	constants := maps.Clone(luaConstants)
	constants["MAX_LOOKED"], constants["MAX_READ"], constants["FORWARD_WORK"] = "1", "1", "4"
	few := loadScripts("", constants)
	for _, lost := range []bool{false, true} {
		queue := fmt.Sprintf("parts-%v", lost)
		other := newStore(t, rdb)
		caller := func() *Store {
			if !lost {
				return newWith(t, few, rdb)
			}
			s := newWith(t, few, &loseFirstReply{UniversalClient: rdb, do: func() {}})
			s.preflightDone.Store(true)
			s.registered.Store(queue, true)
			return s
		}

		var extensions []store.Extension
		for i := range 3 {
			for _, id := range []string{"a", "b"} {
				send(t, other, queue, fmt.Sprint(id, i), store.Due{})
			}
			c := claim(t, other, queue, 2, time.Minute)
			extensions = append(extensions, store.Extension{Lease: c.Messages[0].Receipt.Lease, For: time.Hour})
			ids := []string{fmt.Sprint("a", i)}
			if _, err := other.Cancel(t.Context(), queue, store.CancelRequest{IDs: ids}); err != nil {
				t.Fatal(err)
			}
		}
		results, err := caller().Extend(t.Context(), queue, extensions)
		if err != nil || len(results) != 3 {
			t.Fatalf("%d results, %v", len(results), err)
		}
		for i, r := range results {
			if r.Err != nil || time.Until(r.Deadline) < 30*time.Minute || len(r.Lost) != 1 ||
				r.Lost[0].ID != fmt.Sprint("a", i) {
				t.Errorf("lost=%v: result of lease %d is %+v", lost, i, r)
			}
		}

		var msgs []store.Outgoing
		for i := range 4 {
			m := store.Outgoing{Message: store.Message{ID: fmt.Sprint("far", i), DedupWindow: time.Hour}}
			m.Due.Delay = 48 * time.Hour
			msgs = append(msgs, m)
		}
		if _, err := other.Send(t.Context(), queue, msgs); err != nil {
			t.Fatal(err)
		}
		errs, err := caller().Reschedule(t.Context(), queue, []string{"far0", "far1", "none"},
			store.Due{Delay: time.Minute})
		if err != nil || errs[0] != nil || errs[1] != nil || errs[2] == nil {
			t.Errorf("lost=%v: Reschedule = %v, %v", lost, errs, err)
		}
		req := store.CancelRequest{IDs: []string{"far0", "far1", "far2", "none", "far3"}, KeepIDs: true}
		cancelled, err := caller().Cancel(t.Context(), queue, req)
		if want := "[{scheduled <nil>} {scheduled <nil>} {scheduled <nil>} { not found} {scheduled <nil>}]"; err !=
			nil ||
			fmt.Sprint(cancelled) != want {
			t.Errorf("lost=%v: Cancel = %v, %v; want %v", lost, cancelled, err, want)
		}
		if n := rdb.ZCard(t.Context(), other.keys.key(queue, "dedup")).Val(); n != 4 {
			t.Errorf("lost=%v: %d ids are kept, want 4", lost, n)
		}

		// A forward leaves the messages that it has no time for, in order, and says that there are more.
		for i := range 3 {
			send(t, other, queue, fmt.Sprint("ready", i), store.Due{})
		}
		expired := store.Outgoing{Message: store.Message{ID: "ready3", ExpireAt: time.UnixMilli(1)}}
		if _, err := other.Send(t.Context(), queue, []store.Outgoing{expired}); err != nil {
			t.Fatal(err)
		}
		for i, more := range []bool{true, false} {
			f, err := newWith(t, few, rdb).Forward(t.Context(), queue, store.ForwardRequest{Max: 10, IDs: true,
				To: store.Target{Kind: store.TargetList, Name: queue + "-to"}})
			if err != nil || f.More != more || f.IDs[0] != fmt.Sprint("ready", 2*i) || len(f.Died) != i {
				t.Errorf("forward %d moved %q, more %v; %q died; %v", i, f.IDs, f.More, f.Died, err)
			}
		}
	}
}

// An extend that only asks, and is repeated by another server, reports the same as the calls after its first one,
// although leases have become shorter since.
func TestRepeatedPartialExtendReportsTheSame(t *testing.T) {
	rdb, queue := redistest.Shared(t).Client(t), "asked-in-parts"
	constants := maps.Clone(luaConstants)
	constants["MAX_LOOKED"] = "1"
	few := loadScripts("", constants)
	s := newWith(t, few, rdb)
	var extensions []store.Extension
	var first store.Claim
	for _, id := range []string{"kept", "cancelled"} {
		send(t, s, queue, id, store.Due{})
		send(t, s, queue, id+" too", store.Due{})
		c := claim(t, s, queue, 2, time.Minute)
		if extensions = append(extensions, store.Extension{Lease: c.Messages[0].Receipt.Lease}); len(extensions) == 1 {
			first = c
		}
	}
	if _, err := s.Cancel(t.Context(), queue, store.CancelRequest{IDs: []string{"cancelled"}}); err != nil {
		t.Fatal(err)
	}
	ctx := store.WithRequest(t.Context(), store.Request{Session: "s", Number: 1})
	for attempt := range 2 {
		results, err := newWith(t, few, rdb).Extend(ctx, queue, extensions)
		if err != nil || len(results) != 2 || len(results[1].Lost) != 1 || results[1].Lost[0].ID != "cancelled" {
			t.Errorf("attempt %d: %+v, %v", attempt+1, results, err)
		}
		for _, m := range first.Messages {
			acks := []store.Settlement{{Receipt: m.Receipt, Action: store.Ack}}
			if _, err := s.Settle(t.Context(), queue, acks); err != nil {
				t.Fatal(err)
			}
		}
	}
}
