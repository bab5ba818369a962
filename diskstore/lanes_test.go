package diskstore

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// sendKey sends messages of a key that are due at a time: the key, a dash and a number each.
func sendKey(t testing.TB, s *Store, key string, due time.Time, numbers ...int) {
	t.Helper()
	for batch := range slices.Chunk(numbers, store.MaxBatch) {
		var msgs []store.Outgoing
		for _, n := range batch {
			m := store.Message{ID: fmt.Sprintf("%s-%07d", key, n), Key: key, Payload: []byte("payload")}
			msgs = append(msgs, store.Outgoing{Message: m, Due: store.Due{At: due}})
		}
		if _, err := s.Send(t.Context(), "q", msgs); err != nil {
			t.Fatal(err)
		}
	}
}

func upTo(n int) (numbers []int) {
	for i := range n {
		numbers = append(numbers, i)
	}
	return numbers
}

func keyed(id string) string { return id[:strings.IndexByte(id, '-')] }

// claimedIDs claims up to n messages and returns their ids.
func claimedIDs(t testing.TB, s *Store, n int) (got []string) {
	t.Helper()
	for _, m := range claimUpTo(t, s, n) {
		got = append(got, m.ID)
	}
	return got
}

func wantIDs(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}

// keysOf returns the states of the keys that wait, without the time of the call.
func keysOf(t testing.TB, s *Store, req store.KeysRequest) []store.KeyState {
	t.Helper()
	req.Limit = store.MaxKeysPage
	keys, err := s.Keys(t.Context(), "q", req)
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		keys[i].Now = time.Time{}
	}
	return keys
}

func keyState(t testing.TB, s *Store, key string) store.KeyState {
	t.Helper()
	return keysOf(t, s, store.KeysRequest{Key: key})[0]
}

func override(t testing.TB, s *Store, key string, o store.KeyOverride) {
	t.Helper()
	if err := s.SetKeyFlow(t.Context(), "q", key, o); err != nil {
		t.Fatal(err)
	}
}

// TestEveryStartOfAKeyIsChargedAfterACrash crashes at every write. Wherever a message is leased or acked its key is
// charged for its start, and wherever it is leased it counts for its key. Wherever it is ready it does not.
func TestEveryStartOfAKeyIsChargedAfterACrash(t *testing.T) {
	const sent, interval = 15, int64(time.Hour / time.Microsecond)
	keys := []string{"a", "b", "c"}
	clock := newManualClock()
	c := newCrashPoints(vfs.NewCrashableMem())
	s := openOn(t, c, clock, withMemTable(64<<10))
	limit(t, s, store.Flow{Key: store.KeyFlow{Concurrency: 4, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 100}}})
	begin := clock.Now().UnixMicro()
	for _, key := range keys {
		sendKey(t, s, key, clock.Now(), upTo(sent)...)
	}
	c.take(func() {
		for i := range 14 {
			got := claimUpTo(t, s, 1+i%4)
			for _, m := range got[:(len(got)+1)/2] {
				ack := store.Settlement{Receipt: m.Receipt, Action: store.Ack}
				if r, err := s.Settle(t.Context(), "q", []store.Settlement{ack}); err != nil || r[0].Err != nil {
					t.Fatal(r, err)
				}
			}
		}
	})
	s.Close()
	different := map[string]bool{}
	for i, fs := range c.left {
		s := openOn(t, fs, clock)
		ready, leased := countKeys(listed(t, s, "q", store.StateReady)), countKeys(listed(t, s, "q", store.StateLeased))
		for _, key := range keys {
			got, charged := keyState(t, s, key), int64(0)
			execute(t, s, func(t *tx) {
				if at := t.s.queues["q"].lanes.states[key].Starts.Micros; at > 0 {
					charged = (at - begin) / interval
				}
			})
			if charged != int64(sent-ready[key]) || got.Leased != leased[key] || got.Leased > 4 {
				t.Errorf("crash before %s: %d starts of key %s are charged, and %d messages count; %d were started "+
					"and %d are leased", c.ops[i], charged, key, got.Leased, sent-ready[key], leased[key])
			}
		}
		different[fmt.Sprint(ready)] = true
		wantSound(t, s)
		s.Close()
	}
	if len(different) < 5 {
		t.Errorf("the crashes left %d different numbers of starts, want more", len(different))
	}
}

func countKeys(ids []string) map[string]int {
	n := map[string]int{}
	for _, id := range ids {
		n[keyed(id)]++
	}
	return n
}

