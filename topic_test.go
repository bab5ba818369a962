package later

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// unlinked is a store that writes no follow-ups and moves nothing, like a Cluster with queues in different slots.
type unlinked struct{ store.Store }

// inTopicStores runs a test in a bubble, with a store that distributes messages in one step and one that does not.
func inTopicStores(t *testing.T, test func(t *testing.T, c *Client)) {
	for name, wrap := range map[string]func(s store.Store) store.Store{
		"linked":   func(s store.Store) store.Store { return s },
		"unlinked": func(s store.Store) store.Store { return unlinked{s} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newClientOn(t, wrap(memstore.New()))) })
		})
	}
}

func subscribe(t *testing.T, topic *Topic, queue string, opts ...SubscribeOption) {
	t.Helper()
	if err := topic.Subscribe(t.Context(), queue, opts...); err != nil {
		t.Fatal(err)
	}
}

func configure(t *testing.T, topic *Topic, cfg TopicConfig) {
	t.Helper()
	if err := topic.Configure(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

func publish(t *testing.T, topic *Topic, payload string, opts ...SendOption) string {
	t.Helper()
	id, err := topic.Publish(t.Context(), []byte(payload), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// settled sleeps until workers have learned of subscriptions and distributed the due messages.
func settled() {
	time.Sleep(topic.IndexEvery + time.Second/2)
	synctest.Wait()
}

// collect returns a worker that handles queues, and the payloads that each queue has received.
func collect(c *Client, queues ...string) (*Worker, map[string]*log[string]) {
	w, got := NewWorker(c, WorkerConfig{}), map[string]*log[string]{}
	for _, queue := range queues {
		got[queue] = &log[string]{}
		w.Handle(queue, func(_ context.Context, m *Message) error {
			got[queue].add(string(m.Payload))
			return nil
		})
	}
	return w, got
}

func wantReceived(t *testing.T, got map[string]*log[string], want map[string][]string) {
	t.Helper()
	for queue, received := range got {
		// Handlers run at the same time.
		if list := slices.Sorted(slices.Values(received.list())); !slices.Equal(list, want[queue]) {
			t.Errorf("queue %q received %q, want %q", queue, list, want[queue])
		}
	}
}

func TestTopicDistributesToEachSubscribedQueue(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		subscribe(t, topic, "mail")
		w, got := collect(c, "mail", "audit", "other")
		start(t, w)
		settled()
		publish(t, topic, "1")
		settled()
		subscribe(t, topic, "audit")
		settled()
		publish(t, topic, "2", Headers(map[string]string{"kind": "x"}))
		publish(t, topic, "3", In(time.Hour))
		settled()
		wantReceived(t, got, map[string][]string{"mail": {"1", "2"}, "audit": {"2"}})
		time.Sleep(time.Hour)
		synctest.Wait()
		wantReceived(t, got, map[string][]string{"mail": {"1", "2", "3"}, "audit": {"2", "3"}})
		if err := topic.Unsubscribe(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		settled()
		publish(t, topic, "4")
		settled()
		wantReceived(t, got, map[string][]string{"mail": {"1", "2", "3"}, "audit": {"2", "3", "4"}})
	})
}

func TestTopicMessageIsOneUntilItIsDue(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		w, got := collect(c, "a", "b")
		subscribe(t, topic, "a")
		subscribe(t, topic, "b")
		start(t, w)
		cancelled, moved := publish(t, topic, "cancelled", In(time.Hour)), publish(t, topic, "moved", In(time.Hour))
		settled()
		if _, err := topic.Queue().Cancel(t.Context(), cancelled); err != nil {
			t.Error(err)
		}
		if err := topic.Queue().Reschedule(t.Context(), moved, In(2*time.Hour)); err != nil {
			t.Error(err)
		}
		time.Sleep(90 * time.Minute)
		info, err := topic.Queue().Get(t.Context(), moved)
		if err != nil || string(info.Payload) != "moved" {
			t.Errorf("Get = %+v, %v", info, err)
		}
		wantReceived(t, got, nil)
		time.Sleep(time.Hour)
		wantReceived(t, got, map[string][]string{"a": {"moved"}, "b": {"moved"}})
	})
}

func TestTopicKeepsIDsAndFields(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		subscribe(t, topic, "away")
		subscribe(t, topic, "here")
		w, _ := collect(c, "here")
		start(t, w)
		settled()
		due := time.Now().Add(time.Minute).Truncate(time.Millisecond)
		publish(t, topic, "x", WithID("id"), At(due), Headers(map[string]string{"k": "v"}), MaxAttempts(3))
		time.Sleep(7 * 24 * time.Hour)
		info, err := c.Queue("away").Get(t.Context(), "id")
		if err != nil || info.State != StateReady || info.MaxAttempts != 3 || !info.Due.Equal(due) ||
			!maps.Equal(info.Headers, map[string]string{"k": "v"}) || info.Attempts != 0 {
			t.Errorf("a queue that was away for a week has %+v, %v", info, err)
		}
	})
}

