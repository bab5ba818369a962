package e2e

import (
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

func TestConsumerOutageLosesNothing(t *testing.T) {
	t.Parallel()
	srv, j := redistest.Start(t, redistest.Args("--appendfsync", "always")), newJournal()
	c := open(t, srv.URL())
	q := c.Queue(newQueueName(t))
	role := consumer{URL: srv.URL(), Queues: []string{q.Name()}}
	first := startConsumer(t, j, "first", role)
	id := send(t, q, doNothing)
	j.await(t, 1, event{Kind: later.EventAcked, ID: id})
	first.drain()

	// Some messages fell due hours ago, some fall due while the server is down, and some after it is back.
	const each = 100
	sendWith := func(when later.When) {
		msgs := make([]later.Outgoing, each)
		for i := range msgs {
			msgs[i].When = when
		}
		sendBatch(t, q, msgs)
	}
	sendWith(later.At(time.Now().Add(-5 * time.Hour)))
	sendWith(later.In(time.Millisecond))
	sendWith(later.In(time.Second))
	srv.Kill()
	srv.Restart(t)
	sendWith(later.At(time.Now().Add(-time.Hour)))

	second := startConsumer(t, j, "second", role)
	j.await(t, 4*each, event{From: "second", Kind: later.EventAcked})
	second.drain()
	j.wantOnce(t, 1+4*each)
	wantEmpty(t, q, srv.Client(t), 0)
}