func TestKeysKeepTheirStateOverAReopen(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	clock.Advance(567 * time.Microsecond)
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	limit(t, s, store.Flow{Concurrency: 50, Key: store.KeyFlow{
		Concurrency: 5, Rate: store.Rate{N: 7, Per: time.Minute, Burst: 3}, Weight: 2,
	}})
	one, none, weight := 1, 0, 9
	override(t, s, "b", store.KeyOverride{Concurrency: &one, Rate: &store.Rate{}})
	override(t, s, "c", store.KeyOverride{Rate: &store.Rate{N: 1, Per: time.Hour}, Weight: &weight})
	override(t, s, "d", store.KeyOverride{Concurrency: &none})
	override(t, s, "e", store.KeyOverride{Concurrency: &one})
	override(t, s, "e", store.KeyOverride{})
	sent := clock.Now().Truncate(time.Millisecond)
	for _, key := range []string{"a", "b", "c", "d"} {
		sendKey(t, s, key, sent, upTo(9)...)
	}
	held := wantClaimed(t, s, 3+1+1+3)
	cancel := store.CancelRequest{IDs: []string{"a-0000000"}}
	if _, err := s.Cancel(t.Context(), "q", cancel); err != nil { // it counts until its holder has learned of it
		t.Fatal(err)
	}
	before := keysOf(t, s, store.KeysRequest{})
	overridden := keysOf(t, s, store.KeysRequest{Overridden: true})
	for range 3 {
		s.Close()
		s = openOn(t, fs, clock)
		wantSound(t, s)
		if got := keysOf(t, s, store.KeysRequest{}); len(got) > 0 {
			t.Errorf("keys wait before a claim has sorted messages: %+v", got)
		}
		wantClaimed(t, s, 0)
		if got := keysOf(t, s, store.KeysRequest{}); !reflect.DeepEqual(got, before) {
			t.Errorf("after a reopen the keys are %+v, were %+v", got, before)
		}
		if got := keysOf(t, s, store.KeysRequest{Overridden: true}); !reflect.DeepEqual(got, overridden) {
			t.Errorf("after a reopen the overrides are %+v, were %+v", got, overridden)
		}
		wantSound(t, s)
	}
	if got := keyState(t, s, "a"); got.Leased != 3 {
		t.Errorf("%d messages of a count, want 3", got.Leased)
	}
	r, err := s.Extend(t.Context(), "q", []store.Extension{{Lease: held[0].Receipt.Lease}})
	if err != nil || len(r[0].Lost) != 1 {
		t.Fatal(r, err)
	}
	if got := keyState(t, s, "a"); got.Leased != 2 {
		t.Errorf("%d messages of a count, want 2", got.Leased)
	}
	clock.Advance(59 * time.Minute)
	wantClaimed(t, s, 3+0+0+3)
	wantSound(t, s)
}

// A rate state that has no effect any more leaves the disk.
func TestRatesOfIdleKeysAreForgotten(t *testing.T) {
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	limit(t, s, store.Flow{Key: store.KeyFlow{Rate: store.Rate{N: 1, Per: time.Minute}}})
	for i := range 700 {
		sendKey(t, s, fmt.Sprintf("key%d", i), clock.Now(), 1)
	}
	rates := func() (n int) {
		wantSound(t, s) // compares the number with the disk
		execute(t, s, func(t *tx) { n = len(t.s.queues["q"].lanes.states) })
		return n
	}
	for range 2 {
		for _, m := range claimUpTo(t, s, 500) {
			ack := store.Settlement{Receipt: m.Receipt, Action: store.Ack}
			if r, err := s.Settle(t.Context(), "q", []store.Settlement{ack}); err != nil || r[0].Err != nil {
				t.Fatal(r, err)
			}
		}
	}
	if n := rates(); n != 700 {
		t.Errorf("%d keys have a rate, want 700", n)
	}
	clock.Advance(time.Minute + time.Second)
	for i := range 3 {
		sendKey(t, s, "new", clock.Now(), i)
		claimUpTo(t, s, 500)
	}
	if n := rates(); n != 1 {
		t.Errorf("%d keys have a rate, want the new one only", n)
	}
}

