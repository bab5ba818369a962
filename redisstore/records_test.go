package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// A claim with messages of every kind returns the deliverable ones, in order, and ends the others.
func TestClaimOfMixedMessages(t *testing.T) {
	rdb := redistest.Start(t).Client(t) // the check reads all queues
	s := newFrozenClock(t, rdb)
	ctx, queue := t.Context(), "mixed"
	for i, id := range []string{"retried", "unread", "bad"} {
		send(t, s, queue, id, store.Due{At: time.UnixMilli(int64(i))}) // so that the first is claimed first
	}
	if err := rdb.HSet(ctx, DefaultPrefix+"{"+queue+"}:messages", "bad", "\xff").Err(); err != nil {
		t.Fatal(err)
	}
	held := claim(t, s, queue, 1, time.Minute)
	if _, err := s.Settle(ctx, queue, settleAll(held, store.Nack)); err != nil {
		t.Fatal(err)
	}
	retried := held.Messages[0].ID
	msgs := []store.Outgoing{
		{Message: store.Message{ID: "own", MaxAttempts: 2}},
		{Message: store.Message{ID: "late", ExpireAfter: time.Minute}},
		{Message: store.Message{ID: "usual"}},
		{Message: store.Message{ID: "early", ExpireAfter: 2 * time.Hour, MaxAttempts: 3}},
	}
	if _, err := s.Send(ctx, queue, msgs); err != nil {
		t.Fatal(err)
	}
	advance(rdb)(t, queue, time.Hour)
	c := claim(t, s, queue, 10, time.Minute)
	var got []string
	for _, m := range c.Messages {
		got = append(got, fmt.Sprintf("%s %d/%d", m.ID, m.Attempt, m.MaxAttempts))
	}
	slices.Sort(got)
	want := []string{"early 1/3", "own 1/2", "retried 1/0", "unread 1/0", "usual 1/0"}
	for i, w := range want {
		want[i] = strings.Replace(w, retried+" 1/0", retried+" 2/0", 1)
	}
	if !slices.Equal(got, want) {
		t.Errorf("claimed %q, want %q", got, want)
	}
	slices.Sort(c.Died)
	if !slices.Equal(c.Died, []string{"bad", "late"}) || !slices.Equal(c.Expired, []string{"late"}) {
		t.Errorf("died %q, expired %q", c.Died, c.Expired)
	}
	// The end of a lease kills messages after their last attempt, so the lease lists the maximum of each.
	for range 2 {
		advance(rdb)(t, queue, time.Hour)
		c = claim(t, s, queue, 10, time.Minute)
	}
	slices.Sort(c.Died)
	if !slices.Equal(c.Died, []string{"own"}) {
		t.Errorf("died after two expired leases: %q, want own", c.Died)
	}
	if wrong := findIssues(t, s, false); len(wrong) > 0 {
		t.Errorf("issues: %+v", wrong)
	}
}

