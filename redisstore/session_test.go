package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

// afterLostReply returns a store that loses the reply of its first successful call; do is called before the call is
// repeated.
func afterLostReply(t *testing.T, rdb redis.UniversalClient, do func()) *Store {
	t.Helper()
	s := newStore(t, &loseFirstReply{UniversalClient: rdb, do: do})
	s.preflightDone.Store(true)
	return s
}

// An ack that succeeded for some messages and was refused for others returns the same results again, even if ids were
// sent again since.
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
		if _, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: []string{"b"}}); err != nil {
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
	if _, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: []string{"m"}}); err != nil {
		t.Fatal(err)
	}
	results, err := afterLostReply(t, rdb, func() {}).Settle(ctx, queue, ack)
	if err != nil || results[0].Err != store.ErrLeaseLost {
		t.Errorf("ack of a cancelled message = %+v, %v", results, err)
	}
}

// Only one extend reports a cancel to the holder, and its reply may be lost.
func TestRepeatedExtendReportsCancelsAgain(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, queue := t.Context(), "reported-twice"
	for _, id := range []string{"a", "b", "c"} {
		send(t, s, queue, id, store.Due{})
	}
	first, second := claim(t, s, queue, 2, time.Minute), claim(t, s, queue, 1, time.Minute)
	if _, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: []string{"b", "c"}}); err != nil {
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

// The last request of a session is forgotten after rememberRequests, but not before, however many requests others make.
func TestSessionIsRememberedAndThenForgotten(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	ctx, queue := t.Context(), "forgotten"
	s := newFrozenClock(t, rdb)
	turn := func(d time.Duration) { // others use the queue
		advance(rdb)(t, queue, d)
		for _, sess := range s.sessions.free {
			sess.looked = nil // at another time of the frozen clock
		}
		send(t, s, queue, fmt.Sprint("at ", time.Now().UnixNano()), store.Due{Delay: time.Hour})
	}
	turn(time.Second)
	turn(rememberRequests - time.Millisecond) // the call below is the last before a turn
	for _, c := range []struct {
		waits      []time.Duration
		remembered bool
	}{
		{[]time.Duration{rememberRequests - time.Millisecond}, true},
		{[]time.Duration{time.Millisecond, rememberRequests - 2*time.Millisecond}, true},
		{[]time.Duration{rememberRequests, rememberRequests}, false},
	} {
		id := fmt.Sprint(c.waits)
		other := newWith(t, s.scripts, &loseFirstReply{UniversalClient: rdb, do: func() {
			if _, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: []string{id}}); err != nil {
				t.Fatal(err)
			}
			for _, d := range c.waits {
				turn(d)
			}
		}})
		other.preflightDone.Store(true)
		other.registered.Store(queue, true)
		other.keys.of(queue).common[sendOne].skip.Store(1) // the reply of its script is not the one to lose
		send(t, other, queue, id, store.Due{Delay: time.Hour})
		infos, err := s.Get(ctx, queue, []string{id})
		if sentTwice := err == nil && infos[0] != nil; err != nil || sentTwice == c.remembered {
			t.Errorf("after %v the send was executed twice: %t, %v", c.waits, sentTwice, err)
		}
	}
	for _, key := range []string{"sessions", "old_sessions"} {
		left, err := rdb.PTTL(ctx, "later:{"+queue+"}:"+key).Result()
		if err != nil || left <= 0 || left > 2*rememberRequests+lateTurn {
			t.Errorf("%s of an idle queue ends after %v, %v; want at most %v", key, left, err,
				2*rememberRequests+lateTurn)
		}
	}
	if n := rdb.HLen(ctx, "later:{"+queue+"}:old_sessions").Val(); n > 4 {
		t.Errorf("%d sessions are kept of those before the last turn", n)
	}
}

