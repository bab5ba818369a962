package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// hooked is an engine with a hook that tests set, which calls run first. A hook that returns an error refuses the call.
type hooked struct {
	*memstore.Store
	hooks *hooks
}

type hooks struct {
	sync.Mutex
	before func(call, name string) error
}

func (h hooked) hook(call, name string) error {
	h.hooks.Lock()
	before := h.hooks.before
	h.hooks.Unlock()
	if before == nil {
		return nil
	}
	return before(call, name)
}

// set sets the hook.
func (h hooked) set(before func(call, name string) error) {
	h.hooks.Lock()
	defer h.hooks.Unlock()
	h.hooks.before = before
}

func (h hooked) Close() error { return nil }

func (h hooked) Scan(ctx context.Context, name, cursor string) (store.Scanned, error) {
	if err := h.hook("Scan", name); err != nil {
		return store.Scanned{}, err
	}
	return h.Store.Scan(ctx, name, cursor)
}

func (h hooked) Sign(ctx context.Context, name string) (string, error) {
	if err := h.hook("Sign", name); err != nil {
		return "", err
	}
	return h.Store.Sign(ctx, name)
}

func (h hooked) Create(ctx context.Context, name string, settings store.Settings) error {
	if err := h.hook("Create", name); err != nil {
		return err
	}
	return h.Store.Create(ctx, name, settings)
}

func (h hooked) Rename(ctx context.Context, from, to, sign, former string) error {
	if err := h.hook("Rename", from); err != nil {
		return err
	}
	return h.Store.Rename(ctx, from, to, sign, former)
}

func (h hooked) SetSign(ctx context.Context, name, sign, former string) error {
	if err := h.hook("SetSign", name); err != nil {
		return err
	}
	return h.Store.SetSign(ctx, name, sign, former)
}

func (h hooked) Stats(ctx context.Context, name string) (store.Stats, error) {
	stats, err := h.Store.Stats(ctx, name)
	if refused := h.hook("Stats", name); refused != nil {
		return store.Stats{}, refused
	}
	return stats, err
}

func (h hooked) Claim(ctx context.Context, name string, req store.ClaimRequest) (store.Claim, error) {
	if err := h.hook("Claim", name); err != nil {
		return store.Claim{}, err
	}
	return h.Store.Claim(ctx, name, req)
}

func (h hooked) Wait(ctx context.Context, name string) error {
	if err := h.hook("Wait", name); err != nil {
		return err
	}
	return h.Store.Wait(ctx, name)
}

func (h hooked) Send(ctx context.Context, name string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if err := h.hook("Send", name); err != nil {
		return nil, err
	}
	return h.Store.Send(ctx, name, msgs)
}

func (h hooked) Settle(ctx context.Context, name string, s []store.Settlement) ([]store.SettleResult, error) {
	if err := h.hook("Settle", name); err != nil {
		return nil, err
	}
	return h.Store.Settle(ctx, name, s)
}

func (h hooked) Cancel(ctx context.Context, name string, req store.CancelRequest) ([]store.CancelResult, error) {
	if err := h.hook("Cancel", name); err != nil {
		return nil, err
	}
	return h.Store.Cancel(ctx, name, req)
}

// newHooked returns the store of one process over a new engine.
func newHooked(t *testing.T) (forwarder, hooked) {
	engine := hooked{memstore.New(), &hooks{}}
	t.Cleanup(func() { engine.Store.Close() })
	over := New(engine, slog.New(slog.DiscardHandler)).(forwarder)
	t.Cleanup(func() { over.Close() })
	return over, engine
}

// route returns the route of a queue.
func routeOf(t *testing.T, s forwarder, queue string) *route {
	t.Helper()
	r, err := s.read(t.Context(), queue)
	if err != nil || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	return r
}

// still has a store not move messages by itself.
func still(s forwarder, queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.movers[queue] = true
}

