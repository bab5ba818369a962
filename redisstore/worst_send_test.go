package redisstore

import (
	"fmt"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

var worstSends = []worstCase{
	{"send", "500 of 8 KiB", func(w *worst) func() {
		w.sends(500, 10, nil)
		msgs := w.messages(store.MaxBatch, fullPayload, nil)
		return func() { w.send(msgs) }
	}},
	{"send", "500 duplicates of 8 KiB", func(w *worst) func() {
		msgs := w.sends(store.MaxBatch, fullPayload, nil)
		return func() { w.send(msgs) }
	}},
	{"send", "4 of 1 MiB", func(w *worst) func() {
		msgs := w.messages(4, store.MaxPayload, nil)
		return func() { w.send(msgs) }
	}},
	{"send", "500 far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		msgs := w.messages(store.MaxBatch, fullPayload, scattered)
		return func() { w.send(msgs) }
	}},
	{"pack", "far ahead", func(w *worst) func() { return w.unpacked(store.MaxBatch, 10) }},
	{"pack", "16 KiB far ahead", func(w *worst) func() { return w.unpacked(200, 16<<10-400) }},
	{"restore", "500 with failures, far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		infos := make([]store.Info, store.MaxBatch)
		for i, m := range w.messages(store.MaxBatch, 1000, scattered) {
			infos[i] = store.Info{Message: m.Message, State: store.StateScheduled, Due: m.Due.At, Attempts: 5,
				LastError: strings.Repeat("r", store.MaxReason)}
			for range store.MaxFailures {
				infos[i].Failures = append(infos[i].Failures,
					store.Failure{Attempt: 5, Error: strings.Repeat("r", 256)})
			}
		}
		return func() {
			_, err := w.s.Restore(w.Context(), w.queue, infos)
			w.ok(err)
		}
	}},
	{"collapse", "64 of 16 KiB far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		msgs := w.sends(64, 16<<10-400, scattered)
		for i := range msgs {
			msgs[i].OnDuplicate.Mode, msgs[i].Due = store.DuplicateReplace, scattered(i)
		}
		return func() { w.send(msgs) }
	}},
	{"collapse", "2 of 1 MiB", func(w *worst) func() {
		msgs := w.sends(2, store.MaxPayload, nil)
		for i := range msgs {
			msgs[i].OnDuplicate.Mode = store.DuplicateReplace
		}
		return func() { w.send(msgs) }
	}},
	{"ack_then", "500 far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		return w.follows(store.MaxBatch, 1, 1, 100, scattered)
	}},
	{"ack_then", "500 of one message, far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		return w.follows(1, 1, store.MaxBatch, 100, scattered)
	}},
	{"ack_then", "500 of 8 KiB", func(w *worst) func() { return w.follows(store.MaxBatch, 1, 1, fullPayload, nil) }},
	{"ack_then", "of one message in 64 queues", func(w *worst) func() {
		return w.follows(1, store.MaxFollowUpQueues, 1, store.MaxFollowUpBytes/store.MaxFollowUpQueues, scattered)
	}},
	{"ack_then", "of 7 messages in 64 queues", func(w *worst) func() {
		return w.follows(7, store.MaxFollowUpQueues, 1, 2000, scattered)
	}},
}

// unpacked packs messages that are due far ahead and are not packed yet, because they were sent to be due earlier.
func (w *worst) unpacked(n, size int) func() {
	w.sends(w.far, 10, scattered)
	for i, m := range w.sends(n, size, func(int) store.Due { return store.Due{Delay: time.Minute} }) {
		_, err := w.s.Reschedule(w.Context(), w.queue, []string{m.ID}, scattered(i))
		w.ok(err)
	}
	return func() { w.s.pack(w.Context(), w.queue) }
}

// follows acks messages which have follow-ups in so many queues each.
func (w *worst) follows(messages, queues, each, size int, due func(int) store.Due) func() {
	to := &worst{TB: w.TB, s: w.s, queue: w.queue + "-to"}
	w.sends(messages, 10, func(int) store.Due { return store.Due{Delay: -time.Hour} })
	var list []store.Settlement
	for _, m := range w.claim(messages, time.Hour).Messages {
		st := store.Settlement{Receipt: m.Receipt, Action: store.Ack, DedupWindow: time.Hour, Grouped: true}
		for q := range queues {
			for _, follow := range to.messages(each, size, due) {
				st.Then = append(st.Then, store.FollowUp{Queue: fmt.Sprint(w.queue, "-to-", q), Message: follow})
			}
		}
		list = append(list, st)
	}
	return func() {
		results, err := w.s.Settle(w.Context(), w.queue, list)
		w.ok(err)
		for _, r := range results {
			w.ok(r.Err)
		}
	}
}