func TestTopicWithoutSubscriptionsKeepsMessages(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		subscribe(t, topic, "q")
		w, got := collect(c, "q")
		start(t, w)
		settled()
		if err := topic.Unsubscribe(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		publish(t, topic, "kept")
		settled()
		settled()
		wantCounts(t, topic.Queue(), 0, 1, 0, 0)
		subscribe(t, topic, "q")
		settled()
		wantReceived(t, got, map[string][]string{"q": {"kept"}})
	})
}

func TestTopicDropsWhatNobodySubscribedTo(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		configure(t, topic, TopicConfig{DropUnsubscribed: true})
		publish(t, topic, "before")
		publish(t, topic, "later", In(time.Hour))
		time.Sleep(time.Second)
		subscribe(t, topic, "q")
		w, got := collect(c, "q")
		start(t, w)
		settled()
		wantCounts(t, topic.Queue(), 1, 0, 0, 1)
		if err := topic.Unsubscribe(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		wantReceived(t, got, nil)
		page, err := topic.Queue().List(t.Context(), ListOptions{State: StateReady})
		if err != nil || len(page.Messages) != 1 { // it is not distributed, because no worker has a subscribed queue
			t.Errorf("ready: %+v, %v", page, err)
		}
		subscribe(t, topic, "q")
		settled()
		wantReceived(t, got, nil)
		wantCounts(t, topic.Queue(), 0, 0, 0, 2)
		dead, err := topic.Queue().List(t.Context(), ListOptions{State: StateDead})
		if err != nil || dead.Messages[0].LastError != "no queue was subscribed to the topic" {
			t.Errorf("dead: %+v, %v", dead, err)
		}
	})
}

func TestPublisherDropsWhatNobodySubscribedTo(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		configure(t, topic, TopicConfig{DropUnsubscribed: true})
		for range 100 {
			publish(t, topic, "x")
			time.Sleep(time.Second)
		}
		s := mustStats(t, topic.Queue())
		if most := int64(dropEvery/time.Second) + 1; s.Ready > most || s.Ready+s.Dead != 100 {
			t.Errorf("%d messages are ready and %d dead, want up to %d and the others", s.Ready, s.Dead, most)
		}
		configure(t, topic, TopicConfig{})
		publish(t, topic, "kept")
		time.Sleep(2 * dropEvery)
		publish(t, topic, "kept")
		synctest.Wait()
		if after := mustStats(t, topic.Queue()); after.Dead != s.Dead {
			t.Errorf("%d messages are dead, %d before", after.Dead, s.Dead)
		}
	})
}

