package later

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// interleaved is a store that calls functions of a test between its calls.
type interleaved struct {
	store.Store
	mu     sync.Mutex
	steps  map[string]func()              // by call and queue; each is called once, before the first such call
	refuse func(call, queue string) error // an error that a call returns instead
}

func (s *interleaved) before(call, queue string, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps[call+" "+queue] = do
}

// set sets refuse.
func (s *interleaved) set(refuse func(call, queue string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

func (s *interleaved) begin(call string, queues ...string) error {
	s.mu.Lock()
	do, refuse := s.steps[call+" "+queues[0]], s.refuse
	delete(s.steps, call+" "+queues[0])
	s.mu.Unlock()
	if do != nil {
		do()
	}
	for _, queue := range queues {
		if refuse != nil {
			if err := refuse(call, queue); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *interleaved) Linked(queue, to string) bool { return store.Linked(s.Store, queue, to) }

func (s *interleaved) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if err := s.begin("send", queue); err != nil {
		return nil, err
	}
	return s.Store.Send(ctx, queue, msgs)
}

func (s *interleaved) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	if err := s.begin("claim", queue); err != nil {
		return store.Claim{}, err
	}
	return s.Store.Claim(ctx, queue, req)
}

func (s *interleaved) Settle(
	ctx context.Context, queue string, settlements []store.Settlement,
) ([]store.SettleResult, error) {
	queues := []string{queue}
	for i := range settlements {
		for _, f := range settlements[i].Then {
			queues = append(queues, f.Queue)
		}
	}
	if err := s.begin("settle", queues...); err != nil {
		return nil, err
	}
	return s.Store.Settle(ctx, queue, settlements)
}

func (s *interleaved) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	if err := s.begin("list", queue); err != nil {
		return store.Page{}, err
	}
	return s.Store.List(ctx, queue, req)
}

func (s *interleaved) SetProperties(
	ctx context.Context, queue string, set map[string]string, condition *store.Condition,
) error {
	if err := s.begin("set", queue); err != nil {
		return err
	}
	return s.Store.SetProperties(ctx, queue, set, condition)
}

func (s *interleaved) SetDeadRetention(
	ctx context.Context, queue string, r store.Retention, former *store.Retention,
) error {
	if err := s.begin("retain", queue); err != nil {
		return err
	}
	return s.Store.SetDeadRetention(ctx, queue, r, former)
}

// inInterleavedStores runs a test with a store that distributes in one step and one that does not.
func inInterleavedStores(t *testing.T, test func(t *testing.T, c *Client, s *interleaved)) {
	for name, inner := range map[string]func() store.Store{
		"linked":   func() store.Store { return memstore.New() },
		"unlinked": func() store.Store { return unlinked{memstore.New()} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &interleaved{Store: inner(), steps: map[string]func(){}}
				test(t, newClientOn(t, s), s)
			})
		})
	}
}

func unsubscribe(t *testing.T, topic *Topic, queue string) {
	t.Helper()
	if err := topic.Unsubscribe(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
}

const topicOrders = "topic:orders" // the queue of the topic in these tests

func TestMessagePublishedAfterSubscribeReachesTheQueue(t *testing.T) {
	for _, call := range []string{"claim", "settle"} {
		t.Run("before the "+call, func(t *testing.T) {
			inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
				topic := c.Topic("orders")
				subscribe(t, topic, "old")
				w, got := collect(c, "old")
				start(t, w)
				settled()
				s.before(call, topicOrders, func() {
					subscribe(t, topic, "new")
					publish(t, topic, "2")
				})
				publish(t, topic, "1")
				settled()
				wantReceived(t, got, map[string][]string{"old": {"1", "2"}})
				wantPayloads(t, c.Queue("new"), "1", "2")
				wantCounts(t, topic.Queue(), 0, 0, 0, 0)
			})
		})
	}
}

func TestReplacedFilterHoldsForMessagesPublishedLater(t *testing.T) {
	for _, call := range []string{"claim", "settle"} {
		t.Run("before the "+call, func(t *testing.T) {
			inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
				topic := c.Topic("orders")
				subscribe(t, topic, "here")
				subscribe(t, topic, "filtered")
				w, _ := collect(c, "here")
				start(t, w)
				settled()
				s.before(call, topicOrders, func() {
					subscribe(t, topic, "filtered", Where("kind=a"))
					publish(t, topic, "2")
					publish(t, topic, "3", Header("kind", "a"))
				})
				publish(t, topic, "1", Header("kind", "a"))
				settled()
				wantPayloads(t, c.Queue("filtered"), "1", "3")
			})
		})
	}
}

