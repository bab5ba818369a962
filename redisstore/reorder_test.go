package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// delayFirstCall holds back one call, the first after skip others, as a network that lost a packet does. The store
// takes it for lost and repeats it. The call arrives after its repetition, and after all calls that were made in
// between.
type delayFirstCall struct {
	redis.UniversalClient
	skip, calls int
	held        []any
}

func (l *delayFirstCall) Process(ctx context.Context, cmd redis.Cmder) error {
	l.calls++
	if l.calls == l.skip+1 {
		l.held = append(l.held, cmd.Args()...)
		return errLostReply
	}
	return l.UniversalClient.Process(ctx, cmd)
}

// deliver delivers the delayed call.
func (l *delayFirstCall) deliver(t *testing.T) {
	t.Helper()
	if err := l.Do(t.Context(), l.held...).Err(); err != nil {
		t.Errorf("delayed call: %v", err)
	}
}

// newDelayedStore returns a store that delays its first call.
func newDelayedStore(t *testing.T, s *Store, queue string) (*Store, *delayFirstCall) {
	t.Helper()
	if err := s.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, script := range renderings(s.scripts) { // a delayed call does not send its script
		if err := s.rdb.ScriptLoad(t.Context(), script.body).Err(); err != nil {
			t.Fatal(err)
		}
	}
	l := &delayFirstCall{UniversalClient: s.rdb}
	other := newWith(t, s.scripts, l)
	other.preflightDone.Store(true)
	other.registered.Store(queue, true)
	return other, l
}

// A late attempt of a claim finds the messages that its repetition claimed, acked or not, and claims no others: no
// worker would receive them, and a message with one attempt would die without a delivery.
func TestClaimArrivingAfterItsRepetitionClaimsNothingElse(t *testing.T) {
	for _, c := range []struct {
		name             string
		before           int // messages sent before the claim, which takes one; another one is sent after it
		acked, replyLost bool
		leased, left     int // messages after the late attempt
	}{
		{"held", 1, false, false, 1, 1},
		{"acked", 1, true, false, 0, 1},
		{"acked with others", 2, true, false, 0, 2},
		{"of nothing", 0, false, false, 0, 1},
		{"acked after a third attempt", 1, true, true, 0, 1},
		{"of nothing in three attempts", 0, false, true, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			rdb := redistest.Shared(t).Client(t)
			s := newFrozenClock(t, rdb)
			ctx, queue := t.Context(), "late-claim"
			if err := s.Delete(ctx, queue); err != nil {
				t.Fatal(err)
			}
			sendOnce := func(id string) {
				m := store.Message{ID: id, MaxAttempts: 1}
				if _, err := s.Send(ctx, queue, []store.Outgoing{{Message: m}}); err != nil {
					t.Fatal(err)
				}
			}
			send(t, s, queue, "later", store.Due{Delay: 24 * time.Hour})
			for i := range c.before {
				sendOnce(fmt.Sprint(i))
			}
			advance(rdb)(t, queue, time.Second)
			other, l := newDelayedStore(t, s, queue)
			if c.replyLost { // of the first attempt, and the second one is late
				l.skip = 1
				other.rdb = &loseFirstReply{UniversalClient: l, do: func() {}}
			}
			got, err := other.Claim(ctx, queue, store.ClaimRequest{Max: 1, Lease: time.Minute})
			if err != nil || len(got.Messages) != min(1, c.before) {
				t.Fatalf("Claim = %+v, %v", got, err)
			}
			if c.acked { // in another session, so its number does not protect the claim
				results, err := s.Settle(ctx, queue,
					[]store.Settlement{{Receipt: got.Messages[0].Receipt, Action: store.Ack}})
				if err != nil || results[0].Err != nil {
					t.Fatalf("ack = %+v, %v", results, err)
				}
			}
			sendOnce("new")
			advance(rdb)(t, queue, time.Second)
			l.deliver(t)
			if st, err := s.Stats(ctx, queue); err != nil || st.Leased != int64(c.leased) || st.Ready != int64(c.left) {
				t.Errorf("after the late attempt %d are leased and %d ready, want %d and %d (%v)", st.Leased,
					st.Ready, c.leased, c.left, err)
			}
			advance(rdb)(t, queue, time.Hour)
			if again := claim(t, s, queue, 10, time.Minute); len(again.Messages) != c.left ||
				len(again.Died) != c.leased {
				t.Errorf("after the lease: %+v, want %d messages, and %d to have died", again, c.left, c.leased)
			}
		})
	}
}

