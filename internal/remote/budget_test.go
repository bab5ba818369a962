package remote

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestABudgetServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{size: 10, free: 10}
		if n, err := b.take(t.Context(), 100); n != 10 || err != nil { // more than all of it
			t.Fatal(n, err)
		}
		var mu sync.Mutex
		var served []int64
		serve := func(n int64) {
			mu.Lock()
			defer mu.Unlock()
			served = append(served, n)
		}
		var waiting sync.WaitGroup
		ctx, leave := context.WithCancel(t.Context())
		for i, n := range []int64{4, 9, 3, 2} {
			waiting.Go(func() {
				of := t.Context()
				if i == 1 {
					of = ctx
				}
				if _, err := b.take(of, n); err == nil {
					serve(n)
				} else if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.Canceled) {
					t.Errorf("%d: %v", n, err)
				}
			})
			synctest.Wait()
		}
		b.give(6)
		synctest.Wait()
		if len(served) != 1 || b.free != 2 {
			t.Errorf("%v are served and %d is free: 9 does not fit, and 3 and 2 come after it", served, b.free)
		}
		waiting.Go(func() { // it would fit, but the calls before it go first
			if _, err := b.take(t.Context(), 1); err != nil {
				t.Error(err)
			}
			serve(1)
		})
		synctest.Wait()
		if len(served) != 1 {
			t.Errorf("%v are served: the last one comes before others", served)
		}
		b.give(1)
		leave()
		synctest.Wait()
		if len(served) != 2 || served[1] != 3 {
			t.Errorf("%v are served after the one in front has left", served)
		}
		waiting.Go(func() { synctest.Wait(); b.give(3) })
		waiting.Wait()
		if len(served) != 4 || b.free != 0 {
			t.Errorf("%v are served and %d is free", served, b.free)
		}
		b.give(4 + 3 + 2 + 1)
		if b.free != b.size || len(b.waiting) > 0 {
			t.Errorf("%d of %d is free in the end", b.free, b.size)
		}
	})
}

// crowdedStore counts the bytes of the sends that it executes at a time.
type crowdedStore struct {
	*memstore.Store
	goOn chan struct{}

	mu        sync.Mutex
	now, most int
}

func (s *crowdedStore) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	size := 0
	for _, m := range msgs {
		size += len(m.Payload)
	}
	s.mu.Lock()
	s.now += size
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	<-s.goOn
	s.mu.Lock()
	s.now -= size
	s.mu.Unlock()
	return make([]store.SendResult, len(msgs)), nil
}

// TestLargeCallsWaitForRoom has a crowd of large sends at a socket, and then over HTTP.
func TestLargeCallsWaitForRoom(t *testing.T) {
	for name, with := range ways {
		t.Run(name, func(t *testing.T) {
			with(t, func(t *testing.T, _ *network, server *Server, c *Client) {
				s := &crowdedStore{Store: engineOf(server), goOn: make(chan struct{})}
				server.store = s
				server.MaxInFlight(0) // the least
				settled := []store.Settlement{{Receipt: store.Receipt{Lease: "x", ID: "x"}, Action: store.Bury}}
				for range 40 {
					settled = append(settled, settled[0])
					settled[len(settled)-1].Reason = string(make([]byte, store.MaxReason))
				}
				large := []store.Outgoing{{Message: store.Message{ID: "a", Payload: make([]byte, 1<<20)}}}
				large = append(large, large[0], large[0], large[0])
				var sending sync.WaitGroup
				for range 50 {
					sending.Go(func() {
						if _, err := c.Send(t.Context(), "q", large); err != nil {
							t.Error(err)
						}
					})
				}
				time.Sleep(roomWithin / 2)
				s.mu.Lock()
				if limit := MinInFlight / 2 / copies; s.most == 0 || s.most > limit {
					t.Errorf("%d bytes are in flight, want %d at most", s.most, limit)
				}
				s.mu.Unlock()
				began := time.Now()
				if _, err := c.Stats(t.Context(), "q"); err != nil {
					t.Error(err)
				}
				if _, err := c.Claim(t.Context(), "q", store.ClaimRequest{Max: 500, Lease: time.Minute}); err != nil {
					t.Error(err)
				}
				for range 3 {
					if _, err := c.Settle(t.Context(), "q", settled); err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("other calls wait for %v", took)
				}
				if name == "socket" {
					time.Sleep(time.Minute) // they wait as long as the server is heard
				}
				close(s.goOn)
				sending.Wait()
				synctest.Wait()
				b := server.budgets
				if b.requests.free != b.requests.size || b.replies.free != b.replies.size ||
					b.settles.free != b.settles.size {
					t.Errorf("in the end %+v, %+v, %+v", b.requests, b.replies, b.settles)
				}
			})
		})
	}
}

// ways are the ways of a client to a server.
var ways = map[string]func(*testing.T, func(*testing.T, *network, *Server, *Client)){
	"http": withNetwork, "socket": withSocket,
}

func TestLargeRepliesWaitForRoom(t *testing.T) {
	withSocket(t, func(t *testing.T, _ *network, server *Server, c *Client) {
		server.MaxInFlight(0)
		all, err := server.budgets.replies.take(t.Context(), MinInFlight)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, call := range []func() error{
			func() error { _, err := c.Get(t.Context(), "q", []string{"a"}); return err },
			func() error {
				_, err := c.List(t.Context(), "q", store.ListRequest{State: store.StateReady, Limit: 1})
				return err
			},
			func() error {
				_, err := c.Claim(t.Context(), "q", store.ClaimRequest{Max: 9, Lease: time.Minute})
				return err
			},
		} {
			time.AfterFunc(time.Minute, func() { server.budgets.replies.give(all) })
			if err := call(); err != nil {
				t.Error(err)
			}
			if all, err = server.budgets.replies.take(t.Context(), MinInFlight); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 3*time.Minute {
			t.Errorf("the calls took %v, want three minutes", took)
		}
	})
}
