package redisstore

import (
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// sorts sends n messages of some keys and has claims sort them. The keys are full if any message is held.
func (w *worst) sorts(n, keys, held int) {
	w.Helper()
	w.ok(w.s.SetFlow(w.Context(), w.queue, store.Flow{Key: store.KeyFlow{Concurrency: 1,
		Rate: store.Rate{N: 1, Per: time.Hour}}}, nil))
	msgs := w.messages(n, 10, nil)
	for i := range msgs {
		msgs[i].Key = fmt.Sprintf("key-%060d", i%keys)
	}
	w.send(msgs)
	for claimed := 0; ; {
		free := min(held-claimed, store.MaxBatch)
		c, err := w.s.Claim(w.Context(), w.queue, store.ClaimRequest{Max: store.MaxBatch, Ahead: store.MaxBatch - free,
			Lease: time.Hour})
		if w.ok(err); len(c.Messages) == 0 && !c.Unsorted {
			return
		}
		claimed += len(c.Messages)
	}
}

// holds has n messages hold keys, in which others wait, after an action, and returns their ids.
func (w *worst) holds(n int, action store.Action) (holders []string) {
	w.Helper()
	w.ok(w.s.SetFlow(w.Context(), w.queue, store.Flow{Key: store.KeyFlow{Order: store.OrderHalt}}, nil))
	for range 2 {
		msgs := w.messages(n, 10, nil)
		for i := range msgs {
			msgs[i].Key = fmt.Sprintf("key-%05d", i)
		}
		w.send(msgs)
	}
	for len(holders) < n {
		c, err := w.s.Claim(w.Context(), w.queue, store.ClaimRequest{Max: store.MaxBatch / 2, Lease: time.Hour})
		w.ok(err)
		held := make([]store.Settlement, len(c.Messages))
		for i, m := range c.Messages {
			holders = append(holders, m.ID)
			held[i] = store.Settlement{Receipt: m.Receipt, Action: action, Delay: time.Millisecond}
		}
		if len(held) > 0 {
			_, err = w.s.Settle(w.Context(), w.queue, held)
			w.ok(err)
		}
	}
	return holders
}

// ready is holds for messages that are ready again and sorted.
func (w *worst) ready(n int) (holders []string) {
	w.Helper()
	holders = w.holds(n, store.Snooze)
	advance(w.rdb)(w, w.queue, time.Second)
	for {
		c, err := w.s.Claim(w.Context(), w.queue, store.ClaimRequest{Max: 1, Ahead: 1, Lease: time.Hour})
		if w.ok(err); !c.Unsorted {
			return holders
		}
	}
}

var worstTurns = []worstCase{
	{"keys", "500 that wait", func(w *worst) func() {
		w.sorts(3000, 600, 0)
		return w.keys(store.KeysRequest{Limit: store.MaxKeysPage})
	}},
	{"keys", "500 with limits", func(w *worst) func() {
		w.sorts(3000, 600, 0)
		one := 1
		for i := range 600 {
			w.ok(w.s.SetKeyFlow(w.Context(), w.queue, fmt.Sprintf("key-%060d", i), store.KeyOverride{Weight: &one}))
		}
		return w.keys(store.KeysRequest{Limit: store.MaxKeysPage, Overridden: true})
	}},
	{"keys", "one of many messages", func(w *worst) func() {
		w.sorts(w.far+3000, 1, 0)
		return w.keys(store.KeysRequest{Limit: 1, Key: fmt.Sprintf("key-%060d", 0)})
	}},
	{"set_flow", "end of turns", func(w *worst) func() {
		w.sorts(3000, 600, 0)
		return func() { w.ok(w.s.SetFlow(w.Context(), w.queue, store.Flow{}, nil)) }
	}},
	{"finish_flow", "end of turns", func(w *worst) func() {
		w.sorts(3000, 600, 0)
		return func() { w.ok(w.s.SetFlow(w.Context(), w.queue, store.Flow{}, nil)) }
	}},
	{"finish_flow", "full and resting keys", func(w *worst) func() {
		w.sorts(3000, 1000, 500)
		return func() { w.ok(w.s.SetFlow(w.Context(), w.queue, store.Flow{Fair: true}, nil)) }
	}},
	{"resume", "one of many", func(w *worst) func() {
		w.holds(600, store.Bury)
		return func() { w.ok(w.s.ResumeKey(w.Context(), w.queue, "key-00007")) }
	}},
	{"keys", "500 that are halted", func(w *worst) func() {
		w.holds(3000, store.Bury)
		return w.keys(store.KeysRequest{Limit: store.MaxKeysPage, Halted: true})
	}},
	{"set_flow", "end of halts", func(w *worst) func() {
		w.holds(3000, store.Bury)
		return func() {
			w.ok(w.s.SetFlow(w.Context(), w.queue, store.Flow{Key: store.KeyFlow{Order: store.OrderContinue}}, nil))
		}
	}},
	{"finish_flow", "end of an order", func(w *worst) func() {
		w.ready(3000)
		return func() { w.ok(w.s.SetFlow(w.Context(), w.queue, store.Flow{Fair: true}, nil)) }
	}},
	{"purge", "everything, with halted keys", func(w *worst) func() {
		w.holds(3000, store.Bury)
		return w.purges("")
	}},
	{"reschedule", "500 ready that hold", func(w *worst) func() {
		list := w.ready(store.MaxBatch)
		return func() {
			_, err := w.s.Reschedule(w.Context(), w.queue, list, store.Due{Delay: time.Hour})
			w.ok(err)
		}
	}},
	{"cancel", "500 that halt keys", func(w *worst) func() {
		return w.cancels(w.holds(store.MaxBatch, store.Bury), false)
	}},
	{"purge", "everything, with turns", func(w *worst) func() {
		w.sorts(3000, 1000, 500)
		return w.purges("")
	}},
	{"check_lanes", "everything", func(w *worst) func() {
		w.sorts(3000, 1000, 500)
		return w.checks()
	}},
	{"recount", "many keys", func(w *worst) func() {
		w.sorts(3000, 1000, 500)
		return w.checks()
	}},
}

func (w *worst) keys(req store.KeysRequest) func() {
	return func() {
		_, err := w.s.Keys(w.Context(), w.queue, req)
		w.ok(err)
	}
}
