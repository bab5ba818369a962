package redisstore

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// afterLostReply returns a store whose first successful call loses its reply; do is called before the call is repeated.
func afterLostReply(t *testing.T, rdb redis.UniversalClient, do func()) *Store {
	t.Helper()
	s := newStore(t, &loseFirstReply{UniversalClient: rdb, do: do})
	s.preflightDone.Store(true)
	return s
}

// An ack that succeeded for some messages and was refused for others returns the same results again, whatever was
// sent since.
func TestRepeatedAckRefusesTheSameMessages(t *testing.T) {
	for _, taken := range []bool{false, true} { // by runs of adjacent messages, and one by one
		rdb := redistest.Shared(t).Client(t)
		s := newStore(t, rdb)
		ctx, queue := t.Context(), fmt.Sprintf("refused-once-%t", taken)
		ids := []string{"a", "b", "c", "d"}
		for _, id := range ids {
			send(t, s, queue, id, store.Due{})
		}
		claims := []store.Claim{claim(t, s, queue, 2, time.Minute), claim(t, s, queue, 2, time.Minute)}
		var acks []store.Settlement
		for _, c := range claims {
			for _, m := range c.Messages {
				if taken {
					m.Receipt.Claim = nil
				}
				acks = append(acks, store.Settlement{Receipt: m.Receipt, Action: store.Ack})
			}
		}
		if _, err := s.Cancel(ctx, queue, []string{"b"}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Settle(ctx, queue, acks[3:]); err != nil {
			t.Fatal(err)
		}
		results, err := afterLostReply(t, rdb, func() {
			send(t, s, queue, "a", store.Due{Delay: time.Hour})
			send(t, s, queue, "d", store.Due{Delay: time.Hour})
		}).Settle(ctx, queue, acks)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []error{nil, store.ErrLeaseLost, nil, store.ErrLeaseLost} {
			if results[i].Err != want {
				t.Errorf("one by one %t: repeated ack of %s = %v, want %v", taken, ids[i], results[i].Err, want)
			}
		}
		infos, err := s.Get(ctx, queue, ids)
		if err != nil || infos[0] == nil || infos[1] != nil || infos[2] != nil || infos[3] == nil {
			t.Errorf("one by one %t: remaining messages are %+v, %v", taken, infos, err)
		}
	}
}

// An ack of a cancelled message is refused, and so is its repetition.
func TestRepeatedAckRefusesCancelledMessage(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, queue := t.Context(), "refused-all"
	send(t, s, queue, "m", store.Due{})
	c := claim(t, s, queue, 1, time.Minute)
	ack := []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}}
	if _, err := s.Cancel(ctx, queue, []string{"m"}); err != nil {
		t.Fatal(err)
	}
	results, err := afterLostReply(t, rdb, func() {}).Settle(ctx, queue, ack)
	if err != nil || results[0].Err != store.ErrLeaseLost {
		t.Errorf("ack of a cancelled message = %+v, %v", results, err)
	}
}

// A cancel is reported to its holder by only one extend, whose reply may be lost.
func TestRepeatedExtendReportsCancelsAgain(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, queue := t.Context(), "reported-twice"
	for _, id := range []string{"a", "b", "c"} {
		send(t, s, queue, id, store.Due{})
	}
	first, second := claim(t, s, queue, 2, time.Minute), claim(t, s, queue, 1, time.Minute)
	if _, err := s.Cancel(ctx, queue, []string{"b", "c"}); err != nil {
		t.Fatal(err)
	}
	send(t, s, queue, "b", store.Due{Delay: time.Hour})
	other := afterLostReply(t, rdb, func() {})
	extensions := []store.Extension{
		{Lease: first.Messages[0].Receipt.Lease, For: time.Minute}, {Lease: second.Messages[0].Receipt.Lease,
			For: time.Minute},
	}
	results, err := other.Extend(ctx, queue, extensions)
	if err != nil || len(results) != 2 {
		t.Fatalf("Extend = %+v, %v", results, err)
	}
	if r := results[0]; r.Err != nil || len(r.Lost) != 1 || r.Lost[0].ID != "b" || r.Lost[0].Epoch != 0 {
		t.Errorf("result for the lease of a and b: %+v", r)
	}
	if r := results[1]; r.Err != store.ErrLeaseLost || len(r.Lost) != 1 || r.Lost[0].ID != "c" {
		t.Errorf("result for the lease of c: %+v", r)
	}
	if results, err := other.Extend(ctx, queue, extensions[:1]); err != nil || results[0].Err != nil ||
		len(results[0].Lost) > 0 {
		t.Errorf("next Extend = %+v, %v", results, err)
	}
}

func TestSessionsIdleForADayAreDeletedAboveLimit(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	ctx, queue := t.Context(), "sessions"
	key, meta := "later:{"+queue+"}:calls", "later:{"+queue+"}:meta"
	day := float64(time.Now().Add(-25 * time.Hour).UnixMicro())
	send(t, newStore(t, rdb), queue, "a", store.Due{})
	rdb.HSet(ctx, meta, "answer:gone:1", "8:1", "answer:quiet:1", "8:1")
	rdb.ZAdd(ctx, key, redis.Z{Score: day, Member: "gone:1"}, redis.Z{Score: float64(time.Now().UnixMicro()),
		Member: "quiet:1"})
	send(t, newStore(t, rdb), queue, "b", store.Due{})
	if n := rdb.ZCard(ctx, key).Val(); n != 4 {
		t.Errorf("%d sessions are kept, want 4", n)
	}
	for i := range 1000 {
		rdb.ZAdd(ctx, key, redis.Z{Score: day + 7200e6, Member: i})
	}
	send(t, newStore(t, rdb), queue, "c", store.Due{})
	if n := rdb.ZCard(ctx, key).Val(); n != 1004 || rdb.ZScore(ctx, key, "gone:1").Err() != redis.Nil {
		t.Errorf("%d sessions are kept, want 1004 of 1005 without the idle one", n)
	}
	if rdb.HExists(ctx, meta, "answer:gone:1").Val() || !rdb.HExists(ctx, meta, "answer:quiet:1").Val() {
		t.Errorf("kept replies: %v", rdb.HKeys(ctx, meta).Val())
	}
}

func TestServerClockStepIsLogged(t *testing.T) {
	srv := redistest.Start(t)
	var log strings.Builder
	s := newStore(t, srv.Client(t), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	send(t, s, "steps", "m", store.Due{Delay: time.Hour})
	claim(t, s, "steps", 1, time.Minute)
	s.waker.mu.Lock()
	s.waker.clock.server = s.waker.clock.server.Add(-time.Hour) // as if it had shown an hour less
	s.waker.mu.Unlock()
	claim(t, s, "steps", 1, time.Minute)
	claim(t, s, "steps", 1, time.Minute)
	_, after, _ := strings.Cut(log.String(), "by=")
	by, err := time.ParseDuration(strings.TrimSpace(after))
	if logged := strings.Count(log.String(), "clock was stepped"); logged != 1 || err != nil ||
		(by-time.Hour).Abs() > time.Minute {
		t.Errorf("logged: %s", log.String())
	}
}
