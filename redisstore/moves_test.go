package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// Attempts of the steps of a move that arrive late do nothing again.
func TestLateStepsOfAMoveChangeNothing(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s, ctx := newStore(t, rdb), t.Context()
	a, b := subQueue(t, s, "late steps", "g1", "a"), subQueue(t, s, "late steps", "g1", "b")
	send(t, s, a, "x", store.Due{})
	departs, session := s.departCall(a, store.Departure{To: b, IDs: []string{"x"}})
	defer s.sessions.release(session)
	if _, err := s.runSafely(ctx, a, departs); err != nil {
		t.Fatal(err)
	}
	d, err := s.Depart(ctx, a, store.Departure{To: b, IDs: []string{"y"}})
	if err != nil || !d.Before || d.Parcel.Number != 1 {
		t.Fatalf("another departure: %+v, %v", d, err)
	}
	arrives, session := s.arriveCall(d.Parcel)
	defer s.sessions.release(session)
	if _, err := s.runSafely(ctx, b, arrives); err != nil {
		t.Fatal(err)
	}
	if err := s.Empty(ctx, a, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cancel(ctx, b, store.CancelRequest{IDs: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	send(t, s, a, "x", store.Due{})                                              // for another reason
	if err := rdb.HDel(ctx, s.keys.key(b, outboxKey), ":"+a).Err(); err != nil { // as a rename does
		t.Fatal(err)
	}
	if reply, err := s.do(ctx, departs); err != nil || fmt.Sprint(reply) != "[1 [] 1 [] [] 1]" {
		t.Errorf("late departure: %v, %v", reply, err)
	}
	if reply, err := s.do(ctx, arrives); err != nil || reply != any(int64(1)) {
		t.Errorf("late arrival: %v, %v", reply, err)
	}
	if ids := idsOf(t, s, a); !slices.Equal(ids, []string{"x"}) {
		t.Errorf("the first sub-queue has %v", ids)
	}
	if ids := idsOf(t, s, b); ids != nil {
		t.Errorf("the second sub-queue has %v", ids)
	}
	if p, err := s.Outbox(ctx, a); p != nil || err != nil {
		t.Errorf("the outbox has %v, %v", p, err)
	}
	// An attempt whose repetition found another parcel in the outbox does not follow when the outbox is empty.
	late, session := s.departCall(a, store.Departure{To: b, IDs: []string{"late"}})
	defer s.sessions.release(session)
	if _, err := s.Depart(ctx, a, store.Departure{To: b, IDs: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	send(t, s, a, "late", store.Due{})
	if reply, err := s.do(ctx, late); err != nil || fmt.Sprint(reply.([]any)[0]) != "1" {
		t.Errorf("departure beside another one: %v, %v", reply, err)
	}
	if err := s.Empty(ctx, a, 2); err != nil {
		t.Fatal(err)
	}
	if reply, err := s.do(ctx, late); err != nil || fmt.Sprint(reply) != "[1 [] 1 [] [] 2]" {
		t.Errorf("late departure: %v, %v", reply, err)
	}
	send(t, s, a, "x", store.Due{})
	// A departure whose reply was lost finds its parcel.
	departs, session = s.departCall(a, store.Departure{To: b, IDs: []string{"x"}})
	defer s.sessions.release(session)
	for _, before := range []string{"0", "1"} {
		reply, err := s.do(ctx, departs)
		if err != nil || fmt.Sprint(reply.([]any)[0]) != before || parcelOf(reply.([]any)[3]).Number != 3 {
			t.Errorf("departure: %v, %v", reply, err)
		}
	}
}

// Several processes move the same messages, while others are sent, claimed and acked. Each message is in one place in
// the end, or was acked once.
func TestProcessesMoveMessagesTogether(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s, ctx := newStore(t, rdb), t.Context()
	queue := "moved together " + store.NewID()
	a, b := subQueue(t, s, queue, "g1", "a"), subQueue(t, s, queue, "g1", "b")
	const messages = 1000
	var sender, others sync.WaitGroup
	sent := make(chan struct{})
	sender.Go(func() {
		defer close(sent)
		for i := range messages {
			send(t, s, a, fmt.Sprint(i), store.Due{Delay: time.Duration(i%3) * 2 * time.Hour})
		}
	})
	var mu sync.Mutex
	acked := map[string]int{}
	for range 2 {
		others.Go(func() {
			worker := newStore(t, rdb)
			for done := false; !done; {
				select {
				case <-sent:
					done = true
				default:
				}
				for _, queue := range []string{a, b} {
					var acks []store.Settlement
					for _, m := range claim(t, worker, queue, 3, time.Minute).Messages {
						acks = append(acks, store.Settlement{Receipt: m.Receipt, Action: store.Ack})
						mu.Lock()
						acked[m.ID]++
						mu.Unlock()
					}
					if _, err := worker.Settle(ctx, queue, acks); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for range 3 {
		others.Go(func() {
			if err := moveAll(ctx, newStore(t, rdb), a, b, sent); err != nil {
				t.Error(err)
			}
		})
	}
	sender.Wait()
	others.Wait()
	left := idsOf(t, s, b)
	if n := len(idsOf(t, s, a)); n > 0 || len(left)+len(acked) != messages {
		t.Errorf("%d messages have not moved, %d have, and %d of %d were acked", n, len(left), len(acked), messages)
	}
	for id, n := range acked {
		if n > 1 || slices.Contains(left, id) {
			t.Errorf("%s was claimed %d times, and is left: %v", id, n, slices.Contains(left, id))
		}
	}
	st, err := s.Stats(ctx, b)
	if n := st.Ready + st.Scheduled; err != nil || int(n) != len(left) || st.Leased+st.Dead != 0 {
		t.Errorf("stats are %+v, %v", st, err)
	}
}

// moveAll moves messages from one sub-queue to another as one of several processes, until all were sent and none is
// left.
func moveAll(ctx context.Context, s *Store, from, to string, sent <-chan struct{}) error {
	for cursor, last := "", false; ; {
		select {
		case <-sent:
			last = true
		default:
		}
		part, err := s.Scan(ctx, from, cursor)
		if err != nil {
			return err
		}
		d, err := s.Depart(ctx, from, store.Departure{To: to, IDs: part.IDs[:min(len(part.IDs), store.MaxDeparture)]})
		if err == nil && d.Parcel != nil {
			err = errors.Join(s.Arrive(ctx, d.Parcel), s.Empty(ctx, from, d.Parcel.Number))
		}
		if err != nil || last && d.Parcel == nil && cursor == "" && len(part.IDs) == 0 {
			return err
		}
		if cursor = part.Next; d.Before || d.More || len(part.IDs) > store.MaxDeparture || last {
			cursor = ""
		}
	}
}

// The steps of a move fail while a replica does not receive them, also those that only read.
func TestMovesAreConfirmed(t *testing.T) {
	eachServer(t, func(t *testing.T, opts ...redistest.Option) {
		primary := redistest.Start(t, opts...)
		rdb := primary.Client(t)
		s, ctx := newStore(t, rdb), t.Context()
		if err := rdb.ConfigSet(ctx, "appendfsync", "everysec").Err(); err != nil {
			t.Fatal(err)
		}
		a, b := subQueue(t, s, "q", "g1", "a"), subQueue(t, s, "q", "g1", "b") // on the disk
		replica := redistest.StartReplica(t, primary)
		send(t, s, a, "x", store.Due{})
		d, err := s.Depart(ctx, a, store.Departure{To: b, IDs: []string{"x"}})
		if err := errors.Join(err, s.Retire(ctx, "signed", "s")); err != nil {
			t.Fatal(err)
		}
		replica.Freeze(t)
		defer replica.Thaw(t)
		var calls sync.WaitGroup
		for name, do := range map[string]func() error{
			"create":   func() error { return s.Create(ctx, a, store.Settings{}) },
			"rename":   func() error { return s.Rename(ctx, "q{g0}a", a, "s", "") },
			"set sign": func() error { return s.SetSign(ctx, "signed", "t", "s") },
			"depart":   func() error { return errOf(s.Depart(ctx, a, store.Departure{To: b, IDs: []string{"x"}})) },
			"outbox":   func() error { return errOf(s.Outbox(ctx, a)) },
			"arrive":   func() error { return s.Arrive(ctx, d.Parcel) },
			"empty":    func() error { return s.Empty(ctx, b, 1) },
			"retire":   func() error { return s.Retire(ctx, "other", "s") },
			"expect":   func() error { return errOf(s.Expect(ctx, a, store.Expected{})) },
		} {
			calls.Go(func() {
				if err := do(); !errors.Is(err, store.ErrUnavailable) ||
					!strings.Contains(err.Error(), "no replica has it") {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		calls.Wait()
	})
}

// A full server refuses what arrives, and lets messages depart.
func TestFullServerLetsMessagesDepart(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s, ctx := newStore(t, rdb), t.Context()
	a, b := subQueue(t, s, "full", "g1", "a"), subQueue(t, s, "full", "g1", "b")
	send(t, s, a, "x", store.Due{})
	send(t, s, "full", "y", store.Due{})
	if err := rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Rename(ctx, "full", "full{g1}", "s", ""), s.Rename(ctx, "full{g1}", "full", "s", "s"),
		s.Create(ctx, "full{g2}a", store.Settings{}), s.Retire(ctx, "full{g2}a", "s")); err != nil {
		t.Error(err)
	}
	d, err := s.Depart(ctx, a, store.Departure{To: b, IDs: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Arrive(ctx, d.Parcel); !errors.Is(err, store.ErrFull) {
		t.Errorf("Arrive = %v", err)
	}
	if err := rdb.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Arrive(ctx, d.Parcel), rdb.ConfigSet(ctx, "maxmemory", "1").Err(),
		s.Empty(ctx, a, 1), s.Retire(ctx, a, "s"), s.Rename(ctx, b, "full{g2}b", "s", "")); err != nil {
		t.Error(err)
	}
	if err := rdb.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
}

func TestScanReadsEveryMessageInBoundedSteps(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s, ctx := newStore(t, rdb), t.Context()
	queue := subQueue(t, s, "scanned", "g1", "")
	var want []string
	for i := range 40 {
		var msgs []store.Outgoing
		for k := range 100 {
			m := store.Message{ID: fmt.Sprintf("%02d-%02d", i, k), Payload: make([]byte, 2000)}
			if i == 0 && k < 3 {
				m.Payload = make([]byte, store.MaxPayload/2)
			}
			want = append(want, m.ID)
			msgs = append(msgs, store.Outgoing{Message: m})
		}
		if _, err := s.Send(ctx, queue, msgs); err != nil {
			t.Fatal(err)
		}
	}
	steps := 0
	var got []string
	for cursor := ""; ; {
		part, err := s.Scan(ctx, queue, cursor)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, part.IDs...)
		steps++
		if cursor = part.Next; cursor == "" {
			break
		}
	}
	part, err := s.Scan(ctx, queue, "3.0.1.0123") // of another server
	if err != nil || len(part.IDs) == 0 || !strings.HasPrefix(part.Next, "0.") {
		t.Errorf("after a failover the scan goes on at %s with %d ids, %v", part.Next, len(part.IDs), err)
	}
	slices.Sort(got)
	if !slices.Equal(slices.Compact(got), want) || steps > 100 {
		t.Errorf("%d ids in %d steps, want %d", len(got), steps, len(want))
	}
	for _, cursor := range []string{"x", "9.0.1.", "1.x.0.", "1.0.0", "0.0.-1."} {
		if _, err := s.Scan(ctx, queue, cursor); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Scan with the cursor %q: %v", cursor, err)
		}
	}
}

// A scan tells that the server was started again, since a failover may bring messages back that a mover has not read.
func TestScanTellsTheRunOfTheServer(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server.Client(t))
	run := func() string {
		t.Helper()
		part, err := s.Scan(t.Context(), "q", store.ScanKeys)
		if err != nil || part.Run == "" {
			t.Fatalf("run %q, %v", part.Run, err)
		}
		return part.Run
	}
	first := run()
	if again := run(); again != first {
		t.Errorf("run %q, then %q", first, again)
	}
	server.Kill()
	server.Restart(t)
	if again := run(); again == first {
		t.Errorf("run %q also after a restart", again)
	}
}
