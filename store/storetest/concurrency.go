package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

// workers is the number of goroutines of a concurrent rule. Half of them use the peer.
const workers = 8

// concurrently runs f in all workers at once and ends the rule if one of them fails.
func (e *env) concurrently(f func(worker int, s store.Store) error) {
	e.Helper()
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range workers {
		s := e.Store
		if i%2 == 1 {
			s = e.Peer
		}
		all.Go(func() {
			<-start
			if err := f(i, s); err != nil {
				e.Errorf("worker %d: %v", i, err)
			}
		})
	}
	close(start)
	all.Wait()
	if e.Failed() {
		e.FailNow()
	}
}

var concurrencyRules = []rule{
	{"concurrent claims never return a message twice", func(e *env) {
		const n = 3000
		e.send(many(n)...)
		var claimed sync.Map
		var total atomic.Int64
		e.concurrently(func(_ int, s store.Store) error {
			for total.Load() < n {
				c, err := s.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 7, Lease: held})
				if err != nil {
					return err
				}
				var acks []store.Settlement
				for _, m := range c.Messages {
					if _, twice := claimed.LoadOrStore(m.ID, true); twice {
						return fmt.Errorf("message %s was claimed twice", m.ID)
					}
					acks = append(acks, store.Settlement{Receipt: m.Receipt, Action: store.Ack})
				}
				if len(acks) == 0 {
					continue // other workers have yet to count their messages
				}
				results, err := s.Settle(e.Context(), e.queue, acks)
				if err != nil {
					return err
				}
				for _, r := range results {
					if r.Err != nil {
						return r.Err
					}
				}
				total.Add(int64(len(acks)))
			}
			return nil
		})
		e.equal("claimed", total.Load(), int64(n))
		e.count(0, 0, 0, 0)
	}},
	{"of concurrent sends of one id exactly one is not a duplicate", func(e *env) {
		const n = 50
		var sent [n]atomic.Int64
		e.concurrently(func(_ int, s store.Store) error {
			for i := range n {
				r, err := s.Send(e.Context(), e.queue, []store.Outgoing{message(fmt.Sprint("m", i))})
				if err != nil {
					return err
				}
				if !r[0].Duplicate {
					sent[i].Add(1)
				}
			}
			return nil
		})
		for i := range sent {
			e.equal("sent", sent[i].Load(), int64(1))
		}
		e.count(0, n, 0, 0)
	}},
	{"of concurrent settles of one receipt exactly one succeeds", func(e *env) {
		const n = 50
		e.send(many(n)...)
		claimed := e.claim(n)
		var settled [n]atomic.Int64
		e.concurrently(func(worker int, s store.Store) error {
			action := store.Nack
			if worker >= workers/2 {
				action = store.Snooze
			}
			for i, c := range claimed {
				settlement := store.Settlement{Receipt: c.Receipt, Action: action, Reason: "no", Delay: time.Hour}
				r, err := s.Settle(e.Context(), e.queue, []store.Settlement{settlement})
				if err != nil {
					return err
				}
				if r[0].Err == nil {
					settled[i].Add(1)
				}
			}
			return nil
		})
		for i := range settled {
			e.equal("settled", settled[i].Load(), int64(1))
		}
		e.count(n, 0, 0, 0)
	}},
	{"a message is either cancelled or acked, never both", func(e *env) {
		const n = 100
		e.send(many(n)...)
		claimed := e.claim(n)
		var cancelled, acked [n]atomic.Bool
		e.concurrently(func(worker int, s store.Store) error {
			for i, c := range claimed {
				if worker%2 == 0 {
					r, err := s.Cancel(e.Context(), e.queue, store.CancelRequest{IDs: []string{c.ID}})
					if err != nil {
						return err
					}
					if r[0].Err == nil && cancelled[i].Swap(true) {
						return fmt.Errorf("message %s was cancelled twice", c.ID)
					}
					continue
				}
				r, err := s.Settle(e.Context(), e.queue, []store.Settlement{{Receipt: c.Receipt, Action: store.Ack}})
				if err != nil {
					return err
				}
				if r[0].Err == nil && acked[i].Swap(true) {
					return fmt.Errorf("message %s was acked twice", c.ID)
				}
			}
			return nil
		})
		for i := range n {
			if cancelled[i].Load() == acked[i].Load() {
				e.Fatalf("message %d: cancelled %v, acked %v", i, cancelled[i].Load(), acked[i].Load())
			}
		}
		e.count(0, 0, 0, 0)
	}},
	{"no message is lost between concurrent producers and consumers", func(e *env) {
		const each = 200
		const n = each * workers / 2
		var received sync.Map
		var total atomic.Int64
		ctx := e.timeoutContext()
		e.concurrently(func(worker int, s store.Store) error {
			if worker < workers/2 {
				for i := range each {
					if _, err := s.Send(ctx, e.queue,
						[]store.Outgoing{message(fmt.Sprintf("%d-%d", worker, i))}); err != nil {
						return err
					}
				}
				return nil
			}
			for total.Load() < n {
				c, err := s.Claim(ctx, e.queue, store.ClaimRequest{Max: 20, Lease: held})
				if err != nil {
					return err
				}
				for i, m := range c.Messages {
					action := store.Ack
					if i%5 == 4 && m.Attempt == 1 {
						action = store.Nack
					}
					r, err := s.Settle(ctx, e.queue,
						[]store.Settlement{{Receipt: m.Receipt, Action: action, Reason: "no"}})
					if err != nil {
						return err
					}
					if r[0].Err != nil {
						return r[0].Err
					}
					if action == store.Nack {
						continue
					}
					if _, twice := received.LoadOrStore(m.ID, true); twice {
						return fmt.Errorf("message %s was acked twice", m.ID)
					}
					total.Add(1)
				}
			}
			return nil
		})
		e.equal("acked", total.Load(), int64(n))
		e.count(0, 0, 0, 0)
	}},
}