// Acks remove the records of retried messages, as runs and one by one, and the placeholder with the last one.
func TestAckOfRetriedMessagesLeavesNoRecords(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, queue := t.Context(), "retried"
	records := DefaultPrefix + "{" + queue + "}:records"
	for _, id := range []string{"a", "b", "c", "d"} {
		send(t, s, queue, id, store.Due{})
	}
	nacks := settleAll(claim(t, s, queue, 4, time.Minute), store.Nack)
	if _, err := s.Settle(ctx, queue, nacks[:3]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Settle(ctx, queue,
		[]store.Settlement{{Receipt: nacks[3].Receipt, Action: store.Release}}); err != nil {
		t.Fatal(err)
	}
	if encoding := rdb.ObjectEncoding(ctx, records).Val(); encoding != "hashtable" {
		t.Errorf("a few records are kept as a %s, in which each lookup searches", encoding)
	}
	acks := settleAll(claim(t, s, queue, 4, time.Minute), store.Ack)
	for _, m := range []int{1, 2} {
		if acks[m].Receipt.Claim = nil; m == 2 {
			acks[m].Action = store.Nack
		}
	}
	for _, part := range [][]store.Settlement{acks[:1], acks[1:2], acks[3:]} {
		if results, err := s.Settle(ctx, queue, part); err != nil || results[0].Err != nil {
			t.Fatalf("ack = %+v, %v", results, err)
		}
	}
	if fields := rdb.HKeys(ctx, records).Val(); len(fields) != 2 || !slices.Contains(fields, acks[2].Receipt.ID) {
		t.Errorf("records %q are left, want that of %s", fields, acks[2].Receipt.ID)
	}
	if _, err := s.Settle(ctx, queue, acks[2:3]); err != nil {
		t.Fatal(err)
	}
	last := settleAll(claim(t, s, queue, 4, time.Minute), store.Ack)
	if results, err := s.Settle(ctx, queue, last); err != nil || len(results) != 1 || results[0].Err != nil {
		t.Fatalf("last ack = %+v, %v", results, err)
	}
	if fields := rdb.HGetAll(ctx, records).Val(); len(fields) > 0 {
		t.Errorf("left in records: %q", fields)
	}
}

// A queue that ran empty no longer slows claims down because of messages that it once held.
func TestEmptyQueueForgetsWhatItsMessagesRequired(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, queue := t.Context(), "forgets"
	meta := DefaultPrefix + "{" + queue + "}:meta"
	marks := func() int {
		values := rdb.HMGet(ctx, meta, "inspect_envelopes", "max_envelope_bytes").Val()
		return len(slices.DeleteFunc(values, func(v any) bool { return v == nil }))
	}
	msgs := []store.Outgoing{{Message: store.Message{ID: "own", MaxAttempts: 2, Payload: make([]byte, 100<<10)}}}
	if _, err := s.Send(ctx, queue, msgs); err != nil {
		t.Fatal(err)
	}
	held := claim(t, s, queue, 1, time.Minute)
	if claim(t, s, queue, 1, time.Minute); marks() != 2 {
		t.Error("a queue with a leased message forgot what it requires")
	}
	if _, err := s.Settle(ctx, queue, settleAll(held, store.Ack)); err != nil {
		t.Fatal(err)
	}
	if claim(t, s, queue, 1, time.Minute); marks() != 0 {
		t.Errorf("an empty queue kept %v", rdb.HGetAll(ctx, meta).Val())
	}
	msgs[0].ID = "again"
	if _, err := s.Send(ctx, queue, msgs); err != nil || marks() != 2 {
		t.Errorf("after the next such message there are %d marks, want 2 (%v)", marks(), err)
	}
}

// While no lease lists a cancelled message, acks look up no records. A count tells them, and it stays right however a
// lease drops the message.
func TestCancelledMessagesOfLeasesAreCounted(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newFrozenClock(t, rdb)
	ctx, queue := t.Context(), "counted"
	if err := s.Delete(ctx, queue); err != nil {
		t.Fatal(err)
	}
	wantRefs := func(want, after string) {
		t.Helper()
		value := rdb.HGet(ctx, DefaultPrefix+"{"+queue+"}:records", "").Val()
		if refs, _, _ := strings.Cut(value, "\t"); refs != want {
			t.Errorf("after %s the placeholder is %q, want a count of %s", after, value, want)
		}
	}
	send(t, s, queue, "dead", store.Due{})
	if _, err := s.Settle(ctx, queue, settleAll(claim(t, s, queue, 1, time.Minute), store.Bury)); err != nil {
		t.Fatal(err)
	}
	wantRefs("0", "a bury")
	for name, drop := range map[string]func(c store.Claim){
		"an ack": func(c store.Claim) {
			results, err := s.Settle(ctx, queue, settleAll(c, store.Ack))
			if err != nil || results[0].Err != store.ErrLeaseLost || results[1].Err != nil {
				t.Errorf("acks = %+v, %v", results, err)
			}
		},
		"a nack": func(c store.Claim) {
			results, err := s.Settle(ctx, queue, settleAll(c, store.Nack))
			if err != nil || results[0].Err != store.ErrLeaseLost || results[1].Err != nil {
				t.Errorf("nacks = %+v, %v", results, err)
			}
		},
		"an extend": func(c store.Claim) {
			extension := store.Extension{Lease: c.Messages[0].Receipt.Lease, For: time.Hour}
			if _, err := s.Extend(ctx, queue, []store.Extension{extension}); err != nil {
				t.Error(err)
			}
		},
		"the lease": func(c store.Claim) {
			advance(rdb)(t, queue, time.Hour)
			claim(t, s, queue, 1, time.Minute)
		},
	} {
		for _, resent := range []bool{false, true} {
			send(t, s, queue, "a", store.Due{})
			send(t, s, queue, "b", store.Due{})
			c := claim(t, s, queue, 2, time.Minute)
			if _, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: []string{c.Messages[0].ID}}); err != nil {
				t.Fatal(err)
			}
			wantRefs("1", "a cancel")
			if resent {
				send(t, s, queue, c.Messages[0].ID, store.Due{Delay: time.Hour})
			}
			drop(c)
			wantRefs("0", name)
			if _, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: []string{"a", "b"}}); err != nil {
				t.Fatal(err)
			}
			advance(rdb)(t, queue, 2*time.Hour)
			claim(t, s, queue, 1, time.Minute)
			wantRefs("0", name+" and the rest")
		}
	}
}