// A repetition never returns the reply kept for another session, or for another request of its own session.
func TestRepetitionIgnoresReplyOfAnotherRequest(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	ctx, queue := t.Context(), "other-reply"
	s := newStore(t, rdb)
	send(t, s, queue, "a", store.Due{Delay: time.Hour})
	key := "later:{" + queue + "}:sessions"
	for _, c := range []struct {
		name   string
		inject func(name string, number int64) []any
		want   store.State
		exists bool // afterwards
	}{
		{"another session",
			func(name string, number int64) []any { return []any{name + "0", fmt.Sprint(number, ":d")} },
			store.StateScheduled, false},
		{"an earlier request", func(name string, number int64) []any { return []any{name, fmt.Sprint(number-1, ":d")} },
			store.StateScheduled, false},
		{"a later request", func(name string, number int64) []any { return []any{name, fmt.Sprint(number+1, ":d")} },
			store.StateNone, true},
		{"this request", func(name string, number int64) []any { return []any{name, fmt.Sprint(number, ":d")} },
			store.StateDead, true},
	} {
		if _, err := s.Send(ctx, queue, []store.Outgoing{{Message: store.Message{ID: "a"},
			Due: store.Due{Delay: time.Hour}}}); err != nil {
			t.Fatal(err)
		}
		other := newStore(t, rdb)
		sess, number := other.sessions.acquire() // the call below is the next request of the same session
		other.sessions.release(sess)
		if err := rdb.HSet(ctx, key, c.inject(sess.name, number+1)...).Err(); err != nil {
			t.Fatal(err)
		}
		results, err := other.Cancel(ctx, queue, store.CancelRequest{IDs: []string{"a"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := results[0].State; got != c.want {
			t.Errorf("with the reply of %s kept, Cancel = %q, want %q", c.name, got, c.want)
		}
		infos, err := s.Get(ctx, queue, []string{"a"})
		if err != nil || (infos[0] != nil) != c.exists {
			t.Errorf("with the reply of %s kept, the message exists afterwards: %t, %v", c.name, infos[0] != nil, err)
		}
	}
}

// A call of MaxBatch messages keeps about a kilobyte of its reply at most.
func TestKeptRepliesAreSmall(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	ctx, queue := t.Context(), "kept-replies"
	s := newStore(t, rdb)
	msgs := make([]store.Outgoing, store.MaxBatch)
	ids := make([]string, len(msgs))
	for i := range msgs {
		ids[i] = fmt.Sprintf("%0128d", i)
		msgs[i] = store.Outgoing{Message: store.Message{ID: ids[i]}, Due: store.Due{Delay: time.Hour}}
	}
	kept := func() (n int) {
		all, err := rdb.HGetAll(ctx, "later:{"+queue+"}:sessions").Result()
		if err != nil {
			t.Fatal(err)
		}
		for session, last := range all {
			n += len(session) + len(last)
		}
		return n
	}
	for i := 0; i < len(msgs); i += 2 {
		if _, err := s.Send(ctx, queue, msgs[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	results, err := s.Send(ctx, queue, msgs) // every second one is a duplicate
	if err != nil || !results[0].Duplicate || results[1].Duplicate {
		t.Fatalf("Send = %v, %v", results[:2], err)
	}
	if n := kept(); n < 250 || n > 1200 {
		t.Errorf("a send with %d duplicates keeps %d bytes", len(msgs)/2, n)
	}
	if _, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: ids}); err != nil {
		t.Fatal(err)
	}
	if n := kept(); n < maxByID || n > 700 { // of the last call
		t.Errorf("a cancel of %d messages keeps %d bytes", len(ids), n)
	}
}

// An Extend of many leases makes several calls. If one fails, the cancels that the calls before it reported are not
// reported again, so its results must not be lost.
func TestExtendKeepsResultsOfEarlierCalls(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	ctx, queue := t.Context(), "extend-chunks"
	s := newStore(t, rdb)
	var extensions []store.Extension
	for i := range maxExtensions + 1 {
		send(t, s, queue, fmt.Sprint("m", i), store.Due{})
		c := claim(t, s, queue, 1, time.Minute)
		extensions = append(extensions, store.Extension{Lease: c.Messages[0].Receipt.Lease, For: time.Minute})
	}
	if _, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: []string{"m0"}}); err != nil {
		t.Fatal(err)
	}
	other := newStore(t, &failSecondCall{UniversalClient: rdb}, RetryFor(-1))
	other.preflightDone.Store(true)
	results, err := other.Extend(ctx, queue, extensions)
	if err != nil || len(results) != len(extensions) {
		t.Fatalf("Extend returned %d results, %v", len(results), err)
	}
	if len(results[0].Lost) != 1 || results[0].Lost[0].ID != "m0" || results[1].Err != nil {
		t.Errorf("results of the first call are %+v", results[:2])
	}
	if err := results[maxExtensions].Err; !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("result of the failed call has the error %v, want ErrUnavailable", err)
	}
}

// failSecondCall fails the second call without sending it.
type failSecondCall struct {
	redis.UniversalClient
	calls int
}

func (f *failSecondCall) Process(ctx context.Context, cmd redis.Cmder) error {
	if f.calls++; f.calls == 2 {
		return errConnClosed
	}
	return f.UniversalClient.Process(ctx, cmd)
}

// One Extend reports a bounded number of cancels, which it has to keep for its repetition, and the next one the rest.
func TestExtendReportsManyCancelsInTurns(t *testing.T) {
	ctx, queue := t.Context(), "many-cancels"
	s := newStore(t, redistest.Shared(t).Client(t))
	var extensions []store.Extension
	for lease := range 2 {
		msgs := make([]store.Outgoing, 300)
		ids := make([]string, len(msgs))
		for i := range msgs {
			ids[i] = fmt.Sprint("m", lease, "-", i)
			msgs[i].ID = ids[i]
		}
		if _, err := s.Send(ctx, queue, msgs); err != nil {
			t.Fatal(err)
		}
		c := claim(t, s, queue, len(msgs), time.Minute)
		extensions = append(extensions, store.Extension{Lease: c.Messages[0].Receipt.Lease, For: time.Minute})
		if _, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: ids}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	lost := func() (n int, errs []error) {
		results, err := s.Extend(ctx, queue, extensions)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			errs = append(errs, r.Err)
			for _, receipt := range r.Lost {
				seen[receipt.ID]++
				n++
			}
		}
		return n, errs
	}
	if n, errs := lost(); n != store.MaxBatch || errs[0] != store.ErrLeaseLost || errs[1] != nil {
		t.Errorf("first Extend reports %d cancels, %v; want %d and one lease left", n, errs, store.MaxBatch)
	}
	if n, errs := lost(); n != 100 || errs[1] != store.ErrLeaseLost || len(seen) != 600 {
		t.Errorf("second Extend reports %d cancels, %v, so that %d of 600 are known", n, errs, len(seen))
	}
}

func TestServerClockStepIsLogged(t *testing.T) {
	srv := redistest.Start(t)
	var log strings.Builder
	s := newStore(t, srv.Client(t), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	send(t, s, "steps", "m", store.Due{Delay: time.Hour})
	claim(t, s, "steps", 1, time.Minute)
	s.waker.mu.Lock()
	clock := &s.waker.servers[""].clock
	clock.lastTime = clock.lastTime.Add(-time.Hour) // as if it had shown an hour less
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

// A call that a client repeats through another server, with a store of its own process, is executed once.
func TestRequestIsExecutedOnceByAllProcesses(t *testing.T) {
	srv := redistest.Start(t)
	// The traces of a removed queue remember nothing, and a removal of messages compares them first.
	storetest.RunRequests(t, func(t *testing.T) (store.Store, func() []store.Store) {
		rdb := srv.Client(t)
		if err := rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		peer := newStore(t, rdb)
		return newStore(t, rdb), func() []store.Store { return []store.Store{peer} }
	}, "delete", "remove")
}
