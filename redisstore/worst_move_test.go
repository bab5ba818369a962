package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

var worstMoves = []worstCase{
	{"depart", "100 of 10 KiB far ahead", func(w *worst) func() {
		all := w.sends(store.MaxDeparture, 10000, scattered)
		return w.departs(all)
	}},
	{"depart", "100 failed", func(w *worst) func() {
		w.fail(store.MaxDeparture, 1000, store.Bury)
		return w.departsIDs(w.list(store.StateDead))
	}},
	{"depart", "1 MiB", func(w *worst) func() { return w.departs(w.sends(2, store.MaxPayload, nil)) }},
	{"depart", "100 sends with keys", func(w *worst) func() {
		all := w.messages(store.MaxDeparture, 10, scattered)
		var keys []string
		for i := range all {
			all[i].Once = store.NewOnce([]byte(all[i].ID), nil)
			keys = append(keys, all[i].Once.Key)
		}
		for part := range slices.Chunk(all, 25) {
			w.send(part)
		}
		return func() {
			_, err := w.s.Depart(w.Context(), w.queue, store.Departure{To: w.queue + "to", Once: keys})
			w.ok(err)
		}
	}},
	{"arrive", "100 of 10 KiB far ahead", func(w *worst) func() {
		w.departs(w.sends(store.MaxDeparture, 10000, scattered))()
		return w.arrives()
	}},
	{"arrive", "100 failed", func(w *worst) func() {
		w.fail(store.MaxDeparture, 1000, store.Bury)
		w.departsIDs(w.list(store.StateDead))()
		return w.arrives()
	}},
	{"arrive", "1 MiB", func(w *worst) func() {
		w.departs(w.sends(2, store.MaxPayload, nil))()
		return w.arrives()
	}},
	{"outbox", "1 MiB", func(w *worst) func() {
		w.departs(w.sends(2, store.MaxPayload, nil))()
		return func() {
			_, err := w.s.Outbox(w.Context(), w.queue)
			w.ok(err)
		}
	}},
	{"scan", "8 KiB each", func(w *worst) func() {
		w.sends(2000, fullPayload, nil)
		return w.scans()
	}},
	{"scan", "a few of 1 MiB", func(w *worst) func() {
		w.sends(3000, 10, nil)
		w.sends(4, store.MaxPayload, nil)
		return w.scans()
	}},
	{"depart", "100 keys", func(w *worst) func() { return w.departsKeys(w.knownKeys()) }},
	{"depart", "100 of all urgencies with an order", func(w *worst) func() {
		return w.departsIDs(ids(w.ordersOfAllUrgencies()))
	}},
	{"arrive", "100 keys", func(w *worst) func() {
		w.departsKeys(w.knownKeys())()
		return w.arrivesKeys()
	}},
	{"arrive", "100 of all urgencies with an order", func(w *worst) func() {
		w.departsIDs(ids(w.ordersOfAllUrgencies()))()
		return w.arrivesKeys()
	}},
	{"expect", "100 keys that wait", func(w *worst) func() {
		w.sorts(3000, 600, 0)
		return w.expects(store.Expected{Keys: keysOfSorts(store.MaxDeparture)})
	}},
	{"expect", "none of 2,000", func(w *worst) func() {
		w.sorts(3000, 2000, 0)
		for part := range slices.Chunk(keysOfSorts(2000), store.MaxDeparture) {
			w.expects(store.Expected{Keys: part})()
		}
		return w.expects(store.Expected{None: true, Keys: keysOfSorts(store.MaxDeparture)})
	}},
	{"scan", "many keys", func(w *worst) func() {
		w.sorts(3000, 2000, 500)
		return w.scans()
	}},
	{"rename", "everything", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		w.leases(10)
		for i := range 64 {
			key := w.s.keys.key(w.queue, outboxKey)
			w.ok(w.rdb.HSet(w.Context(), key, fmt.Sprint(":other", i), 1).Err())
		}
		return func() { w.ok(w.s.Rename(w.Context(), w.queue, w.queue+"{g}", strings.Repeat("s", 10000), "")) }
	}},
	{"retire", "everything", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		w.leases(10)
		return func() { w.ok(w.s.Retire(w.Context(), w.queue, strings.Repeat("s", 10000))) }
	}},
	{"properties", "1,000 of 4 KiB", func(w *worst) func() {
		w.queue = store.SubQueue(w.queue, "g", "")
		w.ok(w.s.Create(w.Context(), w.queue, store.Settings{}))
		for i := range store.MaxProperties / store.MaxBatch {
			set := map[string]string{}
			for k := range store.MaxBatch {
				set[fmt.Sprint(i, "-", k)] = strings.Repeat("v", store.MaxPropertyValue)
			}
			w.ok(w.s.SetProperties(w.Context(), w.queue, set, nil))
		}
		return func() {
			_, err := w.s.Properties(w.Context(), w.queue)
			w.ok(err)
		}
	}},
}