func TestLateOldRequestKeepsNewerSessionState(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, queue := t.Context(), "late-ack"
	for _, id := range []string{"a", "b", "c", "d"} {
		send(t, s, queue, id, store.Due{})
	}
	held, old := claim(t, s, queue, 2, time.Minute), claim(t, s, queue, 2, time.Minute)
	if _, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: []string{"b", "d"}}); err != nil { // one of each lease
		t.Fatal(err)
	}
	var other *Store
	other = afterLostReply(t, rdb, func() {
		sess := other.sessions.name + ":1"
		last, _, _ := strings.Cut(rdb.HGet(ctx, "later:{"+queue+"}:sessions", sess).Val(), ":")
		number, err := strconv.ParseInt(last, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		call := s.newCall("ack", queue, 8)
		call.add(sess, number-1, 0, old.Messages[0].Receipt.Lease, 0, 2, "c", "d")
		if reply, err := s.run(ctx, queue, call); err != nil {
			t.Errorf("old request = %v, %v", reply, err)
		}
	})
	other.keys.of(queue).common[ackFew].skip.Store(1) // the reply of its script is not the one to lose
	results, err := other.Settle(ctx, queue, []store.Settlement{
		{Receipt: held.Messages[0].Receipt, Action: store.Ack}, {Receipt: held.Messages[1].Receipt, Action: store.Ack},
	})
	if err != nil || results[0].Err != nil || results[1].Err != store.ErrLeaseLost {
		t.Errorf("repeated ack = %+v, %v", results, err)
	}
}

func TestSessionOfClientWithSlowClockIsKept(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newFrozenClock(t, rdb)
	ctx, queue := t.Context(), "behind"
	advance(rdb)(t, queue, 50*time.Hour)
	send(t, s, queue, "m", store.Due{})
	c := claim(t, s, queue, 1, time.Minute)
	other := newFrozenClock(t, &loseFirstReply{UniversalClient: rdb, do: func() {}})
	other.preflightDone.Store(true)
	results, err := other.Settle(ctx, queue, []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}})
	if err != nil || results[0].Err != nil {
		t.Errorf("repeated ack = %+v, %v", results, err)
	}
}

func TestTamperedReceiptSettlesNothing(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, queue := t.Context(), "tampered"
	send(t, s, queue, "held", store.Due{})
	c := claim(t, s, queue, 1, time.Minute)
	send(t, s, queue, "other", store.Due{Delay: time.Hour})
	for _, change := range []func(*store.Receipt){
		func(r *store.Receipt) { r.ID = "other" },
		func(r *store.Receipt) { r.ID = "hel" },
		func(r *store.Receipt) { r.ID, r.Index = "other", 7 },
		func(r *store.Receipt) { r.ID, r.Index = "other", -1 },
	} {
		ack := store.Settlement{Receipt: c.Messages[0].Receipt, Action: store.Ack}
		change(&ack.Receipt)
		if results, err := s.Settle(ctx, queue, []store.Settlement{ack}); err != nil ||
			results[0].Err != store.ErrLeaseLost {
			t.Errorf("%+v: ack = %+v, %v", ack.Receipt, results, err)
		}
	}
	if st, err := s.Stats(ctx, queue); err != nil || st.Scheduled != 1 || st.Leased != 1 {
		t.Errorf("stats = %+v, %v", st, err)
	}
	results, err := s.Settle(ctx, queue, []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}})
	if err != nil || results[0].Err != nil {
		t.Errorf("ack of the original receipt = %+v, %v", results, err)
	}
}

// A cancel is reported once. A late extend must not report it, because its reply reaches no caller.
func TestExtendArrivingAfterItsRepetitionReportsNothing(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, queue := t.Context(), "late-extension"
	send(t, s, queue, "a", store.Due{})
	send(t, s, queue, "b", store.Due{})
	c := claim(t, s, queue, 2, time.Minute)
	extensions := []store.Extension{{Lease: c.Messages[0].Receipt.Lease, For: time.Hour}}
	other, l := newDelayedStore(t, s, queue)
	first, err := other.Extend(ctx, queue, extensions)
	if err != nil || first[0].Err != nil {
		t.Fatalf("Extend = %+v, %v", first, err)
	}
	if _, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	l.deliver(t)
	results, err := other.Extend(ctx, queue, extensions)
	if err != nil || results[0].Err != nil || len(results[0].Lost) != 1 || results[0].Lost[0].ID != "a" {
		t.Errorf("next Extend = %+v, %v", results, err)
	}
	if results[0].Deadline.Before(first[0].Deadline) {
		t.Errorf("deadline moved back from %v to %v", first[0].Deadline, results[0].Deadline)
	}
}