func TestDeletedQueueIsNotSubscribed(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		orders, all := c.Topic("orders"), c.Topic("all")
		subscribe(t, orders, "mail")
		subscribe(t, orders, "audit")
		subscribe(t, all, "topic:orders")
		subscribe(t, all, "audit")
		if err := c.Queue("mail").Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		w, got := collect(c, "audit", "mail")
		start(t, w)
		settled()
		publish(t, orders, "1")
		settled()
		wantReceived(t, got, map[string][]string{"audit": {"1"}})
		if err := orders.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		publish(t, all, "2")
		settled()
		wantReceived(t, got, map[string][]string{"audit": {"1", "2"}})
		if s := mustStats(t, orders.Queue()); s.Exists {
			t.Errorf("the deleted topic has %+v", s)
		}
	})
}

// The index can be lost, for example by a copy of some queues only.
func TestTopicIsFoundWithoutTheIndex(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		subscribe(t, topic, "mail")
		if err := c.store.Delete(t.Context(), reserved.TopicIndex); err != nil {
			t.Fatal(err)
		}
		w, got := collect(c, "mail")
		start(t, w)
		publish(t, topic, "1")
		settled()
		wantReceived(t, got, map[string][]string{"mail": {"1"}})
	})
}

func TestTopicFiltersByHeaders(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		subscribe(t, topic, "eu", Where("region=eu"))
		subscribe(t, topic, "urgent", Where("priority in (high, urgent), !test"))
		subscribe(t, topic, "all")
		w, got := collect(c, "eu", "urgent", "all")
		start(t, w)
		settled()
		publish(t, topic, "1", Headers(map[string]string{"region": "eu", "priority": "high"}))
		publish(t, topic, "2", Headers(map[string]string{"region": "us", "priority": "urgent"}))
		publish(t, topic, "3", Headers(map[string]string{"priority": "urgent", "test": ""}))
		publish(t, topic, "4")
		settled()
		wantReceived(t, got, map[string][]string{"eu": {"1"}, "urgent": {"1", "2"}, "all": {"1", "2", "3", "4"}})
		all, err := topic.Subscriptions(t.Context())
		want := []Subscription{{Queue: "all"}, {Queue: "eu", Where: "region=eu"},
			{Queue: "urgent", Where: "priority in (high, urgent), !test"}}
		if err != nil || !slices.Equal(all, want) {
			t.Errorf("Subscriptions = %+v, %v", all, err)
		}
	})
}

func TestTopicsCanBeSubscribedToEachOther(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		all, orders := c.Topic("all"), c.Topic("orders")
		subscribe(t, all, "topic:orders")
		subscribe(t, orders, "mail")
		w, got := collect(c, "mail")
		start(t, w)
		settled()
		publish(t, all, "x")
		settled()
		wantReceived(t, got, map[string][]string{"mail": {"x"}})
		third := c.Topic("third")
		subscribe(t, orders, "topic:third")
		err := third.Subscribe(t.Context(), "topic:all")
		wantError(t, err, ErrInvalid)
		circle := `"topic:third" → "topic:all" → "topic:orders" → "topic:third"`
		if err == nil || !strings.Contains(err.Error(), circle) {
			t.Errorf("error is %v, want one with %s", err, circle)
		}
		wantError(t, all.Subscribe(t.Context(), "topic:all"), ErrInvalid)
	})
}

func TestTopicIsDistributedOnceByRacingWorkers(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		var queues []string
		for i := range 20 {
			queues = append(queues, fmt.Sprint("q", i))
			subscribe(t, topic, queues[i])
		}
		var all []map[string]*log[string]
		for range 5 {
			w, got := collect(c, queues...)
			start(t, w)
			all = append(all, got)
		}
		var want []string
		for i := range 100 {
			want = append(want, fmt.Sprintf("%03d", i))
			publish(t, topic, want[i], In(time.Duration(i%10)*time.Second))
		}
		time.Sleep(time.Minute)
		for _, queue := range queues {
			var received []string
			for _, got := range all {
				received = append(received, got[queue].list()...)
			}
			slices.Sort(received)
			if !slices.Equal(received, want) {
				t.Errorf("queue %q received %q", queue, received)
			}
		}
		wantCounts(t, topic.Queue(), 0, 0, 0, 0)
	})
}