func (w *worst) departs(all []store.Outgoing) func() {
	var ids []string
	for _, m := range all {
		ids = append(ids, m.ID)
	}
	return w.departsIDs(ids)
}

func (w *worst) departsIDs(ids []string) func() {
	return func() {
		_, err := w.s.Depart(w.Context(), w.queue, store.Departure{To: w.queue + "to", IDs: ids[:min(len(ids),
			store.MaxDeparture)]})
		w.ok(err)
	}
}

// keysOfSorts returns the first n keys of sorts.
func keysOfSorts(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("key-%060d", i))
	}
	return keys
}

// knownKeys returns keys with a rate that is ahead, and limits of their own.
func (w *worst) knownKeys() (keys []string) {
	w.sorts(store.MaxDeparture, store.MaxDeparture, 0)
	keys = keysOfSorts(store.MaxDeparture)
	w.settles(receipts(w.claim(store.MaxBatch, time.Hour)), store.Ack)()
	for _, key := range keys {
		w.ok(w.s.SetKeyFlow(w.Context(), w.queue, key, store.KeyOverride{Rate: &store.Rate{N: 7, Per: time.Hour}}))
	}
	return keys
}

// ordersOfAllUrgencies sends messages of as many keys with an order.
func (w *worst) ordersOfAllUrgencies() []store.Outgoing {
	w.ok(w.s.SetFlow(w.Context(), w.queue, store.Flow{Urgency: true, Key: store.KeyFlow{Order: store.OrderHalt}}, nil))
	msgs := w.messages(store.MaxDeparture, 1000, nil)
	for i := range msgs {
		msgs[i].Key, msgs[i].Urgency = fmt.Sprintf("key-%060d", i), urgencies[i%3]
	}
	w.send(msgs)
	return msgs
}

func (w *worst) departsKeys(keys []string) func() {
	return func() {
		d, err := w.s.Depart(w.Context(), w.queue, store.Departure{To: w.queue + "to", Keys: keys})
		if w.ok(err); len(d.Busy) > 0 {
			w.Fatalf("%d keys stay", len(d.Busy))
		}
	}
}

// arrivesKeys moves what is in the outbox to a queue with the same flow.
func (w *worst) arrivesKeys() func() {
	p, err := w.s.Outbox(w.Context(), w.queue)
	w.ok(err)
	st, err := w.s.Stats(w.Context(), w.queue)
	w.ok(err)
	w.ok(w.s.SetFlow(w.Context(), p.To, st.Flow.Flow, nil))
	return func() { w.ok(w.s.Arrive(w.Context(), p)) }
}

func (w *worst) expects(e store.Expected) func() {
	return func() {
		_, err := w.s.Expect(w.Context(), w.queue, e)
		w.ok(err)
	}
}

// arrives moves what is in the outbox to a queue that has many messages far ahead.
func (w *worst) arrives() func() {
	p, err := w.s.Outbox(w.Context(), w.queue)
	w.ok(err)
	to := *w
	to.queue = p.To
	to.sends(w.far, 10, func(int) store.Due { return store.Due{Delay: 48 * time.Hour} })
	return func() { w.ok(w.s.Arrive(w.Context(), p)) }
}

func (w *worst) scans() func() {
	return func() {
		for cursor := ""; ; {
			part, err := w.s.Scan(w.Context(), w.queue, cursor)
			w.ok(err)
			if cursor = part.Next; cursor == "" {
				return
			}
		}
	}
}
