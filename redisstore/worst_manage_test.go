package redisstore

import (
	"time"

	"github.com/laterq/later/store"
)

var worstByMessage = []worstCase{
	{"cancel", "500 far ahead of 16 KiB", func(w *worst) func() {
		var list []string
		for range 2 {
			list = append(list, ids(w.sends(store.MaxBatch/2, 16<<10-200, scattered))...)
		}
		return w.cancels(list, false)
	}},
	{"cancel", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 100, store.Bury)
		return w.cancels(w.list(store.StateDead), false)
	}},
	{"cancel", "500 leased", func(w *worst) func() {
		var list []string
		for _, r := range w.leases(1)[0] {
			list = append(list, r.ID)
		}
		return w.cancels(list, false)
	}},
	{"cancel", "64 of 1 MiB, keeping ids", func(w *worst) func() {
		return w.cancels(ids(w.sends(64, store.MaxPayload, nil)), true)
	}},
	{"reschedule", "500 far ahead of 16 KiB", func(w *worst) func() {
		list := ids(w.sends(store.MaxBatch, 16<<10-200, scattered))
		return func() {
			_, err := w.s.Reschedule(w.Context(), w.queue, list, store.Due{})
			w.ok(err)
		}
	}},
	{"get", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 1000, store.Bury)
		return w.gets(w.list(store.StateDead))
	}},
	{"get", "4 of 1 MiB", func(w *worst) func() {
		return w.gets(ids(w.sends(8, store.MaxPayload, nil)))
	}},
	{"get", "500 far ahead of 8 KiB", func(w *worst) func() {
		return w.gets(ids(w.sends(store.MaxBatch, fullPayload, scattered)))
	}},
	{"find_leases", "500 of the last of many leases of 500", func(w *worst) func() {
		held := w.leases(w.many)
		var list []string
		for _, r := range held[w.many-1] {
			list = append(list, r.ID)
		}
		return w.gets(list)
	}},
	{"find_leases", "500 of 500 leases of one", func(w *worst) func() {
		list := ids(w.sends(store.MaxBatch, 10, nil))
		for range list {
			w.claim(1, time.Hour)
		}
		return w.gets(list)
	}},
	{"leases", "leases of 500", func(w *worst) func() {
		w.leases(w.many)
		return w.lists(store.ListRequest{State: store.StateLeased})
	}},
	{"list", "500 of 8 KiB", func(w *worst) func() {
		w.sends(store.MaxBatch, fullPayload, nil)
		return w.lists(store.ListRequest{State: store.StateReady})
	}},
	{"list", "4 of 1 MiB", func(w *worst) func() {
		w.sends(8, store.MaxPayload, nil)
		return w.lists(store.ListRequest{State: store.StateReady})
	}},
	{"list", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 1000, store.Bury)
		return w.lists(store.ListRequest{State: store.StateDead})
	}},
	{"list", "500 far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		w.sends(1000, 10, func(int) store.Due { return store.Due{Delay: 30 * time.Minute} })
		return w.lists(store.ListRequest{State: store.StateScheduled})
	}},
	{"group", "500 of many", func(w *worst) func() {
		w.sends(w.far, 10, nil)
		return w.lists(store.ListRequest{Group: "group"})
	}},
	{"group", "ids of 4 of 1 MiB", func(w *worst) func() {
		w.sends(4, store.MaxPayload, nil)
		return w.lists(store.ListRequest{Group: "group", IDsOnly: true})
	}},
	{"replay", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 100, store.Bury)
		return func() {
			_, err := w.s.Replay(w.Context(), w.queue, store.Selection{State: store.StateDead}, store.Due{})
			w.ok(err)
		}
	}},
	{"purge", "500 dead with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, fullPayload, store.Bury)
		return w.purges(store.StateDead)
	}},
	{"purge", "500 far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		return w.purges(store.StateScheduled)
	}},
	{"purge", "everything", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		w.leases(10)
		return w.purges(store.StateNone)
	}},
	{"remove", "4 MiB far ahead", func(w *worst) func() {
		return w.removes(ids(w.sends(store.MaxBatch, fullPayload, scattered)))
	}},
	{"remove", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 5000, store.Bury)
		return w.removes(w.list(store.StateDead))
	}},
}
