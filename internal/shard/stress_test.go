package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// process is one of several processes that use an engine. Its calls fail at random, before they are executed or
// afterwards.
type process struct {
	*memstore.Store
	fails float64
}

func (p process) Close() error { return nil }

var errLost = store.Errorf(store.ErrUnavailable, "a reply was lost")

// may makes a call that may fail.
func may[T any](p process, call func() (T, error)) (none T, _ error) {
	draw := rand.Float64() / p.fails
	if draw < 0.5 {
		return none, errLost
	}
	result, err := call()
	if draw < 1 && err == nil {
		return none, errLost
	}
	return result, err
}

func mayFail(p process, call func() error) error {
	_, err := may(p, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

func (p process) Send(ctx context.Context, q string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return may(p, func() ([]store.SendResult, error) { return p.Store.Send(ctx, q, msgs) })
}

func (p process) SendKnown(ctx context.Context, q string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return may(p, func() ([]store.SendResult, error) { return p.Store.SendKnown(ctx, q, msgs) })
}

func (p process) Settle(ctx context.Context, q string, s []store.Settlement) ([]store.SettleResult, error) {
	return may(p, func() ([]store.SettleResult, error) { return p.Store.Settle(ctx, q, s) })
}

func (p process) Cancel(ctx context.Context, q string, req store.CancelRequest) ([]store.CancelResult, error) {
	return may(p, func() ([]store.CancelResult, error) { return p.Store.Cancel(ctx, q, req) })
}

func (p process) Sign(ctx context.Context, name string) (string, error) {
	return may(p, func() (string, error) { return p.Store.Sign(ctx, name) })
}

func (p process) SetSign(ctx context.Context, name, sign, former string) error {
	return mayFail(p, func() error { return p.Store.SetSign(ctx, name, sign, former) })
}

func (p process) Create(ctx context.Context, name string, to store.Settings) error {
	return mayFail(p, func() error { return p.Store.Create(ctx, name, to) })
}

func (p process) Rename(ctx context.Context, from, to, sign, former string) error {
	return mayFail(p, func() error { return p.Store.Rename(ctx, from, to, sign, former) })
}

func (p process) Scan(ctx context.Context, name, cursor string) (store.Scanned, error) {
	return may(p, func() (store.Scanned, error) { return p.Store.Scan(ctx, name, cursor) })
}

func (p process) Depart(ctx context.Context, name string, d store.Departure) (store.Departed, error) {
	return may(p, func() (store.Departed, error) { return p.Store.Depart(ctx, name, d) })
}

func (p process) Outbox(ctx context.Context, name string) (*store.Parcel, error) {
	return may(p, func() (*store.Parcel, error) { return p.Store.Outbox(ctx, name) })
}

func (p process) Arrive(ctx context.Context, parcel *store.Parcel) error {
	return mayFail(p, func() error { return p.Store.Arrive(ctx, parcel) })
}

func (p process) Expect(ctx context.Context, name string, e store.Expected) (int64, error) {
	return may(p, func() (int64, error) { return p.Store.Expect(ctx, name, e) })
}

func (p process) Empty(ctx context.Context, name string, number int64) error {
	return mayFail(p, func() error { return p.Store.Empty(ctx, name, number) })
}

// fates has the fate of each message of a stress.
type fates struct {
	mu    sync.Mutex
	sent  []string
	known map[string]*fate
}

type fate struct {
	ends   int  // acks and cancels that were certainly executed
	maybes int  // others whose reply was lost, and that found nothing when they were repeated
	stays  bool // it is not due before the end
}

func (f *fates) change(id string, change func(*fate)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known[id] == nil {
		f.known[id] = &fate{}
		f.sent = append(f.sent, id)
	}
	change(f.known[id])
}

func (f *fates) any() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.sent) == 0 {
		return "none"
	}
	return f.sent[rand.IntN(len(f.sent))]
}

// stress is several processes that use one queue.
type stress struct {
	t      *testing.T
	clock  *memstore.ManualClock
	engine *memstore.Store
	stores []forwarder
	fates  fates
}

const stressed = "stressed"

func newStress(t *testing.T, processes int, fails float64) *stress {
	s := &stress{t: t, clock: memstore.NewManualClock(time.Now())}
	s.fates.known = map[string]*fate{}
	s.engine = memstore.New(memstore.WithClock(s.clock))
	t.Cleanup(func() { s.engine.Close() })
	for range processes {
		over := New(process{s.engine, fails}, slog.New(slog.DiscardHandler)).(forwarder)
		over.late = 0
		t.Cleanup(func() { over.Close() })
		s.stores = append(s.stores, over)
	}
	return s
}

