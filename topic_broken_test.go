package later

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
)

var errFormat = fmt.Errorf("test: another format: %w", ErrUnsupported)

// refuseWrites refuses writes to a queue.
func refuseWrites(to string) func(call, queue string) error {
	return func(call, queue string) error {
		if queue == to && call != "claim" {
			return errFormat
		}
		return nil
	}
}

// breakBad subscribes the queues good and bad to a topic, starts a worker that handles some queues, and then refuses
// writes to bad. It returns the messages that the worker receives, and a function that stops it.
func breakBad(
	t *testing.T, topic *Topic, s *interleaved, handled ...string,
) (got map[string]*log[string], stop func() error) {
	t.Helper()
	subscribe(t, topic, "good")
	subscribe(t, topic, "bad")
	w, got := collect(topic.client, handled...)
	stop = start(t, w)
	settled()
	s.set(refuseWrites("bad"))
	return got, stop
}

func TestQueueThatCannotBeWrittenStopsNoOthers(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
		topic := c.Topic("orders")
		configure(t, topic, TopicConfig{HistoryCount: 1000})
		subscribe(t, topic, "good")
		subscribe(t, topic, "other")
		subscribe(t, topic, "bad", Where("!skip"))
		w, got := collect(c, "good", "other", "bad")
		start(t, w)
		settled()
		s.set(refuseWrites("bad"))
		for i := range 3 {
			publish(t, topic, fmt.Sprint(i), WithID(fmt.Sprint(i)), Header("kind", "x"), DedupWindow(time.Minute))
			settled()
		}
		publish(t, topic, "skipped", Header("skip", ""))
		settled()
		wantReceived(t, got, map[string][]string{"good": {"0", "1", "2", "skipped"}, "other": {"0", "1", "2", "skipped"}})
		counts := mustStats(t, topic.Queue())
		if counts.Scheduled+counts.Ready != 3 {
			t.Errorf("the topic has %+v, want 3 messages that wait for the queue", counts)
		}
		time.Sleep(3 * 24 * time.Hour) // longer than queues remember ids
		s.set(nil)
		time.Sleep(10 * time.Minute) // twice the longest pause between attempts
		all := []string{"0", "1", "2", "skipped"}
		if _, exact := s.Store.(*memstore.Store); exact { // else queues receive it again when they have forgotten it
			wantReceived(t, got, map[string][]string{"good": all, "other": all, "bad": {"0", "1", "2"}})
			page, err := topic.History(t.Context(), ListOptions{})
			if err != nil || len(page.Messages) != 4 {
				t.Errorf("history has %d messages, %v", len(page.Messages), err)
			}
		}
		if list := got["bad"].list(); len(list) != 3 {
			t.Errorf("the queue received %q when it could be written again", list)
		}
		wantCounts(t, topic.Queue(), 0, 0, 0, 0)
		infos, err := c.Queue("bad").List(t.Context(), ListOptions{State: StateReady})
		if err != nil || len(infos.Messages) > 0 {
			t.Errorf("left: %+v, %v", infos, err)
		}
		publish(t, topic, "4")
		settled()
		if list := got["bad"].list(); len(list) != 4 {
			t.Errorf("the queue received %q", list)
		}
	})
}

// A message that a queue receives late is unchanged.
func TestMessageThatWaitedForAQueueIsUnchanged(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
		topic := c.Topic("orders")
		breakBad(t, topic, s, "good")
		id := publish(t, topic, "1", Header("kind", "x"), MaxAttempts(3), Group("g"))
		settled()
		s.set(nil)
		time.Sleep(time.Minute)
		info, err := c.Queue("bad").Get(t.Context(), id)
		if err != nil || string(info.Payload) != "1" || info.MaxAttempts != 3 || info.Group != "g" ||
			len(info.Headers) != 1 || info.Headers["kind"] != "x" {
			t.Errorf("Get = %+v, %v", info, err)
		}
	})
}

func TestUnsubscribedQueueIsNotWaitedFor(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
		topic := c.Topic("orders")
		got, _ := breakBad(t, topic, s, "good")
		publish(t, topic, "1")
		settled()
		if err := topic.Unsubscribe(t.Context(), "bad"); !errors.Is(err, ErrUnsupported) {
			t.Errorf("Unsubscribe = %v", err)
		}
		time.Sleep(time.Minute)
		wantCounts(t, topic.Queue(), 0, 0, 0, 0)
		wantReceived(t, got, map[string][]string{"good": {"1"}})
	})
}

