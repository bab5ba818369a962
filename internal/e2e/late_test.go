package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// onTime is how long a message that is due may wait while its queue gives no other, on a busy machine. It is below the interval,
// of some 5 s, at which waiting processes look whatever they have heard, so that no wake-up that got lost can hide behind that.
const onTime = 3 * time.Second

// wantOnTime checks when a message came that nothing came before since then.
func wantOnTime(t *testing.T, id string, due, before, came time.Time) {
	t.Helper()
	since := due
	if before.After(due) {
		since = before // one after the other, as fast as this machine is
	}
	if came.Before(due) || came.Sub(since) > onTime {
		t.Errorf("message %s came %v after it was due, and %v after the one before it", id, came.Sub(due), came.Sub(before))
	}
}

// TestMessagesReceivedOneByOneAreOnTime: each Receive takes one and leaves the others, which are due a moment
// later, to be waited for anew.
func TestMessagesReceivedOneByOneAreOnTime(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	q := open(t, srv.URL()).Queue(newQueueName(t))
	due := map[string]time.Time{}
	var msgs []later.Outgoing
	first := time.Now().Add(100 * time.Millisecond)
	for i := range 500 {
		id := fmt.Sprint("m", i)
		due[id] = first.Add(time.Duration(i) * 2 * time.Millisecond)
		msgs = append(msgs, later.Outgoing{ID: id, When: later.At(due[id])})
	}
	sendBatch(t, q, msgs)
	for range msgs {
		before := time.Now()
		d := receive(t, q, 1)[0]
		wantOnTime(t, d.ID, due[d.ID], before, time.Now())
		if err := d.Ack(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
	wantEmpty(t, q, srv.Client(t), 0)
}