func TestNothingArrivesAfterUnsubscribe(t *testing.T) {
	for _, call := range []string{"claim " + topicOrders, "settle " + topicOrders, "send gone"} {
		t.Run("before the "+call, func(t *testing.T) {
			inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
				topic := c.Topic("orders")
				subscribe(t, topic, "here")
				subscribe(t, topic, "gone")
				w, got := collect(c, "here")
				start(t, w)
				settled()
				var had int64
				s.mu.Lock()
				s.steps[call] = func() {
					unsubscribe(t, topic, "gone")
					had = mustStats(t, c.Queue("gone")).Ready
				}
				s.mu.Unlock()
				publish(t, topic, "1")
				publish(t, topic, "2")
				settled()
				publish(t, topic, "3")
				settled()
				if _, linked := s.Store.(*memstore.Store); linked && call == "send gone" {
					return // a linked store makes no sends
				}
				wantCounts(t, c.Queue("gone"), 0, had, 0, 0)
				wantReceived(t, got, map[string][]string{"here": {"1", "2", "3"}})
				wantCounts(t, topic.Queue(), 0, 0, 0, 0)
			})
		})
	}
}

func TestNothingArrivesAfterTheTopicIsDeleted(t *testing.T) {
	for _, call := range []string{"settle " + topicOrders, "send a", "send topic-history:orders"} {
		t.Run("before the "+call, func(t *testing.T) {
			inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
				topic := c.Topic("orders")
				configure(t, topic, TopicConfig{HistoryCount: 10})
				subscribe(t, topic, "a")
				w, _ := collect(c, "b")
				subscribe(t, topic, "b")
				start(t, w)
				settled()
				var had int64
				s.mu.Lock()
				s.steps[call] = func() {
					if err := topic.Delete(t.Context()); err != nil {
						t.Error(err)
					}
					had = mustStats(t, c.Queue("a")).Ready
				}
				s.mu.Unlock()
				publish(t, topic, "1")
				settled()
				if _, linked := s.Store.(*memstore.Store); linked && call != "settle "+topicOrders {
					return // a linked store makes no sends
				}
				wantCounts(t, c.Queue("a"), 0, had, 0, 0)
				for _, q := range []*Queue{topic.Queue(), c.Queue("topic-history:orders")} {
					if s := mustStats(t, q); s.Exists {
						t.Errorf("queue %q of a deleted topic has %+v", q.Name(), s)
					}
				}
			})
		})
	}
}

// Subscribe with From comes between the claim and the settle of a message, which is then in the history after the
// listing, or before it.
func TestSubscriptionFromThePastReceivesMessagesInFlightOnce(t *testing.T) {
	for _, call := range []string{"claim " + topicOrders, "settle " + topicOrders, "send topic-history:orders",
		"send old"} {
		t.Run("before the "+call, func(t *testing.T) {
			inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
				topic := c.Topic("orders")
				configure(t, topic, TopicConfig{HistoryCount: 100})
				subscribe(t, topic, "old")
				w, got := collect(c, "old")
				start(t, w)
				settled()
				publish(t, topic, "1")
				settled()
				late, lateGot := collect(c, "late")
				start(t, late)
				s.mu.Lock()
				s.steps[call] = func() { subscribe(t, topic, "late", From(time.Unix(1, 0))) }
				s.mu.Unlock()
				publish(t, topic, "2")
				settled()
				publish(t, topic, "3")
				settled()
				if _, linked := s.Store.(*memstore.Store); linked && call[:4] == "send" {
					return // a linked store makes no sends
				}
				wantReceived(t, got, map[string][]string{"old": {"1", "2", "3"}})
				wantReceived(t, lateGot, map[string][]string{"late": {"1", "2", "3"}})
			})
		})
	}
}

// A message that arrives while the queue catches up is acked before it is found in the history.
func TestMessageThatIsAckedWhileTheQueueCatchesUpComesOnce(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
		topic := c.Topic("orders")
		configure(t, topic, TopicConfig{HistoryCount: 100})
		subscribe(t, topic, "old")
		w, got := collect(c, "old", "late")
		start(t, w)
		settled()
		s.before("list", "topic-history:orders", func() {
			publish(t, topic, "1")
			settled()
			wantReceived(t, got, map[string][]string{"old": {"1"}, "late": {"1"}})
		})
		subscribe(t, topic, "late", From(time.Unix(1, 0)))
		settled()
		wantReceived(t, got, map[string][]string{"old": {"1"}, "late": {"1"}})
	})
}

func TestCatchingUpEndsWithUnsubscribe(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
		topic := c.Topic("orders")
		configure(t, topic, TopicConfig{HistoryCount: 100})
		subscribe(t, topic, "old")
		w, _ := collect(c, "old")
		start(t, w)
		settled()
		publish(t, topic, "1")
		settled()
		s.before("send", "late", func() { unsubscribe(t, topic, "late") })
		wantError(t, topic.Subscribe(t.Context(), "late", From(time.Unix(1, 0))), ErrNotFound)
		wantCounts(t, c.Queue("late"), 0, 0, 0, 0)
		all, err := topic.Subscriptions(t.Context())
		if err != nil || len(all) != 1 {
			t.Errorf("Subscriptions = %+v, %v", all, err)
		}
	})
}

