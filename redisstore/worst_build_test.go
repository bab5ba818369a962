package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// worst builds the most expensive calls that the limits of the contract allow.
type worst struct {
	testing.TB
	s     *Store
	rdb   *redis.Client
	queue string
	far   int // messages of a queue with messages due far ahead
	many  int // leases
	n     int
}

func (w *worst) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// id returns an id of the greatest length.
func (w *worst) id() string {
	w.n++
	id := fmt.Sprintf("%s-%d-", w.queue, w.n)
	return id + strings.Repeat("x", store.MaxID-len(id))
}

// messages returns n messages with payloads of so many bytes, all with the most expensive properties.
func (w *worst) messages(n, size int, due func(i int) store.Due) []store.Outgoing {
	msgs := make([]store.Outgoing, n)
	payload := bytes.Repeat([]byte("p"), size)
	for i := range msgs {
		msgs[i] = store.Outgoing{Message: store.Message{ID: w.id(), Payload: payload, MaxAttempts: 9,
			DedupWindow: time.Hour, ExpireAfter: time.Hour, Group: "group"}}
		if due != nil {
			msgs[i].Due = due(i)
		}
	}
	return msgs
}

func ids(msgs []store.Outgoing) []string {
	list := make([]string, len(msgs))
	for i := range msgs {
		list[i] = msgs[i].ID
	}
	return list
}

func (w *worst) send(msgs []store.Outgoing) {
	w.Helper()
	_, err := w.s.Send(w.Context(), w.queue, msgs)
	w.ok(err)
}

// sends sends n messages, as many at a time as fit.
func (w *worst) sends(n, size int, due func(i int) store.Due) (all []store.Outgoing) {
	for n > 0 {
		some := min(n, store.MaxBatch, max(1, store.MaxBatchBytes/max(size, 1)))
		msgs := w.messages(some, size, due)
		w.send(msgs)
		all = append(all, msgs...)
		n -= some
	}
	return all
}

func (w *worst) claim(max int, lease time.Duration) store.Claim {
	w.Helper()
	c, err := w.s.Claim(w.Context(), w.queue, store.ClaimRequest{Max: max, Lease: lease})
	w.ok(err)
	return c
}

// fail gives n messages a record of the greatest length.
func (w *worst) fail(n, size int, action store.Action) {
	for left := n; left > 0; {
		w.sends(min(left, store.MaxBatch), size, nil)
		left -= store.MaxBatch
	}
	for range store.MaxFailures {
		for done := 0; done < n; {
			c := w.claim(store.MaxBatch, time.Hour)
			if len(c.Messages) == 0 {
				w.Fatal("nothing to claim")
			}
			var settle []store.Settlement
			for _, m := range c.Messages {
				settle = append(settle, store.Settlement{Receipt: m.Receipt, Action: action,
					Reason: strings.Repeat("r", store.MaxReason)})
			}
			_, err := w.s.Settle(w.Context(), w.queue, settle)
			w.ok(err)
			done += len(settle)
		}
		if action == store.Bury {
			return
		}
	}
}

// receipts drops the hints that make settling cheap, as happens when another process settles.
func receipts(c store.Claim) []store.Receipt {
	var list []store.Receipt
	for _, m := range c.Messages {
		m.Receipt.Claim, m.Receipt.Index = nil, 0
		list = append(list, m.Receipt)
	}
	return list
}

// leases claims n leases of 500.
func (w *worst) leases(n int) (held [][]store.Receipt) {
	for range n {
		w.sends(store.MaxBatch, 10, nil)
		held = append(held, receipts(w.claim(store.MaxBatch, time.Hour)))
	}
	return held
}

func (w *worst) settles(held []store.Receipt, a store.Action) func() {
	return func() {
		var list []store.Settlement
		for _, r := range held {
			list = append(list, store.Settlement{Receipt: r, Action: a, Reason: strings.Repeat("r", store.MaxReason),
				DedupWindow: time.Hour, Grouped: true})
		}
		_, err := w.s.Settle(w.Context(), w.queue, list)
		w.ok(err)
	}
}

// scattered returns due times at random within a minute, far ahead.
func scattered(int) store.Due {
	return store.Due{At: time.Now().Add(48*time.Hour + time.Duration(rand.Int64N(int64(time.Minute))))}
}

const fullPayload = store.MaxBatchBytes/store.MaxBatch - 100

// travel moves the queue's clock.
func (w *worst) travel(d time.Duration) { advance(w.rdb)(w.TB, w.queue, d) }

func (w *worst) headers() {
	for range store.MaxBatch {
		m := w.messages(1, 10, nil)
		m[0].Headers = map[string]string{}
		for i := range store.MaxHeaders {
			m[0].Headers[fmt.Sprint("header-", i)] = "value"
		}
		w.send(m)
	}
}

func (w *worst) extends(held [][]store.Receipt) func() {
	return func() {
		var list []store.Extension
		for _, lease := range held {
			list = append(list, store.Extension{Lease: lease[0].Lease, For: time.Hour})
		}
		_, err := w.s.Extend(w.Context(), w.queue, list)
		w.ok(err)
	}
}

func (w *worst) cancels(list []string, keep bool) func() {
	return func() {
		_, err := w.s.Cancel(w.Context(), w.queue, store.CancelRequest{IDs: list, KeepIDs: keep})
		w.ok(err)
	}
}

func (w *worst) gets(list []string) func() {
	return func() {
		_, err := w.s.Get(w.Context(), w.queue, list)
		w.ok(err)
	}
}

func (w *worst) list(state store.State) (list []string) {
	for req := (store.ListRequest{State: state, Limit: store.MaxBatch}); ; {
		page, err := w.s.List(w.Context(), w.queue, req)
		w.ok(err)
		for _, m := range page.Messages {
			list = append(list, m.ID)
		}
		if req.Cursor = page.Next; req.Cursor == "" || len(list) >= store.MaxBatch {
			return list[:min(len(list), store.MaxBatch)]
		}
	}
}

func (w *worst) lists(req store.ListRequest) func() {
	req.Limit = store.MaxBatch
	return func() {
		for range 20 {
			page, err := w.s.List(w.Context(), w.queue, req)
			w.ok(err)
			if req.Cursor = page.Next; req.Cursor == "" {
				return
			}
		}
	}
}

func (w *worst) purges(state store.State) func() {
	return func() {
		sel := store.Selection{State: state}
		for range 3 {
			bulk, err := w.s.Purge(w.Context(), w.queue, sel)
			w.ok(err)
			sel.Before = bulk.Before
		}
	}
}

func (w *worst) removes(list []string) func() {
	infos, err := w.s.Get(w.Context(), w.queue, list)
	w.ok(err)
	var all []store.Info
	for _, in := range infos {
		all = append(all, *in)
	}
	return func() {
		_, err := w.s.Remove(w.Context(), w.queue, all)
		w.ok(err)
	}
}

func (w *worst) forwards(kind store.TargetKind) func() {
	to := store.Target{Kind: kind, Name: w.queue + "-to"}
	return func() {
		_, err := w.s.Forward(w.Context(), w.queue, store.ForwardRequest{To: to, Max: store.MaxBatch, IDs: true})
		w.ok(err)
	}
}

func (w *worst) checks() func() {
	return func() {
		x := &checkRun{s: w.s, report: func(store.CheckResult) {}, repair: true}
		w.ok(x.queue(context.WithoutCancel(w.Context()), w.queue))
	}
}