func TestAClaimSortsABoundedNumberOfMessages(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	sendKey(t, s, "a", clock.Now(), upTo(1100)...)
	clock.Advance(time.Millisecond)
	sendKey(t, s, "b", clock.Now(), 1)
	limit(t, s, store.Flow{Fair: true})
	for range 2 { // and again after a reopen
		for i, want := range []int64{500, 1000, 1101, 1101} {
			c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 10, Ahead: 10, Lease: time.Minute})
			if err != nil || len(c.Messages) > 0 || !c.More || c.Unsorted != (i < 2) {
				t.Fatalf("claim %d returns %+v, %v", i, c, err)
			}
			sorted := int64(0)
			for _, k := range keysOf(t, s, store.KeysRequest{}) {
				sorted += k.Waiting
			}
			if sorted != want {
				t.Errorf("after claim %d %d messages are sorted, want %d", i, sorted, want)
			}
		}
		s.Close()
		s = openOn(t, fs, clock)
		wantSound(t, s)
	}
	wantIDs(t, claimedIDs(t, s, 2), "a-0000000", "a-0000001")
	wantIDs(t, claimedIDs(t, s, 1), "a-0000002") // b is not sorted yet
	wantIDs(t, claimedIDs(t, s, 2), "b-0000001", "a-0000003")
	wantSound(t, s)
}

// Keys that were full when the limits changed, and do not wait any more, do not have workers claim again and again.
func TestAClaimIsTheLastAfterAChangeOfLimitsIfNothingIsReady(t *testing.T) {
	for name, leaves := range map[string]func(s *Store) error{
		"reschedule": func(s *Store) error {
			_, err := s.Reschedule(t.Context(), "q", []string{"a-0000002"}, store.Due{Delay: time.Hour})
			return err
		},
		"cancel": func(s *Store) error {
			_, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: []string{"a-0000002"}})
			return err
		},
	} {
		clock := newManualClock()
		s := openOn(t, vfs.NewMem(), clock)
		limit(t, s, store.Flow{Key: store.KeyFlow{Concurrency: 1}})
		sendKey(t, s, "a", clock.Now(), 1, 2)
		wantClaimed(t, s, 1)
		limit(t, s, store.Flow{Key: store.KeyFlow{Concurrency: 1, Weight: 2}})
		if err := leaves(s); err != nil {
			t.Fatal(err)
		}
		c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
		if err != nil || c.More || len(c.Messages) > 0 {
			t.Errorf("%s: the claim returns %+v, %v", name, c, err)
		}
		s.Close()
	}
}

// Messages that come behind the frontier are sorted in their place, from wherever they come.
func TestMessagesBehindTheFrontierAreSortedToo(t *testing.T) {
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	now := clock.Now()
	limit(t, s, store.Flow{Fair: true})
	sendKey(t, s, "a", now.Add(-time.Minute), 1, 2, 3, 4)
	sendKey(t, s, "b", now, 1, 2)
	sendKey(t, s, "c", now.Add(time.Minute), 1, 2)
	held := claimUpTo(t, s, 2)
	wantIDs(t, []string{held[0].ID, held[1].ID}, "a-0000001", "b-0000001")
	// A release, a past due time, a reschedule to the past, and a restored message.
	release := store.Settlement{Receipt: held[0].Receipt, Action: store.Release}
	if r, err := s.Settle(t.Context(), "q", []store.Settlement{release}); err != nil || r[0].Err != nil {
		t.Fatal(r, err)
	}
	sendKey(t, s, "a", now.Add(-time.Hour), 0)
	if r, err := s.Reschedule(t.Context(), "q", []string{"a-0000004"},
		store.Due{At: now.Add(-2 * time.Hour)}); err != nil || r[0] != nil {
		t.Fatal(r, err)
	}
	restored := store.Info{Message: store.Message{ID: "a-9", Key: "a"}, State: store.StateReady,
		Due: now.Add(-time.Second)}
	if r, err := s.Restore(t.Context(), "q", []store.Info{restored}); err != nil || r[0].Err != nil {
		t.Fatal(r, err)
	}
	wantSound(t, s)
	cancel := store.CancelRequest{IDs: []string{"a-0000000", "a-0000003"}} // only the second one is sorted
	if _, err := s.Cancel(t.Context(), "q", cancel); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, claimedIDs(t, s, 6), "a-0000004", "b-0000002", "a-0000001", "a-0000002", "a-9")
	wantSound(t, s)
	clock.Advance(time.Minute)
	wantIDs(t, claimedIDs(t, s, 6), "c-0000001", "c-0000002")
	wantSound(t, s)
}

