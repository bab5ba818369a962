package pagetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// heldStore counts the messages of some queues slowly, and the others once open is closed.
type heldStore struct {
	store.Store
	mu      sync.Mutex
	counted int
	open    chan struct{}
}

// hold has the store count the messages slowly, until the channel that it returns is closed.
func (s *heldStore) hold() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted, s.open = 0, make(chan struct{})
	return s.open
}

func (s *heldStore) Histogram(ctx context.Context, queue string, bounds []time.Time) ([]int64, error) {
	s.mu.Lock()
	s.counted++
	first, open := s.counted <= 16, s.open
	s.mu.Unlock()
	select {
	case <-open:
	case <-time.After(100 * time.Millisecond): // longer than a server reads before it shows what it has
		if !first {
			<-open
		}
	}
	return s.Store.Histogram(ctx, queue, bounds)
}

// While a server reads many queues for the first time, the page has the ones that were read, and the messages. It keeps
// the queues that it has while the overview of another choice is read.
func TestPageShowsQueuesWhileOthersAreRead(t *testing.T) {
	t.Parallel()
	slow := &heldStore{Store: memstore.New()}
	open := slow.hold()
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
	b.see("button[title='Not before all queues are read']:disabled", "Change all")
	b.checkAccess()
	queues := s.open("/?view=queues")
	queues.see("header", "40 queues")
	queues.see("tbody", "queue-11")
	close(open)
	b.see(".horizon", "all")
	b.see(".figures", "40")
	b.gone(".reading")
	b.see(".messages nav b", "40")
	queues.gone("span[role=status]:not(header *)")
	open = slow.hold()
	b.click(".queues li a.name", "queue-39")
	b.see(".rows td.id", "m-39")
	b.await("performance.getEntriesByType('resource').some((r) => r.name.includes('queue=queue-39'))")
	b.see(".horizon", "all")
	b.gone(".reading")
	close(open)
}