func (s *stress) any() forwarder { return s.stores[rand.IntN(len(s.stores))] }

// until makes a call again until it has a reply. It returns whether a reply was lost.
func until(call func() error) (lost bool) {
	for {
		err := call()
		if !errors.Is(err, store.ErrUnavailable) { // nil, or its result has no entries
			return lost
		}
		lost = true
	}
}

// send sends some batches. Some messages are not due before the end.
func (s *stress) send(ctx context.Context, name string, batches int) {
	ctx = context.WithoutCancel(ctx)
	for b := range batches {
		var msgs []store.Outgoing
		for i := range 1 + rand.IntN(20) {
			m := store.Outgoing{Message: store.Message{ID: store.NewID(), DedupWindow: 100 * time.Hour}}
			if rand.IntN(2) == 0 {
				m.ID = fmt.Sprintf("%s-%d-%d", name, b, i)
			}
			if rand.IntN(10) == 0 {
				m.Due.Delay = 10 * time.Hour
			}
			msgs = append(msgs, m)
			s.fates.change(m.ID, func(f *fate) { f.stays = m.Due.Delay > 0 })
		}
		over := s.any()
		var results []store.SendResult
		lost := until(func() (err error) {
			if results, err = over.Send(ctx, stressed, msgs); err == nil {
				err = store.SendError(results)
			}
			return err
		})
		for i, r := range results {
			if r.Err != nil || r.Duplicate && !lost {
				s.t.Errorf("send of %q: %+v", msgs[i].ID, r)
			}
		}
	}
}

// work handles messages until the context ends.
func (s *stress) work(ctx context.Context, over forwarder) {
	for ctx.Err() == nil {
		claim, err := over.Claim(ctx, stressed, store.ClaimRequest{Max: 1 + rand.IntN(30), Lease: time.Hour})
		if err == nil && len(claim.Messages) == 0 {
			err = over.Wait(ctx, stressed)
		}
		if len(claim.Messages) == 0 {
			if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable) {
				s.t.Error(err)
				return
			}
			continue
		}
		var list []store.Settlement
		for _, m := range claim.Messages {
			action := store.Ack
			if rand.IntN(4) == 0 {
				action = []store.Action{store.Release, store.Snooze}[rand.IntN(2)]
			}
			list = append(list, store.Settlement{Receipt: m.Receipt, Action: action, DedupWindow: m.DedupWindow})
		}
		var results []store.SettleResult
		lost := until(func() (err error) {
			results, err = over.Settle(context.WithoutCancel(ctx), stressed, list)
			for _, r := range results {
				if errors.Is(r.Err, store.ErrUnavailable) { // of one shard
					return r.Err
				}
			}
			return err
		})
		for i, r := range results {
			s.fates.change(list[i].Receipt.ID, func(f *fate) {
				switch {
				case f.stays:
					s.t.Errorf("message %q was delivered early", list[i].Receipt.ID)
				case r.Err == nil && list[i].Action == store.Ack:
					f.ends++
				case errors.Is(r.Err, store.ErrLeaseLost) && lost && list[i].Action == store.Ack:
					f.maybes++
				case r.Err != nil && !errors.Is(r.Err, store.ErrLeaseLost):
					s.t.Errorf("settle of %q: %v", list[i].Receipt.ID, r.Err)
				}
			})
		}
		// A lease with cancelled messages ends when its holder has learned of them.
		until(func() error {
			_, err := over.Extend(context.WithoutCancel(ctx), stressed, []store.Extension{{Lease: list[0].Receipt.Lease}})
			return err
		})
	}
}

// cancel cancels messages, and looks at others, until the context ends.
func (s *stress) cancel(ctx context.Context) {
	for ctx.Err() == nil {
		over, id := s.any(), s.fates.any()
		var results []store.CancelResult
		lost := until(func() (err error) {
			req := store.CancelRequest{IDs: []string{id}, KeepIDs: true}
			results, err = over.Cancel(context.WithoutCancel(ctx), stressed, req)
			return err
		})
		if id == "none" {
			continue
		}
		s.fates.change(id, func(f *fate) {
			switch {
			case results[0].Err == nil:
				f.ends++
			case lost:
				f.maybes++
			}
		})
		if _, err := over.Stats(ctx, stressed); err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable) {
			s.t.Error(err)
		}
		pause(ctx, time.Millisecond)
	}
}

