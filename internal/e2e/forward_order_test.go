package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// Without an observer a worker makes two calls at a time. A list has all messages in the order of their due times all
// the same.
func TestForwardedBacklogIsInOrder(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	rdb := server.Client(t)
	c := open(t, server.URL())
	queue, list := newQueueName(t), "list of "+newQueueName(t)
	const messages = 20_000
	begin := time.Now().Add(-time.Hour)
	msgs := make([]later.Outgoing, messages)
	for i := range msgs {
		at := later.At(begin.Add(time.Duration(i) * time.Millisecond))
		msgs[messages-1-i] = later.Outgoing{Payload: fmt.Append(nil, i), When: at}
	}
	sendBatch(t, c.Queue(queue), msgs)
	ctx, stop := context.WithCancel(bounded(t))
	defer stop()
	w := later.NewWorker(c, later.WorkerConfig{})
	w.Forward(queue, later.ToList(list).ExactlyOnce())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for i := range messages {
		reply, err := rdb.BLPop(ctx, 0, list).Result()
		if err != nil {
			t.Fatal(err)
		}
		if reply[1] != fmt.Sprint(i) {
			t.Fatalf("element %d is %q", i, reply[1])
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := rdb.LLen(bounded(t), list).Val(); n != 0 {
		t.Errorf("%d elements are left", n)
	}
}