// Messages that are sorted are not due any more when the clock goes back far.
func TestSortedMessagesAreNotEarlyAfterTheClockWasSetBack(t *testing.T) {
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	one := 1
	limit(t, s, store.Flow{Key: store.KeyFlow{Concurrency: 3, Rate: store.Rate{N: 1, Per: time.Minute, Burst: 2}}})
	override(t, s, "b", store.KeyOverride{Concurrency: &one})
	sendKey(t, s, "a", clock.Now().Add(-10*time.Minute), upTo(4)...)
	sendKey(t, s, "b", clock.Now().Add(-10*time.Minute), upTo(4)...)
	sendKey(t, s, "c", clock.Now().Add(-24*time.Hour), upTo(4)...)
	wantClaimed(t, s, 2+1+2)
	clock.Advance(-time.Hour)
	wantSound(t, s)
	wantClaimed(t, s, 0)
	for key, leased := range map[string]int{"a": 2, "b": 1, "c": 2} {
		got := keyState(t, s, key)
		if got.Leased != leased || got.Override != nil != (key == "b") || got.Waiting != 0 && key != "c" {
			t.Errorf("an hour back, the key is %+v", got)
		}
		if rests := got.Next.Sub(clock.Now()); rests > time.Minute {
			t.Errorf("an hour back, key %s rests for %v", key, rests)
		}
	}
	wantSound(t, s)
	clock.Advance(time.Minute)
	wantIDs(t, claimedIDs(t, s, 9), "c-0000002")
	clock.Advance(49*time.Minute - time.Millisecond)
	wantClaimed(t, s, 0)
	clock.Advance(time.Millisecond)
	wantClaimed(t, s, 1) // a has 2 of 3, b 1 of 1, and c 3 of 3
	wantSound(t, s)
}

func TestAQueueThatIsNotFairAnyMoreForgetsItsKeys(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	fair := store.Flow{Concurrency: 20,
		Key: store.KeyFlow{Concurrency: 2, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 4}}}
	limit(t, s, fair)
	one := 1
	override(t, s, "b", store.KeyOverride{Concurrency: &one})
	sendKey(t, s, "a", clock.Now(), upTo(9)...)
	sendKey(t, s, "b", clock.Now(), upTo(9)...)
	wantClaimed(t, s, 3)
	limit(t, s, store.Flow{Concurrency: 20})
	wantSound(t, s)
	if got := keysOf(t, s, store.KeysRequest{}); len(got) > 0 {
		t.Errorf("a queue that is not Fair has the keys %+v", got)
	}
	if err := s.SetKeyFlow(t.Context(), "q", "a", store.KeyOverride{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an override of a queue that is not Fair gives %v", err)
	}
	wantIDs(t, claimedIDs(t, s, 2), "a-0000002", "a-0000003")
	for range 2 {
		limit(t, s, fair)
		if got := flowOf(t, s); got.Leased != 5 {
			t.Errorf("%d messages count for the queue, want 5", got.Leased)
		}
		if got := keyState(t, s, "a"); got.Leased != 0 || got.Next.After(clock.Now()) {
			t.Errorf("the key is %+v", got)
		}
		if got := keysOf(t, s, store.KeysRequest{Overridden: true}); len(got) > 0 {
			t.Errorf("overrides are left: %+v", got)
		}
		s.Close()
		s = openOn(t, fs, clock)
		wantSound(t, s)
	}
	wantIDs(t, claimedIDs(t, s, 9), "a-0000004", "b-0000001", "a-0000005", "b-0000002")
	wantSound(t, s)
}

// A rate of keys that is set again begins with a full burst. The rate of a key with an override goes on.
func TestRatesOfKeysThatAreSetAgainBeginAnew(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	rate := store.Rate{N: 1, Per: time.Hour, Burst: 2}
	fair := store.Flow{Key: store.KeyFlow{Rate: rate}}
	limit(t, s, fair)
	override(t, s, "b", store.KeyOverride{Rate: &rate})
	override(t, s, "c", store.KeyOverride{Rate: &rate})
	for _, key := range []string{"a", "b", "c"} {
		sendKey(t, s, key, clock.Now(), upTo(9)...)
	}
	wantClaimed(t, s, 6)
	limit(t, s, store.Flow{Fair: true})
	override(t, s, "c", store.KeyOverride{})
	limit(t, s, fair)
	s.Close()
	s = openOn(t, fs, clock)
	wantSound(t, s)
	wantIDs(t, claimedIDs(t, s, 9), "a-0000002", "c-0000002", "a-0000003", "c-0000003")
	wantSound(t, s)
}