func TestMessagesAreNotDroppedWhileAQueueIsSubscribed(t *testing.T) {
	t.Run("by a distributor", func(t *testing.T) {
		inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
			topic := c.Topic("orders")
			configure(t, topic, TopicConfig{DropUnsubscribed: true})
			subscribe(t, topic, "q")
			w, got := collect(c, "q")
			start(t, w)
			settled()
			s.before("settle", topicOrders, func() { subscribe(t, topic, "q") })
			unsubscribe(t, topic, "q")
			publish(t, topic, "1")
			settled()
			wantReceived(t, got, map[string][]string{"q": {"1"}})
			wantCounts(t, topic.Queue(), 0, 0, 0, 0)
		})
	})
	for name, drop := range map[string]func(t *testing.T, topic *Topic){
		"by a publisher": func(t *testing.T, topic *Topic) {
			topic.queue.dropped.Store(0)
			publish(t, topic, "2", In(time.Hour))
		},
		"by Subscribe": func(t *testing.T, topic *Topic) { subscribe(t, topic, "second") },
	} {
		t.Run(name, func(t *testing.T) {
			inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
				topic := c.Topic("orders")
				configure(t, topic, TopicConfig{DropUnsubscribed: true})
				topic.queue.dropped.Store(time.Now().UnixNano()) // drops nothing yet
				publish(t, topic, "1")
				time.Sleep(time.Second)
				s.before("settle", topicOrders, func() { subscribe(t, topic, "first") })
				drop(t, topic)
				synctest.Wait()
				wantCounts(t, topic.Queue(), mustStats(t, topic.Queue()).Scheduled, 1, 0, 0)
				w, got := collect(c, "first")
				start(t, w)
				settled()
				wantReceived(t, got, map[string][]string{"first": {"1"}})
			})
		})
	}
}

// The queue that is subscribed is a topic's own one.
func TestUnsubscribedTopicReceivesNothing(t *testing.T) {
	for _, call := range []string{"settle", "send"} {
		t.Run("before the "+call, func(t *testing.T) {
			inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
				all, orders := c.Topic("all"), c.Topic("orders")
				subscribe(t, all, topicOrders)
				subscribe(t, all, "audit")
				subscribe(t, orders, "mail")
				w, got := collect(c, "mail", "audit")
				start(t, w)
				settled()
				queue := map[string]string{"settle": "topic:all", "send": topicOrders}[call]
				s.before(call, queue, func() { unsubscribe(t, all, topicOrders) })
				publish(t, all, "1")
				settled()
				if _, linked := s.Store.(*memstore.Store); call == "send" && linked {
					return // a linked store makes no sends
				}
				want := map[string][]string{"audit": {"1"}}
				if _, linked := s.Store.(*memstore.Store); call == "settle" && !linked {
					want["mail"] = []string{"1"} // it was sent before
				}
				wantReceived(t, got, want)
			})
		})
	}
}

// In a Cluster, a queue's property that names the topic is on another server than the list of subscriptions.
func TestSubscriptionSurvivesTheLossOfTheQueuesProperty(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
		topic := c.Topic("orders")
		configure(t, topic, TopicConfig{HistoryCount: 10})
		subscribe(t, topic, "here")
		subscribe(t, topic, "lost")
		w, got := collect(c, "here")
		start(t, w)
		settled()
		if err := c.store.SetProperties(t.Context(), "lost", map[string]string{topicOrders: ""}, nil); err != nil {
			t.Fatal(err)
		}
		publish(t, topic, "1")
		settled()
		wantReceived(t, got, map[string][]string{"here": {"1"}})
		wantPayloads(t, c.Queue("lost"), "1")
		if err := c.store.SetProperties(t.Context(), "lost", map[string]string{topicOrders: ""}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Queue("lost").Purge(t.Context(), StateReady); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * followUpWindow)
		if r, err := topic.Rewind(t.Context(), "lost", From(time.Unix(1, 0))); err != nil || r.Sent != 1 {
			t.Errorf("Rewind = %+v, %v", r, err)
		}
	})
}

// An Unsubscribe that failed halfway has left the queue's property. Calling it again removes it.
func TestUnsubscribeCanBeRepeated(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
		topic := c.Topic("orders")
		subscribe(t, topic, "q")
		s.set(func(call, queue string) error {
			if call == "set" && queue == "q" {
				return fmt.Errorf("test: %w", ErrUnavailable)
			}
			return nil
		})
		wantError(t, topic.Unsubscribe(t.Context(), "q"), ErrUnavailable)
		s.set(nil)
		wantError(t, topic.Unsubscribe(t.Context(), "q"), ErrNotFound)
		all, err := c.store.Properties(t.Context(), "q")
		if err != nil || len(all) != 0 {
			t.Errorf("the queue has the properties %q, %v", all, err)
		}
	})
}