func TestMessageThatOthersReceivedIsNotDropped(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
		topic := c.Topic("orders")
		configure(t, topic, TopicConfig{DropUnsubscribed: true})
		got, _ := breakBad(t, topic, s, "good")
		publish(t, topic, "1")
		settled()
		if err := topic.Unsubscribe(t.Context(), "bad"); !errors.Is(err, ErrUnsupported) {
			t.Errorf("Unsubscribe = %v", err)
		}
		unsubscribe(t, topic, "good")
		time.Sleep(time.Minute)
		if _, marked := s.Store.(*memstore.Store); marked {
			wantCounts(t, topic.Queue(), 0, 0, 0, 0)
		}
		wantReceived(t, got, map[string][]string{"good": {"1"}})
	})
}

// Nor is it dropped by a process that publishes or subscribes.
func TestMessageThatOthersReceivedIsNotDroppedByPublishers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &interleaved{Store: memstore.New(), steps: map[string]func(){}}
		c := newClientOn(t, s)
		topic := c.Topic("orders")
		configure(t, topic, TopicConfig{DropUnsubscribed: true})
		got, stop := breakBad(t, topic, s, "good")
		id := publish(t, topic, "1", Group("g"))
		settled()
		stop()
		s.set(nil)
		unsubscribe(t, topic, "bad")
		unsubscribe(t, topic, "good")
		time.Sleep(time.Minute)
		publish(t, topic, "2") // dropped if it is sent before the search for messages to drop
		synctest.Wait()
		if s := mustStats(t, topic.Queue()); s.Ready+s.Dead != 1 {
			t.Errorf("%d messages are ready and %d dead, want only the second one", s.Ready, s.Dead)
		}
		if info, err := topic.Queue().Get(t.Context(), id); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get = %+v, %v", info, err)
		}
		wantReceived(t, got, map[string][]string{"good": {"1"}})
	})
}

// A message that waits for a queue is reported as snoozed, and as forwarded when all have it.
func TestMessageThatWaitsForAQueueIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &interleaved{Store: memstore.New(), steps: map[string]func(){}}
		var kinds log[EventKind]
		c := newClientOn(t, s, WithObserver(func(e Event) {
			if e.Queue == topicOrders {
				kinds.add(e.Kind)
			}
		}))
		topic := c.Topic("orders")
		breakBad(t, topic, s, "good")
		publish(t, topic, "1")
		settled()
		s.set(nil)
		time.Sleep(time.Minute)
		got := kinds.list()
		if i := slices.Index(got, EventSent); i >= 0 { // another goroutine reports it
			got = slices.Delete(got, i, i+1)
		}
		if want := []EventKind{EventSnoozed, EventForwarded}; !slices.Equal(got, want) {
			t.Errorf("events besides the one of the send are %q, want %q", got, want)
		}
	})
}

// A message that waits for a queue does not use its id: other messages may have it, for the queues that received it.
func TestMessageThatWaitsForAQueueFreesItsID(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
		if _, linked := s.Store.(*memstore.Store); !linked {
			t.Skip("it waits as it is")
		}
		topic := c.Topic("orders")
		got, _ := breakBad(t, topic, s, "good", "bad")
		publish(t, topic, "0") // so that workers know that the queue cannot be written
		settled()
		publish(t, topic, "1", WithID("x"))
		settled()
		publish(t, topic, "2", WithID("x"))
		settled()
		wantReceived(t, got, map[string][]string{"good": {"0", "1", "2"}})
		s.set(nil)
		time.Sleep(time.Minute)
		wantReceived(t, got, map[string][]string{"good": {"0", "1", "2"}, "bad": {"0", "1"}}) // it remembers the id
		wantCounts(t, topic.Queue(), 0, 0, 0, 0)
	})
}

func TestMessageWithASuccessorWaitsForAQueue(t *testing.T) {
	inInterleavedStores(t, func(t *testing.T, c *Client, s *interleaved) {
		if _, linked := s.Store.(*memstore.Store); !linked {
			t.Skip("it waits as it is")
		}
		topic := c.Topic("orders")
		got, _ := breakBad(t, topic, s, "good", "bad")
		publish(t, topic, "0") // so that workers know that the queue cannot be written
		settled()
		s.before("settle", topicOrders, func() {
			// Queues take it when they have handled the first message, because the two have the same id.
			outcome, err := topic.Queue().SendMessage(t.Context(), Outgoing{ID: "x", Payload: []byte("2"),
				When: In(time.Second), OnDuplicate: Follow(), Headers: map[string]string{"late": ""}})
			if err != nil || outcome.Outcome != SendFollows {
				t.Errorf("%+v, %v", outcome, err)
			}
		})
		publish(t, topic, "1", WithID("x"))
		time.Sleep(time.Second)
		settled()
		wantReceived(t, got, map[string][]string{"good": {"0", "1", "2"}})
		s.set(nil)
		time.Sleep(time.Minute)
		wantReceived(t, got, map[string][]string{"good": {"0", "1", "2"}, "bad": {"0", "1"}}) // it remembers the id
		wantCounts(t, topic.Queue(), 0, 0, 0, 0)
	})
}