func sendTo(t *testing.T, s store.Store, queue string, ids ...string) {
	t.Helper()
	var msgs []store.Outgoing
	for _, id := range ids {
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: id}})
	}
	results, err := s.Send(t.Context(), queue, msgs)
	if err == nil {
		err = store.SendError(results)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// idOf returns an id that is in a shard of n, and was in another one of former.
func idOf(n, shard, former, was int) string {
	for i := 0; ; i++ {
		if id := fmt.Sprint(i); Of(store.Slot(id), n) == shard && Of(store.Slot(id), former) == was {
			return id
		}
	}
}

// A process takes a message out of its shard while the mover reads the ids there, and stops before the message arrives.
func TestAChangeIsNotOverWhileAMessageIsOnItsWay(t *testing.T) {
	s, engine := newHooked(t)
	still(s, "q")
	id := idOf(2, 1, 1, 0)
	sendTo(t, s, "q", id)
	if err := s.SetShards(t.Context(), "q", 2); err != nil {
		t.Fatal(err)
	}
	r := routeOf(t, s, "q")
	scans := 0
	engine.set(func(call, name string) error {
		if call == "Scan" {
			scans++
		}
		if call == "Scan" && scans > 1 { // the first one learns the run of the server
			_, err := engine.Depart(t.Context(), r.names[0], store.Departure{To: r.names[1], IDs: []string{id}})
			return err
		}
		return nil
	})
	if _, over, err := s.pass(t.Context(), r); over || err != nil {
		t.Errorf("the change is over: %v, %v", over, err)
	}
	if stats, err := engine.Stats(t.Context(), r.names[1]); stats.Ready != 1 || err != nil {
		t.Errorf("the new shard has %d messages, %v", stats.Ready, err)
	}
}

func TestAFirstChangeKeepsThePauseOfAQueueThatAppears(t *testing.T) {
	s, engine := newHooked(t)
	engine.set(func(call, name string) error {
		if call == "Stats" && name == "q" {
			engine.set(nil)
			return engine.SetPaused(t.Context(), "q", true)
		}
		return nil
	})
	if err := s.SetShards(t.Context(), "q", 2); err != nil {
		t.Fatal(err)
	}
	if stats, err := s.Stats(t.Context(), "q"); !stats.Paused || err != nil {
		t.Errorf("the queue is not paused: %v", err)
	}
}

// inBubble runs a test with simulated time: sleeps take no time.
func inBubble(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, test)
}

func TestAWaitEndsWhenAShardAnswersAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, engine := newHooked(t)
		if err := s.SetShards(t.Context(), "q", 2); err != nil {
			t.Fatal(err)
		}
		r := routeOf(t, s, "q")
		for r.Phase != settled {
			time.Sleep(time.Minute)
			r = routeOf(t, s, "q")
		}
		down := func(call, name string) error {
			if name == r.names[1] {
				return store.Errorf(store.ErrUnavailable, "the server is down")
			}
			return nil
		}
		engine.set(down)
		if claim, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute}); err != nil {
			t.Fatal(claim, err)
		}
		waited := make(chan error, 1)
		go func() { waited <- s.Wait(t.Context(), "q") }()
		synctest.Wait()
		sendTo(t, engine.Store, r.names[1], idOf(2, 1, 2, 1))
		engine.set(nil)
		time.Sleep(5 * time.Second)
		select {
		case err := <-waited:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("the wait goes on")
			sendTo(t, engine.Store, r.names[0], idOf(2, 0, 2, 0))
			<-waited
		}
		claim, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
		if len(claim.Messages) != 1 || err != nil {
			t.Errorf("%d messages, %v", len(claim.Messages), err)
		}
		s.Close()
	})
}

func TestAChangeThatCannotEndIsTriedFromTimeToTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, engine := newHooked(t)
		if err := s.SetShards(t.Context(), "q", 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if r := routeOf(t, s, "q"); r.Emptied == 0 {
			t.Fatalf("%+v", r)
		}
		calls := 0
		engine.set(func(call, name string) error {
			calls++
			if calls > 10000 {
				panic("too many calls")
			}
			return store.Errorf(store.ErrUnavailable, "the server is down")
		})
		time.Sleep(8 * time.Minute)
		synctest.Wait()
		engine.set(nil)
		if calls > 500 {
			t.Errorf("%d calls in a minute", calls)
		}
		time.Sleep(time.Minute)
		if r := routeOf(t, s, "q"); r.Phase != settled {
			t.Errorf("%+v", r)
		}
		s.Close()
	})
}

// The directory of a queue is on one server. While it is down the other shards go on.
func TestShardsGoOnWhileTheDirectoryCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, engine := newHooked(t)
		if err := s.SetShards(t.Context(), "q", 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if _, err := s.Stats(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		r := routeOf(t, s, "q")
		engine.set(func(call, name string) error {
			if name == "q" || name == r.names[0] {
				return store.Errorf(store.ErrUnavailable, "the server is down")
			}
			return nil
		})
		time.Sleep(2 * settledAge)
		sendTo(t, s, "q", idOf(2, 1, 2, 1))
		claim, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
		if len(claim.Messages) != 1 || err != nil {
			t.Errorf("%d messages, %v", len(claim.Messages), err)
		}
		s.Close()
	})
}

