package pagetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later"
)

func TestTopicsShowAndChangeSubscriptions(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	b := s.open("/?view=topics")
	b.see("main", "There are no topics")
	b.click("button", "Subscribe a queue…")
	b.write("orders", "dialog input[name=topic]")
	b.write("stock", "dialog input[name=queue]")
	b.write("region=eu", "dialog input[name=where]")
	b.click("dialog button.primary", "Subscribe")
	b.see(".panel .subscription", "region=eu")
	subscriptions, err := s.client.Topic("orders").Subscriptions(t.Context())
	if err != nil || len(subscriptions) != 1 || subscriptions[0].Where != "region=eu" {
		t.Errorf("%+v, %v", subscriptions, err)
	}
	b.click(".panel button", "End the subscription…")
	b.click("dialog button.danger")
	b.see(".panel", "None.")
}

// newTopic is a site with the topic orders. It retains its history, and the queues audit and, for the region eu, stock
// are subscribed. A worker of audit distributes the messages and returns the ids that it handles.
func newTopic(t *testing.T, config string) (s *site, handled <-chan string) {
	s = newSite(t, "", "", config)
	topic, ctx := s.client.Topic("orders"), t.Context()
	if err := errors.Join(topic.Configure(ctx, later.TopicConfig{HistoryCount: 100}), topic.Subscribe(ctx, "audit"),
		topic.Subscribe(ctx, "stock", later.Where("region=eu"))); err != nil {
		t.Fatal(err)
	}
	ids := make(chan string, 100)
	worker := later.NewWorker(s.client, later.WorkerConfig{Name: "auditor"})
	worker.Handle("audit", func(_ context.Context, m *later.Message) error {
		ids <- m.ID
		return nil
	})
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return s, ids
}

// publish publishes a message that was due some time ago, and waits until it is distributed.
func (s *site) publish(id, region string, ago time.Duration, handled <-chan string) {
	s.Helper()
	_, err := s.client.Topic("orders").Publish(s.Context(), []byte("{}"), later.WithID(id),
		later.Header("region", region), later.At(time.Now().Add(-ago)))
	if err != nil {
		s.Fatal(err)
	}
	select {
	case <-handled:
	case <-time.After(eventTimeout):
		s.Fatalf("%s is not distributed", id)
	}
}

// deliver receives and acks messages of a queue, and returns their ids in order.
func (s *site) deliver(queue string, n int) (ids []string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), eventTimeout)
	defer cancel()
	for len(ids) < n {
		held, err := s.client.Queue(queue).Receive(ctx, n-len(ids))
		if err != nil {
			s.Fatalf("after %q: %v", ids, err)
		}
		for _, d := range held {
			ids = append(ids, d.ID)
			if err := d.Ack(ctx); err != nil {
				s.Fatal(err)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// lookBack opens the dialog that rewinds stock, and waits for the number of messages that it finds.
func (b *tab) lookBack(ago time.Duration, found string) {
	b.t.Helper()
	b.click(".panel li:has(code) button", "Rewind…") // the subscription with a filter
	b.see("dialog h2", "Rewind stock")
	b.setTime(time.Now().Add(-ago), "dialog input")
	b.click("dialog button", "Look how many")
	b.see("dialog strong", found)
}

func TestTopicIsRewoundAndItsMessagesAreDeliveredAgain(t *testing.T) {
	t.Parallel()
	s, handled := newTopic(t, "")
	s.publish("early", "eu", 5*time.Hour, handled)
	s.publish("first", "eu", 2*time.Hour, handled)
	s.publish("second", "eu", time.Hour, handled)
	s.publish("other", "us", time.Hour, handled)
	all := []string{"early", "first", "second"}
	if got := s.deliver("stock", len(all)); !slices.Equal(got, all) {
		t.Fatalf("stock received %q", got)
	}

	b := s.open("/?view=topics")
	b.click("td a", "orders")
	b.see(".panel .facts", "100 messages") // that it retains at most
	b.lookBack(3*time.Hour, "3 messages")
	b.see("dialog form", "region=eu")
	if n := s.stats("stock").Ready; n != 0 {
		t.Errorf("looking has sent %d messages", n)
	}
	b.checkLooks("rewind")
	b.size(1280, 800, 1)
	b.click("dialog button", "Send again")
	b.see(".notice", "2 messages sent again to stock, 1 left out")
	b.gone("dialog")
	b.see(".panel .subscription", "2 ready")
	b.lookBack(6*time.Hour, "4 messages") // two of these are in the queue
	b.click("dialog button", "Send again")
	b.see(".notice", "1 message sent again to stock, 3 left out")
	if got := s.deliver("stock", len(all)); !slices.Equal(got, all) {
		t.Errorf("stock received %q again", got)
	}
	if s.stats("audit").Ready != 0 || len(handled) != 0 {
		t.Error("audit receives them, too")
	}
	b.visit("/?view=changes")
	b.see("table", "topic rewound")
}

func TestTopicIsNotRewoundToATimeWithoutMessages(t *testing.T) {
	t.Parallel()
	s, handled := newTopic(t, "")
	s.publish("early", "eu", 5*time.Hour, handled)
	b := s.open("/?view=topics&topic=orders")
	b.lookBack(time.Hour, "0 messages")
	b.await("document.querySelector('dialog button.primary').disabled")
	b.setTime(time.Now().Add(-6*time.Hour), "dialog input") // another time is looked at again
	b.click("dialog button", "Look how many")
	b.see("dialog strong", "1 message")
}

func TestTopicIsRewoundByThoseWhoAreLimitedToIt(t *testing.T) {
	t.Parallel()
	s, handled := newTopic(t, roles(t))
	s.publish("early", "eu", 5*time.Hour, handled)
	s.deliver("stock", 1)
	b := s.login("/?view=topics&topic=orders", "buyer")
	b.lookBack(6*time.Hour, "1 message")
	b.click("dialog button", "Send again")
	b.see(".notice", "1 message sent again to stock")
	s.deliver("stock", 1)
}

// TestWhatThePageHasIsNotSentAgain reads which replies of the list that the page asks for regularly had no body.
func TestWhatThePageHasIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	topic := s.client.Topic("orders")
	if err := topic.Subscribe(t.Context(), "stock"); err != nil {
		t.Fatal(err)
	}
	b := s.open("/?view=topics&topic=orders")
	b.see(".subscription", "stock")
	const replies = "performance.getEntriesByType('resource').filter(e => e.name.includes('v1/topics?'))"
	b.await(replies + ".filter(e => e.responseStatus === 304).length > 3")
	b.see(".subscription", "stock")
	b.see("td.number", "1")
	if err := topic.Subscribe(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	b.see(".subscription", "mail")
	b.see("td.number", "2")
	if full := evaluate[int](b, replies+".filter(e => e.responseStatus !== 304).length"); full > 6 {
		t.Errorf("%d replies had bodies", full)
	}
}
