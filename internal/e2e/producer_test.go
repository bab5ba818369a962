package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/laterq/later"
)

// producer is the role of a process that sends in various ways, as fast as it can, until it is killed. It reports each
// message after the send was acknowledged.
type producer struct {
	URL   string
	Queue string
	Name  string // prefix of its message ids
}

func (p producer) run() error {
	ctx := context.Background()
	client, err := later.Open(ctx, p.URL)
	if err != nil {
		return err
	}
	q := client.Queue(p.Queue)
	failures := make(chan error)
	var sending sync.WaitGroup
	for i := range 4 { // concurrently, so that sends are batched
		sending.Go(func() {
			for n := 0; ; n++ {
				if err := sendInOneWay(ctx, q, fmt.Sprintf("%s-%d-%d", p.Name, i, n), n); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	return <-failures
}

// sendInOneWay sends in the n-th of the possible ways. About half of the messages are due now, the rest within an hour.
func sendInOneWay(ctx context.Context, q *later.Queue, id string, n int) (err error) {
	when := later.In(time.Duration(rand.IntN(2)) * rand.N(time.Hour))
	var ids []string
	switch n % 4 {
	case 0:
		id, err = q.Send(ctx, []byte("with a generated id"), when)
		ids = append(ids, id)
	case 1:
		_, err = q.Send(ctx, make([]byte, rand.IntN(10_000)), when, later.WithID(id))
		ids = append(ids, id)
	case 2:
		_, err = q.Send(ctx, nil, when, later.WithID(id), later.Header("a", "b"), later.MaxAttempts(3),
			later.ExpireAfter(24*time.Hour), later.DedupWindow(time.Hour))
		ids = append(ids, id)
	case 3:
		msgs := make([]later.Outgoing, 1+rand.IntN(50))
		for i := range msgs {
			msgs[i] = later.Outgoing{ID: fmt.Sprintf("%s-%d", id, i), Payload: []byte("in a batch"), When: when}
			ids = append(ids, msgs[i].ID)
		}
		_, err = q.SendBatch(ctx, msgs)
	}
	if err != nil {
		return err
	}
	for _, id := range ids {
		report(event{Kind: later.EventSent, ID: id})
	}
	return nil
}