// The send to one queue fails, and later the settle does not. The message must not be acked before all have it.
func TestTopicMessageStaysUntilEachQueueHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &interleaved{Store: unlinked{memstore.New()}, steps: map[string]func(){}}
		c := newClientOn(t, s)
		topic := c.Topic("orders")
		w, got := collect(c, "a", "b", "c")
		for queue := range got {
			subscribe(t, topic, queue)
		}
		start(t, w)
		settled()
		failures := 0
		s.set(func(call, queue string) error {
			if call != "send" || queue != "b" || failures == 3 {
				return nil
			}
			failures++
			return fmt.Errorf("test: %w", ErrUnavailable)
		})
		publish(t, topic, "1")
		time.Sleep(time.Minute)
		wantReceived(t, got, map[string][]string{"a": {"1"}, "b": {"1"}, "c": {"1"}})
		if failures != 3 {
			t.Errorf("%d sends failed", failures)
		}
	})
}

// A list that cannot be read neither loses messages nor distributes them by an older list.
func TestTopicWaitsWhileSubscriptionsCannotBeRead(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
		topic := c.Topic("orders")
		subscribe(t, topic, "q")
		w, got := collect(c, "q")
		start(t, w)
		settled()
		s.before("settle", topicOrders, func() {
			subscribe(t, topic, "new")
			if err := s.Store.SetProperties(t.Context(), topicOrders, map[string]string{
				"subscription:bad": "{", "topic-version": "x"}, nil); err != nil {
				t.Error(err)
			}
		})
		publish(t, topic, "1")
		settled()
		wantPayloads(t, c.Queue("new"))
		wantCounts(t, topic.Queue(), 0, 1, 0, 0)
		if err := s.Store.SetProperties(t.Context(), topicOrders, map[string]string{
			"subscription:bad": "", "topic-version": "y"}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		wantReceived(t, got, map[string][]string{"q": {"1"}})
		wantPayloads(t, c.Queue("new"), "1")
	})
}

func TestMessagesOfAStaleListAreReleasedWithTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &interleaved{Store: memstore.New(), steps: map[string]func(){}}
		c := newClientOn(t, s)
		topic := c.Topic("orders")
		subscribe(t, topic, "a")
		subscribe(t, topic, "b")
		w, _ := collect(c, "c")
		subscribe(t, topic, "c", Where("none"))
		if err := topic.Queue().Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		start(t, w)
		settled()
		for range 3 {
			publish(t, topic, string(make([]byte, store.MaxPayload)))
		}
		settles := 0
		s.before("settle", topicOrders, func() { subscribe(t, topic, "d") })
		s.set(func(call, queue string) error {
			if call != "settle" || queue != topicOrders {
				return nil
			}
			if settles++; settles == 2 {
				return fmt.Errorf("test: %w", ErrFull)
			}
			return nil
		})
		if err := topic.Queue().Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(defaultLease / 2)
		for _, queue := range []string{"a", "b", "d"} {
			wantCounts(t, c.Queue(queue), 0, 3, 0, 0)
		}
	})
}

func TestDeletedQueueReceivesNothing(t *testing.T) {
	for _, call := range []string{"settle " + topicOrders, "send gone"} {
		t.Run("before the "+call, func(t *testing.T) {
			inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
				topic := c.Topic("orders")
				subscribe(t, topic, "here")
				subscribe(t, topic, "gone")
				w, got := collect(c, "here")
				start(t, w)
				settled()
				s.mu.Lock()
				s.steps[call] = func() {
					if err := c.Queue("gone").Delete(t.Context()); err != nil {
						t.Error(err)
					}
				}
				s.mu.Unlock()
				publish(t, topic, "1")
				settled()
				wantReceived(t, got, map[string][]string{"here": {"1"}})
				if _, linked := s.Store.(*memstore.Store); linked && call == "send gone" {
					return // a linked store makes no sends
				}
				if s := mustStats(t, c.Queue("gone")); s.Exists {
					t.Errorf("the deleted queue has %+v", s)
				}
			})
		})
	}
}

func TestPublisherDropsNothingWhileAQueueIsSubscribed(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, _ *interleaved) {
		topic := c.Topic("orders")
		configure(t, topic, TopicConfig{DropUnsubscribed: true})
		subscribe(t, topic, "away")
		for range 3 {
			publish(t, topic, "1")
			time.Sleep(dropEvery)
			synctest.Wait()
		}
		wantCounts(t, topic.Queue(), 0, 3, 0, 0)
	})
}
