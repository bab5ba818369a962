package pagetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// heldStore counts the messages of some queues slowly, and of the others once open is closed.
type heldStore struct {
	store.Store
	counted atomic.Int64
	open    chan struct{}
}

func (s *heldStore) Histogram(ctx context.Context, queue string, bounds []time.Time) ([]int64, error) {
	first := s.counted.Add(1) <= 16
	select {
	case <-s.open:
	case <-time.After(100 * time.Millisecond): // longer than a server reads before it shows what it has
		if !first {
			<-s.open
		}
	}
	return s.Store.Histogram(ctx, queue, bounds)
}

// While a server reads many queues for the first time, the page has the ones that were read, and the messages.
func TestPageShowsQueuesWhileOthersAreRead(t *testing.T) {
	t.Parallel()
	slow := &heldStore{Store: memstore.New(), open: make(chan struct{})}
	client, err := later.New(slow)
	if err != nil {
		t.Fatal(err)
	}
	s := newSiteOf(t, client, "", "")
	for n := range 40 {
		s.send(fmt.Sprintf("queue-%02d", n), "hello", later.In(time.Hour), later.WithID(fmt.Sprintf("m-%02d", n)))
	}
	b := s.open("/")
	b.see("header", "40 queues read so far")
	b.see(".reading", "The chart appears")
	b.see(".queues li", "queue-39")
	b.see(".rows td.id", "m-07")
	b.checkAccess()
	queues := s.open("/?view=queues")
	queues.see("header", "40 queues")
	queues.see("tbody", "queue-11")
	close(slow.open)
	b.see(".horizon", "all")
	b.see(".figures", "40")
	b.gone(".reading")
	b.see(".messages nav b", "40")
	queues.gone("span[role=status]:not(header *)")
}
