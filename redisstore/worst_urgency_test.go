package redisstore

import (
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// urges sends n messages of some keys. Each key has messages of all urgencies, if there are enough.
func (w *worst) urges(n, keys, size int, limits store.KeyFlow) (all []store.Outgoing) {
	w.Helper()
	w.ok(w.s.SetFlow(w.Context(), w.queue, store.Flow{Urgency: true, Key: limits}, nil))
	urgencies := []store.Urgency{store.UrgencyNormal, store.UrgencyHigh, store.UrgencyLow}
	for len(all) < n {
		msgs := w.messages(min(n-len(all), store.MaxBatch), size, nil)
		for i := range msgs {
			at := len(all) + i
			msgs[i].Key = fmt.Sprintf("key-%060d", at/3%keys)
			msgs[i].Urgency = urgencies[at%3]
		}
		w.send(msgs)
		all = append(all, msgs...)
	}
	return all
}

// sorted has claims sort all ready messages.
func (w *worst) sorted() {
	w.Helper()
	for more := true; more; {
		c, err := w.s.Claim(w.Context(), w.queue, store.ClaimRequest{Max: 1, Ahead: 1, Lease: time.Hour})
		w.ok(err)
		more = c.Unsorted
	}
}

// ofAllUrgencies has 500 keys wait, most of them in three classes, and returns the ids of messages of all of them.
func (w *worst) ofAllUrgencies(size int, limits store.KeyFlow) []string {
	w.Helper()
	msgs := w.urges(3*store.MaxBatch, store.MaxBatch, size, limits)
	w.sorted()
	var some []store.Outgoing
	for i := 0; i < len(msgs); i += 3 {
		some = append(some, msgs[i+i/3%3])
	}
	return ids(some)
}

var orderOfKeys = store.KeyFlow{Order: store.OrderContinue}

var worstUrgency = []worstCase{
	{"send", "500 keys with an order, of all urgencies", func(w *worst) func() {
		return func() { w.urges(store.MaxBatch, store.MaxBatch/3, fullPayload, orderOfKeys) }
	}},
	{"collapse", "another urgency of messages of one ms", func(w *worst) func() {
		w.urges(store.MaxBatch, 1, 10, orderOfKeys)
		msgs := w.urges(store.MaxBatch, 1, 10, orderOfKeys)
		for i := range msgs {
			msgs[i].OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace, KeepDue: true}
			msgs[i].Urgency = msgs[(i+1)%len(msgs)].Urgency
		}
		return func() { w.send(msgs) }
	}},
	{"claim", "messages of all urgencies to sort", func(w *worst) func() {
		w.urges(3*store.MaxBatch, store.MaxBatch, 1000, store.KeyFlow{})
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "500 keys in three classes", func(w *worst) func() {
		w.ofAllUrgencies(1000, store.KeyFlow{})
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "500 keys with an order, of all urgencies", func(w *worst) func() {
		w.ofAllUrgencies(1000, orderOfKeys)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"forward", "500 keys with an order, of all urgencies", func(w *worst) func() {
		w.ofAllUrgencies(1000, orderOfKeys)
		return w.forwards(store.TargetQueue)
	}},
	{"cancel", "messages of all urgencies", func(w *worst) func() {
		return w.cancels(w.ofAllUrgencies(10, store.KeyFlow{}), false)
	}},
	{"cancel", "messages of all urgencies with an order", func(w *worst) func() {
		return w.cancels(w.ofAllUrgencies(10, orderOfKeys), false)
	}},
	{"reschedule", "messages of all urgencies", func(w *worst) func() {
		list := w.ofAllUrgencies(10, orderOfKeys)
		return func() {
			_, err := w.s.Reschedule(w.Context(), w.queue, list, store.Due{Delay: time.Hour})
			w.ok(err)
		}
	}},
	{"remove", "messages of all urgencies", func(w *worst) func() {
		return w.removes(w.ofAllUrgencies(10, orderOfKeys))
	}},
	{"purge", "ready messages of all urgencies", func(w *worst) func() {
		w.ofAllUrgencies(10, orderOfKeys)
		return w.purges(store.StateReady)
	}},
	{"keys", "500 in three classes", func(w *worst) func() {
		w.ofAllUrgencies(10, store.KeyFlow{})
		return w.keys(store.KeysRequest{Limit: store.MaxKeysPage})
	}},
	{"keys", "one in three classes", func(w *worst) func() {
		w.urges(w.far+3000, 1, 10, store.KeyFlow{})
		w.sorted()
		return w.keys(store.KeysRequest{Limit: 1, Key: fmt.Sprintf("key-%060d", 0)})
	}},
	{"check_lanes", "keys in three classes", func(w *worst) func() {
		w.ofAllUrgencies(10, store.KeyFlow{})
		return w.checks()
	}},
}