// shards changes the number of shards, and returns when the change is over.
func (s *stress) shards(ctx context.Context, n int) {
	over := s.any()
	for {
		err := over.SetShards(ctx, stressed, n)
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			s.t.Errorf("SetShards to %d: %v", n, err)
			return
		}
		shards, err2 := over.Shards(ctx, stressed)
		if err == nil && err2 == nil && shards.Number == n && shards.Since.IsZero() {
			return
		}
		if pause(ctx, time.Millisecond) != nil {
			s.t.Errorf("a change to %d shards does not end", n)
			return
		}
	}
}

// stays checks that each id that is left is in the one sub-queue where it belongs, and returns how many there are.
func (s *stress) stays(n int) int {
	r, err := s.stores[0].read(s.t.Context(), stressed)
	if err != nil || r.Phase != settled || len(r.names) != n {
		s.t.Fatalf("%+v, %v", r, err)
	}
	left := map[string]int{}
	for i, name := range r.names {
		var page store.Page
		for {
			req := store.ListRequest{State: store.StateScheduled, Limit: 500, Cursor: page.Next}
			page, err = s.engine.List(s.t.Context(), name, req)
			if err != nil {
				s.t.Fatal(err)
			}
			for _, m := range page.Messages {
				if at, ok := left[m.ID]; ok {
					s.t.Errorf("message %q is in shards %d and %d", m.ID, at, i)
				}
				if left[m.ID] = i; Of(store.Slot(m.ID), n) != i {
					s.t.Errorf("message %q is in shard %d", m.ID, i)
				}
			}
			if page.Next == "" {
				break
			}
		}
		if p, err := s.engine.Outbox(s.t.Context(), name); p != nil || err != nil {
			s.t.Errorf("outbox of shard %d: %v, %v", i, p, err)
		}
	}
	for id, f := range s.fates.known {
		if _, ok := left[id]; ok == (f.ends > 0) && f.maybes == 0 {
			s.t.Errorf("message %q ended %d times, and it is %v that it is left", id, f.ends, ok)
		}
	}
	return len(left)
}

func TestNoMessageIsLostOrHandledTwiceWhileNumbersChange(t *testing.T) {
	s := newStress(t, 4, 0.002)
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	var senders, users sync.WaitGroup
	using, enough := context.WithCancel(ctx)
	defer users.Wait()
	defer enough()
	var rounds atomic.Int64 // of sends, of which each change takes some
	begin := make(chan struct{})
	for i := range 3 {
		senders.Go(func() {
			for range begin {
				s.send(ctx, fmt.Sprintf("%d-%d", i, rounds.Add(1)), 10)
			}
		})
	}
	for _, over := range s.stores {
		users.Go(func() { s.work(using, over) })
	}
	users.Go(func() { s.cancel(using) })
	for _, n := range []int{3, 5, 2, 1, 16, 3, 5, 2, 1, 64, 7, 3, 5, 2, 1, 16} {
		for range 4 {
			begin <- struct{}{}
		}
		s.shards(ctx, n)
	}
	close(begin)
	senders.Wait()
	for {
		stats, err := s.stores[0].Stats(ctx, stressed)
		if err == nil && stats.Ready+stats.Leased == 0 {
			break
		}
		if pause(ctx, time.Millisecond) != nil {
			t.Fatalf("%+v messages are left, %v", stats, err)
		}
	}
	enough()
	users.Wait()
	left := s.stays(16)
	var again []store.Outgoing
	for _, id := range s.fates.sent {
		if f := s.fates.known[id]; f.ends > 1 || f.ends+f.maybes == 0 && !f.stays {
			t.Errorf("message %q ended %d times for certain, and %d times perhaps", id, f.ends, f.maybes)
		}
		again = append(again, store.Outgoing{Message: store.Message{ID: id}})
	}
	for part := range slices.Chunk(again, store.MaxBatch) {
		var results []store.SendResult
		until(func() (err error) {
			if results, err = s.stores[1].Send(ctx, stressed, part); err == nil {
				err = store.SendError(results)
			}
			return err
		})
		for i, r := range results {
			if !r.Duplicate {
				t.Errorf("message %q could be sent again: %+v", part[i].ID, r)
			}
		}
	}
	t.Logf("%d messages, %d left", len(again), left)
}
