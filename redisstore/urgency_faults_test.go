package redisstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// The key and the class of a message are read from its envelope, also when that is damaged.
func TestTruncatedEnvelopesStopNoClaim(t *testing.T) {
	q := newLimitedQueue(t, "truncated envelopes", store.Flow{Fair: true})
	m := store.Message{ID: "a", Key: "key", Group: "group", Urgency: store.UrgencyHigh, Payload: []byte("payload")}
	grouped := envelope.Append(nil, &m)
	m.Group = ""
	sent := 0
	for _, text := range [][]byte{grouped, envelope.Append(nil, &m)} {
		for n := range text {
			id := fmt.Sprint(sent)
			q.sendAs(store.UrgencyNormal, "key", id)
			q.ok(q.rdb.HSet(t.Context(), q.key("messages"), id, text[:n]).Err())
			sent++
		}
	}
	claimed := 0
	for range 20 {
		msgs := claim(t, q.s, q.queue, 20, time.Minute).Messages
		claimed += len(msgs)
		q.ack(msgs)
	}
	if left := q.rdb.ZCard(t.Context(), q.key("due")).Val(); left > 0 {
		t.Errorf("%d of %d messages are left, %d were claimed", left, sent, claimed)
	}
}

// A process that only sends urgent messages rebuilds a lost registry, as every other process that sends.
func TestUrgentSendsRegisterTheQueue(t *testing.T) {
	q := newLimitedQueue(t, "urgent and not registered", urgent)
	for _, once := range []*store.Once{nil, store.NewOnce([]byte("k"), nil)} {
		q.ok(q.rdb.SRem(t.Context(), q.s.keys.registry(), q.queue).Err())
		q.s.registered.Delete(q.queue)
		m := store.Message{ID: fmt.Sprint("once ", once != nil), Urgency: store.UrgencyHigh}
		_, err := q.s.Send(t.Context(), q.queue, []store.Outgoing{{Message: m, Once: once}})
		q.ok(err)
		names, err := q.rdb.SMembers(t.Context(), q.s.keys.registry()).Result()
		q.ok(err)
		if !slices.Contains(names, q.queue) {
			t.Errorf("once %v: the send has not registered the queue", once != nil)
		}
	}
}

// A purge of a queue without an order leaves the entries of its messages in lanes. They must not decide in which class
// a key waits when the queue gets an order.
func TestPurgedMessagesHaveNoClassInAnOrder(t *testing.T) {
	for _, n := range []int{2, 1100} {
		q := newLimitedQueue(t, "purged before an order", urgent)
		q.sendMany(n/2, "k")
		var msgs []store.Outgoing
		for i := range n / 2 {
			msgs = append(msgs, store.Outgoing{Message: store.Message{
				ID: fmt.Sprintf("low%03d", i), Key: "k", Urgency: store.UrgencyLow}})
		}
		_, err := q.s.Send(t.Context(), q.queue, msgs)
		q.ok(err)
		q.advance(time.Second)
		for range 8 {
			q.sortReady()
		}
		for sel, more := (store.Selection{State: store.StateReady}), true; more; {
			b, err := q.s.Purge(t.Context(), q.queue, sel)
			q.ok(err)
			sel.Before, more = b.Before, b.More
		}
		if left := q.entries("lanes"); left < int64(n) {
			t.Fatalf("the purge has left %d entries, want %d", left, n)
		}
		q.set(store.Flow{Urgency: true, Key: store.KeyFlow{Order: store.OrderContinue}})
		q.sendAs(store.UrgencyHigh, "k", "h")
		q.sortReady()
		q.turns(nil, []string{"k"}, nil)
		q.claimOne("h")
	}
}

// The same entries must not decide it either when a queue that has an order already gets urgencies.
func TestPurgedMessagesHaveNoClassWhenUrgencyBegins(t *testing.T) {
	q := newLimitedQueue(t, "purged before an order and urgencies", store.Flow{Fair: true})
	q.sendMany(500, "k")
	q.advance(time.Second)
	q.sortReady()
	for sel, more := (store.Selection{State: store.StateReady}), true; more; {
		b, err := q.s.Purge(t.Context(), q.queue, sel)
		q.ok(err)
		sel.Before, more = b.Before, b.More
	}
	if q.entries("lanes") == 0 {
		t.Fatal("the purge has left no entries")
	}
	ordered := store.Flow{Key: store.KeyFlow{Order: store.OrderContinue}}
	q.set(ordered)
	q.set(store.Flow{Urgency: true, Key: ordered.Key})
	q.sendAs(store.UrgencyHigh, "k", "h")
	q.turns(nil, []string{"k"}, nil)
	q.claimOne("h")
}
