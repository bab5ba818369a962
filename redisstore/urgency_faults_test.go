package redisstore

import (
	"fmt"
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
