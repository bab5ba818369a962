package redisstore

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

var worstByQueue = []worstCase{
	{"histogram", "500 parts", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		bounds := make([]time.Time, store.MaxBuckets+1)
		for i := range bounds {
			bounds[i] = time.Now().Add(48*time.Hour + time.Duration(i)*time.Minute/store.MaxBuckets)
		}
		return func() {
			_, err := w.s.Histogram(w.Context(), w.queue, bounds)
			w.ok(err)
		}
	}},
	{"stats", "far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		return func() {
			_, err := w.s.Stats(w.Context(), w.queue)
			w.ok(err)
		}
	}},
	{"delete", "everything", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		w.leases(10)
		return func() { w.ok(w.s.Delete(w.Context(), w.queue)) }
	}},
	{"forward", "500 of 8 KiB to a stream", func(w *worst) func() {
		w.sends(store.MaxBatch, fullPayload, nil)
		return w.forwards(store.TargetStream)
	}},
	{"forward", "500 with 64 headers to a stream", func(w *worst) func() {
		w.headers()
		return w.forwards(store.TargetStream)
	}},
	{"forward", "500 with 64 headers to a list", func(w *worst) func() {
		w.headers()
		return w.forwards(store.TargetList)
	}},
	{"forward", "500 of 8 KiB to a queue", func(w *worst) func() {
		w.sends(store.MaxBatch, fullPayload, nil)
		return w.forwards(store.TargetQueue)
	}},
	{"forward", "4 of 1 MiB to a queue", func(w *worst) func() {
		w.sends(8, store.MaxPayload, nil)
		return w.forwards(store.TargetQueue)
	}},
	{"forward", "4 of 1 MiB to a list", func(w *worst) func() {
		w.sends(8, store.MaxPayload, nil)
		return w.forwards(store.TargetList)
	}},
	{"lost", "many leased", func(w *worst) func() {
		w.leases(w.many)
		w.ok(w.rdb.HSet(w.Context(), w.s.keys.of(w.queue).args[1].(string), "lost", "\x00").Err())
		return w.checks()
	}},
	{"recount", "many leased", func(w *worst) func() {
		w.ok(w.s.SetFlow(w.Context(), w.queue, wideFlow, nil))
		w.leases(w.many)
		return w.checks()
	}},
	{"check", "everything", func(w *worst) func() {
		w.sends(2000, fullPayload, nil)
		w.sends(20000, 10, scattered)
		w.fail(store.MaxBatch, 1000, store.Bury)
		w.leases(20)
		return w.checks()
	}},
	{"check", "1 MiB each", func(w *worst) func() {
		w.sends(20, store.MaxPayload, nil)
		return w.checks()
	}},
	{"set_properties", "500 of 4 KiB", func(w *worst) func() {
		set := map[string]string{}
		for i := range store.MaxBatch {
			set[fmt.Sprint(i)] = strings.Repeat("v", store.MaxPropertyValue)
		}
		return func() { w.ok(w.s.SetProperties(w.Context(), w.queue, set, nil)) }
	}},
	{"report", "32 kinds and 256 KiB", func(w *worst) func() {
		counts := map[store.EventKind]int64{}
		for i := range store.MaxEventKinds {
			counts[store.EventKind(strings.Repeat("k", 28)+string(rune('a'+i/26))+string(rune('a'+i%26)))] = 1 << 40
		}
		w.sends(1, 1, nil)
		return func() {
			_, err := w.s.Report(w.Context(), []store.Report{{Queue: w.queue, Counts: counts,
				Events: bytes.Repeat([]byte("e"), store.MaxEventBytes)}})
			w.ok(err)
		}
	}},
}
