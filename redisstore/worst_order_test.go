package redisstore

import (
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// orders sends n messages of some keys with an order.
func (w *worst) orders(n, keys, size int) []store.Outgoing {
	w.Helper()
	w.ok(w.s.SetFlow(w.Context(), w.queue, store.Flow{Key: store.KeyFlow{Order: store.OrderHalt}}, nil))
	msgs := w.messages(n, size, nil)
	for i := range msgs {
		msgs[i].Key = fmt.Sprintf("key-%060d", i%keys)
	}
	w.send(msgs)
	return msgs
}

// leasesKeys claims messages of 500 keys, and makes others of the keys wait.
func (w *worst) leasesKeys(size int) []store.Receipt {
	w.Helper()
	for range 2 {
		w.orders(store.MaxBatch, store.MaxBatch, size)
	}
	var held []store.Receipt
	for len(held) < store.MaxBatch {
		for _, m := range w.claim(store.MaxBatch, time.Hour).Messages {
			held = append(held, m.Receipt)
		}
	}
	return held
}

var worstOrder = []worstCase{
	{"send", "500 keys with an order", func(w *worst) func() {
		w.orders(1, 1, 10)
		return func() { w.orders(store.MaxBatch, store.MaxBatch, fullPayload) }
	}},
	{"claim", "500 keys with an order", func(w *worst) func() {
		w.orders(store.MaxBatch, store.MaxBatch, 1000)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "500 messages that hold their keys", func(w *worst) func() {
		w.settles(w.leasesKeys(1000), store.Release)()
		for range 2 { // which only sort
			_, err := w.s.Claim(w.Context(), w.queue, store.ClaimRequest{Max: 1, Ahead: 1, Lease: time.Hour})
			w.ok(err)
		}
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"settle", "500 messages that hold their keys", func(w *worst) func() {
		return w.settles(w.leasesKeys(10), store.Nack)
	}},
	{"settle", "500 messages that halt their keys", func(w *worst) func() {
		return w.settles(w.leasesKeys(10), store.Bury)
	}},
	{"ack", "500 keys with an order", func(w *worst) func() { return w.settles(w.leasesKeys(10), store.Ack) }},
	{"collapse", "messages of one ms", func(w *worst) func() {
		w.orders(store.MaxBatch, 1, 10)
		msgs := w.orders(store.MaxBatch, 1, 10)
		for i := range msgs {
			msgs[i].OnDuplicate.Mode = store.DuplicateReplace
		}
		return func() { w.send(msgs) }
	}},
	{"cancel", "messages of one ms", func(w *worst) func() {
		w.orders(store.MaxBatch, 1, 10)
		return w.cancels(ids(w.orders(store.MaxBatch, 1, 10)), false)
	}},
	{"forward", "500 keys with an order", func(w *worst) func() {
		w.orders(store.MaxBatch, store.MaxBatch, 1000)
		return w.forwards(store.TargetQueue)
	}},
}