// A Wait of a caller that makes no claim afterwards does not have the claim of another one find nothing.
func TestAClaimAsksAllShardsLongAfterAWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, engine := newHooked(t)
		if err := s.SetShards(t.Context(), "q", 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		r := routeOf(t, s, "q")
		req := store.ClaimRequest{Max: 1, Lease: time.Minute}
		if _, err := s.Claim(t.Context(), "q", req); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() { waited <- s.Wait(t.Context(), "q") }()
		synctest.Wait()
		sendTo(t, s, "q", idOf(2, 0, 2, 0))
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		if claim, err := engine.Claim(t.Context(), r.names[0], req); len(claim.Messages) != 1 || err != nil {
			t.Fatal(claim, err) // another process was faster
		}
		time.Sleep(time.Second)
		sendTo(t, s, "q", idOf(2, 1, 2, 1))
		if claim, err := s.Claim(t.Context(), "q", req); len(claim.Messages) != 1 || err != nil {
			t.Errorf("%d messages, %v", len(claim.Messages), err)
		}
		s.Close()
	})
}

// Messages of other shards move while one does not answer.
func TestAShardThatIsDownHoldsUpOnlyItsOwnMessages(t *testing.T) {
	s, engine := newHooked(t)
	still(s, "q")
	if err := s.SetShards(t.Context(), "q", 2); err != nil {
		t.Fatal(err)
	}
	r := routeOf(t, s, "q")
	sendTo(t, engine.Store, r.names[0], idOf(3, 2, 2, 0))
	sendTo(t, engine.Store, r.names[1], idOf(3, 2, 2, 1))
	for range 2 {
		if next, _, err := s.pass(t.Context(), routeOf(t, s, "q")); err != nil {
			t.Fatal(next, err)
		}
	}
	if err := s.finish(t.Context(), routeOf(t, s, "q")); err != nil {
		t.Fatal(err)
	}
	if err := s.SetShards(t.Context(), "q", 3); err != nil {
		t.Fatal(err)
	}
	r = routeOf(t, s, "q")
	engine.set(func(call, name string) error {
		if name == r.names[0] {
			return store.Errorf(store.ErrUnavailable, "the server is down")
		}
		return nil
	})
	if _, over, err := s.pass(t.Context(), r); over || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the change is over: %v, %v", over, err)
	}
	if stats, err := engine.Store.Stats(t.Context(), r.names[2]); stats.Ready != 1 || err != nil {
		t.Errorf("the new shard has %d messages, %v", stats.Ready, err)
	}
}

// A call with ids of several shards has the error of a shard that is down only for the ids of that one.
func TestIDsOfOtherShardsDoNotFailWithOne(t *testing.T) {
	s, engine := newHooked(t)
	still(s, "q")
	if err := s.SetShards(t.Context(), "q", 2); err != nil {
		t.Fatal(err)
	}
	if _, err := Gather(t.Context(), s, "q"); err != nil {
		t.Fatal(err)
	}
	if err := s.finish(t.Context(), routeOf(t, s, "q")); err != nil {
		t.Fatal(err)
	}
	r := routeOf(t, s, "q")
	up, down := idOf(2, 0, 1, 0), idOf(2, 1, 1, 0)
	sendTo(t, s, "q", up, down)
	var settlements []store.Settlement
	for len(settlements) < 2 {
		claim, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
		if err != nil || len(claim.Messages) != 1 {
			t.Fatalf("%+v, %v", claim, err)
		}
		settlements = append(settlements, store.Settlement{Receipt: claim.Messages[0].Receipt, Action: store.Nack})
	}
	both := true
	engine.set(func(_, name string) error {
		if name == r.names[1] || both && name == r.names[0] {
			return store.Errorf(store.ErrUnavailable, "the server is down")
		}
		return nil
	})
	calls := map[string]func(ids ...string) (errs []error, err error){
		"send": func(ids ...string) (errs []error, err error) {
			results, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: ids[0]}},
				{Message: store.Message{ID: ids[1]}}})
			for _, r := range results {
				errs = append(errs, r.Err)
			}
			return errs, err
		},
		"settle": func(ids ...string) (errs []error, err error) {
			if settlements[0].Receipt.ID != ids[0] {
				settlements[0], settlements[1] = settlements[1], settlements[0]
			}
			results, err := s.Settle(t.Context(), "q", settlements)
			for _, r := range results {
				errs = append(errs, r.Err)
			}
			return errs, err
		},
		"cancel": func(ids ...string) (errs []error, err error) {
			results, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: ids})
			for _, r := range results {
				errs = append(errs, r.Err)
			}
			return errs, err
		},
	}
	for _, name := range []string{"send", "settle", "cancel"} {
		if _, err := calls[name](up, down); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s with all shards down: %v", name, err)
		}
	}
	both = false
	for _, name := range []string{"send", "settle", "cancel"} {
		errs, err := calls[name](up, down)
		if err != nil || errs[0] != nil || !errors.Is(errs[1], store.ErrUnavailable) {
			t.Errorf("%s with one shard down: %v, %v", name, errs, err)
		}
	}
}
