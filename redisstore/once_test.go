package redisstore

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// afterLostReply gives a store whose first answered call loses its reply; do is done before the call is repeated.
func afterLostReply(t *testing.T, rdb redis.UniversalClient, do func()) *Store {
	t.Helper()
	s := newStore(t, &between{UniversalClient: rdb, do: do})
	s.checked.Store(true)
	return s
}

func TestASendIsDoneOnceThoughItsMessageWasAckedBeforeItsRepetition(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, queue := t.Context(), "sent-once"
	send(t, s, queue, "first", store.Due{Delay: time.Hour})
	other := afterLostReply(t, rdb, func() {
		c := claim(t, s, queue, 1, time.Minute)
		if _, err := s.Settle(ctx, queue, []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}}); err != nil {
			t.Error(err)
		}
	})
	other.registered.Store(queue, true)
	results, err := other.Send(ctx, queue, []store.Outgoing{{Message: store.Message{ID: "m"}}, {Message: store.Message{ID: "first", Payload: []byte("other")}}})
	if err != nil || results[0].Duplicate || !results[1].Duplicate {
		t.Errorf("the send gave %+v, %v", results, err)
	}
	if c := claim(t, s, queue, 1, time.Minute); len(c.Messages) > 0 {
		t.Errorf("the acked message came again: %+v", c.Messages)
	}
}

func TestANackIsDoneOnceThoughItsMessageWasClaimedBeforeItsRepetition(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, queue := t.Context(), "nacked-once"
	send(t, s, queue, "m", store.Due{})
	c := claim(t, s, queue, 1, time.Minute)
	var second store.Claim
	other := afterLostReply(t, rdb, func() { second = claim(t, s, queue, 1, time.Minute) })
	results, err := other.Settle(ctx, queue, []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Nack}})
	if err != nil || results[0].Err != nil {
		t.Errorf("the nack gave %+v, %v", results, err)
	}
	if len(second.Messages) != 1 || second.Messages[0].Attempt != 2 {
		t.Fatalf("the second claim gave %+v", second.Messages)
	}
	results, err = s.Settle(ctx, queue, []store.Settlement{{Receipt: second.Messages[0].Receipt, Action: store.Ack}})
	if err != nil || results[0].Err != nil {
		t.Errorf("the second holder's ack gave %+v, %v", results, err)
	}
}

func TestAnAckIsDoneOnceThoughItsIDWasSentAgainBeforeItsRepetition(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, queue := t.Context(), "acked-once"
	send(t, s, queue, "m", store.Due{})
	send(t, s, queue, "other", store.Due{})
	c := claim(t, s, queue, 2, time.Minute)
	again := func() { send(t, s, queue, "m", store.Due{Delay: time.Hour}) }
	results, err := afterLostReply(t, rdb, again).Settle(ctx, queue, []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}})
	if err != nil || results[0].Err != nil {
		t.Errorf("the ack gave %+v, %v", results, err)
	}
	if infos, err := s.Get(ctx, queue, []string{"m"}); err != nil || infos[0] == nil || infos[0].State != store.StateScheduled {
		t.Errorf("the message sent since is gone: %+v, %v", infos, err)
	}
	// Where the call refused something it cannot be told any more what: those whose id is living are refused.
	results, err = afterLostReply(t, rdb, func() {}).Settle(ctx, queue, []store.Settlement{
		{Receipt: c.Messages[0].Receipt, Action: store.Ack}, {Receipt: c.Messages[1].Receipt, Action: store.Ack},
	})
	if err != nil || results[0].Err != store.ErrLeaseLost || results[1].Err != nil {
		t.Errorf("the ack of a lost and a held message gave %+v, %v", results, err)
	}
}

func TestACancelIsDoneOnceAndTellsTheStateThoughItsReplyWasLost(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, queue := t.Context(), "cancelled-once"
	send(t, s, queue, "leased", store.Due{})
	claim(t, s, queue, 1, time.Minute)
	send(t, s, queue, "ready", store.Due{})
	send(t, s, queue, "scheduled", store.Due{Delay: time.Hour})
	for _, state := range []store.State{store.StateLeased, store.StateReady, store.StateScheduled} {
		id := string(state)
		other := afterLostReply(t, rdb, func() { send(t, s, queue, id, store.Due{Delay: time.Hour}) })
		results, err := other.Cancel(ctx, queue, []string{id})
		if err != nil || results[0] != (store.CancelResult{State: state}) {
			t.Errorf("the cancel of a %s message gave %+v, %v", state, results, err)
		}
		if infos, err := s.Get(ctx, queue, []string{id}); err != nil || infos[0] == nil {
			t.Errorf("the message sent since is gone: %v", err)
		}
	}
	results, err := afterLostReply(t, rdb, nil).Cancel(ctx, queue, []string{"unknown"})
	if err != nil || results[0].Err != store.ErrNotFound {
		t.Errorf("the cancel of an unknown message gave %+v, %v", results, err)
	}
	results, err = afterLostReply(t, rdb, func() {}).Cancel(ctx, queue, []string{"leased", "ready"})
	if err != nil || results[0].Err != nil || results[1].Err != nil {
		t.Errorf("the cancel of two messages gave %+v, %v", results, err)
	}
}

func TestCallersThatMadeNoCallForADayAreForgotten(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	ctx, queue := t.Context(), "callers"
	key := "later:{" + queue + "}:calls"
	send(t, newStore(t, rdb), queue, "a", store.Due{})
	rdb.ZAdd(ctx, key, redis.Z{Score: float64(time.Now().Add(-25 * time.Hour).UnixMicro()), Member: "gone:1"},
		redis.Z{Score: float64(time.Now().Add(-23 * time.Hour).UnixMicro()), Member: "quiet:1"})
	send(t, newStore(t, rdb), queue, "b", store.Due{})
	if n := rdb.ZCard(ctx, key).Val(); n != 3 || rdb.ZScore(ctx, key, "gone:1").Err() != redis.Nil {
		t.Errorf("%d callers are known", n)
	}
}

func TestAStepOfTheServersClockIsLogged(t *testing.T) {
	srv := redistest.Start(t)
	var log strings.Builder
	s := newStore(t, srv.Client(t), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	send(t, s, "steps", "m", store.Due{Delay: time.Hour})
	claim(t, s, "steps", 1, time.Minute)
	s.waker.mu.Lock()
	s.waker.clock.server = s.waker.clock.server.Add(-time.Hour) // as if it had been an hour earlier then
	s.waker.mu.Unlock()
	claim(t, s, "steps", 1, time.Minute)
	claim(t, s, "steps", 1, time.Minute)
	if told := strings.Count(log.String(), "clock was stepped"); told != 1 || !strings.Contains(log.String(), "by=1h0m0") {
		t.Errorf("logged: %s", log.String())
	}
}
