package later

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

const lookEvery = topic.LookEvery

// loseIndex calls do and then takes back its changes of the index, as a failover may.
func loseIndex(t *testing.T, c *Client, do func()) {
	t.Helper()
	before, err := c.store.Properties(t.Context(), reserved.TopicIndex)
	if err != nil {
		t.Fatal(err)
	}
	do()
	after, err := c.store.Properties(t.Context(), reserved.TopicIndex)
	if err != nil {
		t.Fatal(err)
	}
	for name := range after {
		after[name] = before[name]
	}
	if err := c.store.SetProperties(t.Context(), reserved.TopicIndex, after, nil); err != nil {
		t.Fatal(err)
	}
}

func TestSubscriptionWhoseChangeOfTheIndexWasLostIsFound(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic, other := c.Topic("orders"), c.Topic("other")
		subscribe(t, topic, "old")
		w, got := collect(c, "q0", "q1", "q2", "old")
		start(t, w)
		settled()
		loseIndex(t, c, func() { subscribe(t, other, "q1") })
		publish(t, other, "1")
		time.Sleep(2 * lookEvery)
		wantReceived(t, got, map[string][]string{"q1": {"1"}})

		loseIndex(t, c, func() { unsubscribe(t, topic, "old") })
		settled()
		publish(t, topic, "2") // the distributor learns that no queue is subscribed
		settled()
		loseIndex(t, c, func() { subscribe(t, topic, "old") })
		time.Sleep(2 * lookEvery)
		wantReceived(t, got, map[string][]string{"q1": {"1"}, "old": {"2"}})
	})
}

func TestScheduleWhoseChangeOfTheIndexWasLostRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, memstore.New())
		w, got := collect(c, "q")
		start(t, w)
		settled()
		loseIndex(t, c, func() {
			s := everyMinute("a")
			s.Queue = "q"
			put(t, c, s, PutCreated)
		})
		time.Sleep(lookEvery + 2*time.Minute)
		if n := len(got["q"].list()); n == 0 {
			t.Error("the schedule has not run")
		}
	})
}

// Looking again costs a worker little: each queue is read once in lookEvery.
func TestLookingForLostSubscriptionsReadsEachQueueOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &countedReads{Store: memstore.New(), reads: map[string]int{}}
		c := newClientOn(t, s)
		queues := []string{"a", "b", "c", "d", "e"}
		w, _ := collect(c, queues...)
		start(t, w)
		time.Sleep(time.Minute)
		s.take()
		time.Sleep(4 * lookEvery)
		reads := s.take()
		for _, queue := range queues {
			if n := reads[queue]; n < 3 || n > 5 {
				t.Errorf("queue %q was read %d times, want about 4", queue, n)
			}
		}
	})
}

// countedReads counts reads of properties by queue.
type countedReads struct {
	store.Store
	all   log[string]
	reads map[string]int
}

func (s *countedReads) Properties(ctx context.Context, queue string) (map[string]string, error) {
	s.all.add(queue)
	return s.Store.Properties(ctx, queue)
}

// take returns the counts since the last call.
func (s *countedReads) take() map[string]int {
	counts := map[string]int{}
	for _, queue := range s.all.list() {
		counts[queue]++
	}
	since := map[string]int{}
	for queue, n := range counts {
		since[queue] = n - s.reads[queue]
	}
	s.reads = counts
	return since
}

// A message goes to more queues than one step writes. The settle fails after the copies were sent.
func TestTopicWithManySubscriptionsDistributesOnce(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
		topic := c.Topic("orders")
		var queues []string
		for i := range 2*store.MaxFollowUpQueues + 1 {
			queues = append(queues, fmt.Sprintf("q%03d", i))
			subscribe(t, topic, queues[i])
		}
		w, got := collect(c, queues...)
		start(t, w)
		settled()
		failed := false
		s.set(func(call, queue string) error {
			if call != "settle" || queue != topicOrders || failed {
				return nil
			}
			failed = true
			return fmt.Errorf("test: %w", ErrUnavailable)
		})
		want := []string{"1", "2", "3"}
		for _, payload := range want {
			publish(t, topic, payload)
		}
		time.Sleep(time.Minute)
		for queue, received := range got {
			if list := slices.Sorted(slices.Values(received.list())); !slices.Equal(list, want) {
				t.Errorf("queue %q received %q", queue, list)
			}
		}
		wantCounts(t, topic.Queue(), 0, 0, 0, 0)
	})
}

// The copies of a large message do not fit into one step.
func TestTopicDistributesLargeMessages(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		w, got := collect(c, "a", "b", "c")
		for queue := range got {
			subscribe(t, topic, queue)
		}
		start(t, w)
		settled()
		large := string(make([]byte, store.MaxPayload))
		publish(t, topic, large)
		publish(t, topic, "small")
		settled()
		for queue, received := range got {
			if list := received.list(); len(list) != 2 || len(list[0])+len(list[1]) != len(large)+len("small") {
				t.Errorf("queue %q received %d messages", queue, len(list))
			}
		}
	})
}
