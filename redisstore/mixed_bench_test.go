package redisstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// BenchmarkMixed measures the cost of a claim and its ack for the server in queues with various other contents: µs per
// message, the tenth with the least disturbance, by INFO commandstats. The queues take turns, so their ratios are
// comparable even on a busy machine.
//
//	go test ./redisstore -run '^$' -bench Mixed -benchtime 300x
func BenchmarkMixed(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	if err := rdb.ConfigSet(b.Context(), "appendonly", "no").Err(); err != nil {
		b.Fatal(err)
	}
	x := &scriptBench{newWith(b, production(), rdb), rdb}
	settled := func(n int, action store.Action) func(queue string) {
		return func(queue string) {
			x.send(b, queue, n, 0)
			settlements := settleAll(x.claim(b, queue, n), action)
			for i := range settlements {
				settlements[i].Delay, settlements[i].Reason = time.Hour, "connection refused"
			}
			x.settle(b, queue, settlements)
		}
	}
	const per = store.MaxBatch
	queues := []struct {
		name   string
		before func(queue string)
		own    int // every so many messages have their own attempts and expiry
	}{
		{name: "clean"},
		{name: "1-dead", before: settled(1, store.Bury)},
		{name: "300-dead", before: settled(300, store.Bury)},
		{name: "1-retry", before: settled(1, store.Nack)},
		{name: "300-retries", before: settled(300, store.Nack)},
		{name: "1%-own", own: 100},
		{name: "all-own", own: 1},
		{name: "1-long", before: func(queue string) {
			m := store.Message{ID: "long", Payload: make([]byte, 100<<10)}
			x.sendAll(b, queue, []store.Outgoing{{Message: m, Due: store.Due{Delay: time.Hour}}})
		}},
	}
	for _, size := range []int{1, per} {
		b.Run(fmt.Sprint("by ", size), func(b *testing.B) {
			times := make([][]float64, len(queues))
			name := func(i int) string { return fmt.Sprintf("mixed-%d-%s-%d", size, queues[i].name, b.N) }
			for i, q := range queues {
				if q.before != nil {
					q.before(name(i))
				}
			}
			for range b.N {
				for i, q := range queues {
					x.sendAll(b, name(i), newMessages(per, q.own))
					whole := store.Claim{}
					before := x.scriptMicros(b)
					if whole = x.claim(b, name(i), per); size == per {
						x.settle(b, name(i), settleAll(whole, store.Ack))
						times[i] = append(times[i], (x.scriptMicros(b)-before)/per)
						continue
					}
					before = x.scriptMicros(b)
					x.settle(b, name(i), settleAll(whole, store.Ack)[per/2:per/2+1])
					times[i] = append(times[i], x.scriptMicros(b)-before)
					x.settle(b, name(i), slices.Delete(settleAll(whole, store.Ack), per/2, per/2+1))
				}
			}
			for i, q := range queues {
				slices.Sort(times[i])
				b.ReportMetric(times[i][len(times[i])/10], q.name+"-µs/msg")
				if err := x.s.Delete(b.Context(), name(i)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func newMessages(n, own int) []store.Outgoing {
	msgs := make([]store.Outgoing, n)
	for i := range msgs {
		msgs[i].Message = store.Message{ID: store.NewID(), Payload: make([]byte, 100)}
		if own > 0 && i%own == 0 {
			msgs[i].MaxAttempts, msgs[i].ExpireAfter = 7, time.Hour
		}
	}
	return msgs
}

func settleAll(c store.Claim, action store.Action) []store.Settlement {
	settlements := make([]store.Settlement, len(c.Messages))
	for i, m := range c.Messages {
		settlements[i] = store.Settlement{Receipt: m.Receipt, Action: action}
	}
	return settlements
}

func (x *scriptBench) sendAll(b *testing.B, queue string, msgs []store.Outgoing) {
	if _, err := x.s.Send(b.Context(), queue, msgs); err != nil {
		b.Fatal(err)
	}
}

func (x *scriptBench) claim(b *testing.B, queue string, n int) store.Claim {
	c, err := x.s.Claim(b.Context(), queue, store.ClaimRequest{Max: n, Lease: time.Hour})
	if err != nil || len(c.Messages) != n {
		b.Fatal(err, len(c.Messages))
	}
	return c
}

func (x *scriptBench) settle(b *testing.B, queue string, settlements []store.Settlement) {
	if results, err := x.s.Settle(b.Context(), queue, settlements); err != nil || results[0].Err != nil {
		b.Fatal(results, err)
	}
}
