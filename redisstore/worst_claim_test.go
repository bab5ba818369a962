package redisstore

import (
	"math/rand/v2"
	"time"

	"github.com/laterq/later/store"
)

var worstClaims = []worstCase{
	{"claim", "500 of 8 KiB", func(w *worst) func() {
		w.sends(store.MaxBatch, fullPayload, nil)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "4 of 1 MiB", func(w *worst) func() {
		w.sends(4, store.MaxPayload, nil)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 100, store.Nack)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "expired leases with failures", func(w *worst) func() {
		w.fail(2*store.MaxBatch, 100, store.Nack)
		w.claim(store.MaxBatch-1, time.Millisecond)
		w.claim(store.MaxBatch, time.Millisecond)
		w.sends(store.MaxBatch, fullPayload, nil)
		time.Sleep(5 * time.Millisecond)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "dead beyond the retention", func(w *worst) func() {
		w.fail(store.MaxBatch, 100, store.Bury)
		w.ok(w.s.SetDeadRetention(w.Context(), w.queue, store.Retention{MaxCount: 1}, nil))
		w.sends(store.MaxBatch, 1000, nil)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "overdue buckets", func(w *worst) func() {
		now := time.Now()
		w.sends(w.far, 10, func(i int) store.Due {
			return store.Due{At: now.Add(48*time.Hour + time.Duration(rand.Int64N(int64(30*time.Second))))}
		})
		w.travel(50 * time.Hour)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "expired", func(w *worst) func() {
		w.sends(store.MaxBatch, 1000, nil)
		w.travel(50 * time.Hour)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"ack", "of leases of 500, elsewhere", func(w *worst) func() {
		var held []store.Receipt
		for _, lease := range w.leases(w.many) {
			held = append(held, lease[250])
		}
		return w.settles(held, store.Ack)
	}},
	{"ack", "500 of a lease, elsewhere", func(w *worst) func() {
		return w.settles(w.leases(1)[0], store.Ack)
	}},
	{"settle", "of leases of 500", func(w *worst) func() {
		var held []store.Receipt
		for _, lease := range w.leases(w.many) {
			held = append(held, lease[250])
		}
		return w.settles(held, store.Nack)
	}},
	{"settle", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 100, store.Nack)
		return w.settles(receipts(w.claim(store.MaxBatch, time.Hour)), store.Nack)
	}},
	{"settle", "500 buried with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 100, store.Nack)
		return w.settles(receipts(w.claim(store.MaxBatch, time.Hour)), store.Bury)
	}},
	{"extend", "leases of 500 beside one record", func(w *worst) func() {
		w.fail(1, 100, store.Bury)
		return w.extends(w.leases(w.many))
	}},
	{"extend", "leases of 500, all cancelled", func(w *worst) func() {
		held := w.leases(20)
		for _, lease := range held {
			var list []string
			for _, r := range lease {
				list = append(list, r.ID)
			}
			_, err := w.s.Cancel(w.Context(), w.queue, store.CancelRequest{IDs: list})
			w.ok(err)
		}
		return w.extends(held)
	}},
	{"extend", "leases of 500, one cancelled in another", func(w *worst) func() {
		held := w.leases(w.many)
		_, err := w.s.Cancel(w.Context(), w.queue, store.CancelRequest{IDs: []string{held[w.many-1][499].ID}})
		w.ok(err)
		return w.extends(held)
	}},
}
