package e2e

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// onSharedStores runs a test with two clients of a Redis, and of an embedded store where the second one is not the one
// that has it open.
func onSharedStores(t *testing.T, test func(t *testing.T, a, b *later.Client)) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"redis":    func(t *testing.T) string { return redistest.Shared(t).URL() },
		"embedded": func(t *testing.T) string { return "file://" + t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := url(t)
			test(t, open(t, at), open(t, at))
		})
	}
}

// threeQueues returns new queues.
func threeQueues(t *testing.T) (queues []later.ReceiveQueue) {
	for range 3 {
		queues = append(queues, later.ReceiveQueue{Name: newQueueName(t)})
	}
	return queues
}

// TestOneReceiveIsWokenByAnyOfItsQueues has each client wait for the messages of the other one, which sends some of
// them at once.
func TestOneReceiveIsWokenByAnyOfItsQueues(t *testing.T) {
	onSharedStores(t, func(t *testing.T, a, b *later.Client) {
		queues := threeQueues(t)
		for round := range 12 {
			receiver, sender := a, b
			if round%2 == 1 {
				receiver, sender = b, a
			}
			came := make(chan time.Time, 1)
			go func() {
				got, err := receiver.Receive(bounded(t), 1, queues)
				came <- time.Now()
				if err != nil || len(got) != 1 || got[0].Queue != queues[round%3].Name {
					t.Errorf("%v, %v", got, err)
				} else if err := got[0].Ack(bounded(t)); err != nil {
					t.Error(err)
				}
				close(came)
			}()
			delay := time.Duration(round) * 20 * time.Millisecond
			due := time.Now().Add(delay)
			send(t, sender.Queue(queues[round%3].Name), "", later.In(delay))
			if late := (<-came).Sub(due); late > onTime {
				t.Errorf("round %d: the message came %v late", round, late)
			}
			<-came
		}
	})
}

// TestReceiveHoldsNothingForACallerWhoIsGone ends calls while messages are sent to their queues.
func TestReceiveHoldsNothingForACallerWhoIsGone(t *testing.T) {
	onSharedStores(t, func(t *testing.T, a, b *later.Client) {
		queues := threeQueues(t)
		ended := 0
		for round := range 60 {
			ctx, cancel := context.WithCancel(bounded(t))
			var calls sync.WaitGroup
			var got []*later.Delivery
			calls.Go(func() {
				var err error
				if got, err = b.Receive(ctx, 10, queues, later.Lease(time.Hour)); err != nil &&
					!errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			calls.Go(func() {
				for _, q := range queues {
					send(t, a.Queue(q.Name), "")
				}
			})
			time.AfterFunc(time.Duration(round%20)*time.Millisecond/4, cancel)
			calls.Wait()
			cancel()
			if len(got) == 0 {
				ended++
			}
			for len(got) < len(queues) {
				more, err := a.Receive(bounded(t), 10, queues)
				if err != nil {
					t.Fatalf("round %d: nobody has got %d messages, and they are held: %v", round, len(queues)-len(got),
						err)
				}
				got = append(got, more...)
			}
			for _, d := range got {
				if err := d.Ack(bounded(t)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if ended == 0 {
			t.Error("no call was ended before it received a message")
		}
	})
}
