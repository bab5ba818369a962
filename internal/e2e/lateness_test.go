package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// onTime is how long a due message may wait on a busy machine while its queue delivers no other. It is shorter than
// the interval of about 5 s at which waiting processes look at the queue in any case, so that it reveals lost
// notifications.
const onTime = 3 * time.Second

// wantOnTime checks that a message came on time, given that the one before it came at before.
func wantOnTime(t *testing.T, id string, due, before, came time.Time) {
	t.Helper()
	since := due
	if before.After(due) {
		since = before // delivered in sequence, as fast as the machine allows
	}
	if came.Before(due) || came.Sub(since) > onTime {
		t.Errorf("message %s came %v after it was due, and %v after the one before it",
			id, came.Sub(due), came.Sub(before))
	}
}

// TestReceiveOneByOneIsOnTime checks that each Receive takes one message and waits again for the others, which are due
// a moment later.
func TestReceiveOneByOneIsOnTime(t *testing.T) {
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