// A worker that dies between the sends to the queues and the ack sends nothing twice.
func TestTopicIsDistributedOnceAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: unlinked{memstore.New()}}
		c := newClientOn(t, f)
		topic := c.Topic("orders")
		for i := range 5 {
			subscribe(t, topic, fmt.Sprint("q", i))
		}
		w, got := collect(c, "q0", "q1", "q2", "q3", "q4")
		start(t, w)
		settled()
		for i := range 20 {
			fail := []func(context.Context, string) error{nil, unavailable("settle")}
			f.set(fail[i%2], fail[1-i%2])
			publish(t, topic, fmt.Sprint(i))
			time.Sleep(time.Second)
			f.set(nil, nil)
			time.Sleep(time.Minute)
		}
		for queue, received := range got {
			if list := received.list(); len(list) != 20 {
				t.Errorf("queue %q received %q", queue, list)
			}
		}
	})
}

func TestTopicIsDeleted(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		configure(t, topic, TopicConfig{HistoryCount: 10})
		subscribe(t, topic, "q")
		publish(t, topic, "x", In(time.Hour))
		names, err := c.Topics(t.Context())
		if err != nil || !slices.Equal(names, []string{"orders"}) {
			t.Errorf("Topics = %q, %v", names, err)
		}
		if err := topic.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if names, err := c.Topics(t.Context()); err != nil || len(names) != 0 {
			t.Errorf("Topics after Delete = %q, %v", names, err)
		}
		if all, err := topic.Subscriptions(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("Subscriptions after Delete = %+v, %v", all, err)
		}
	})
}

func TestTopicRefusesBadInput(t *testing.T) {
	c := newClientOn(t, memstore.New())
	ctx := t.Context()
	for _, name := range []string{"", strings.Repeat("x", topic.MaxName+1), "a{b", "a\nb"} {
		orders := c.Topic(name)
		_, err := orders.Publish(ctx, nil)
		wantError(t, err, ErrInvalid)
		wantError(t, orders.Subscribe(ctx, "q"), ErrInvalid)
	}
	orders := c.Topic("orders")
	wantError(t, orders.Subscribe(ctx, ""), ErrInvalid)
	wantError(t, orders.Subscribe(ctx, "topic-history:orders"), ErrInvalid)
	wantError(t, orders.Subscribe(ctx, "q", nil), ErrInvalid)
	wantError(t, orders.Subscribe(ctx, "q", From(time.Time{})), ErrInvalid)
	wantError(t, orders.Subscribe(ctx, "q", Where("a=")), ErrInvalid)
	wantError(t, orders.Unsubscribe(ctx, "q"), ErrNotFound)
	wantError(t, orders.Configure(ctx, TopicConfig{HistoryAge: -1}), ErrInvalid)
	wantError(t, orders.Configure(ctx, TopicConfig{HistoryCount: topic.MaxHistory + 1}), ErrInvalid)
	for _, queue := range []string{"topic:orders", "topic-history:orders"} {
		w := NewWorker(c, WorkerConfig{})
		w.Handle(queue, ignore)
		wantError(t, w.Run(ctx), ErrInvalid)
	}
	for i := range topic.MaxSubscriptions {
		subscribe(t, orders, fmt.Sprint("q", i))
	}
	err := orders.Subscribe(ctx, "one more")
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("error is %v", err)
	}
	subscribe(t, orders, "q1", Where("a=b"))
}

func TestHeaderOfWaitingMessagesIsReserved(t *testing.T) {
	c := newClientOn(t, memstore.New())
	_, err := c.Topic("orders").Publish(t.Context(), nil, Header(topic.MissedHeader, "[]"))
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), topic.MissedHeader) {
		t.Errorf("Publish returns %v, want ErrInvalid that names the header", err)
	}
}
