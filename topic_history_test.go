package later

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestTopicHistoryIsBounded(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		configure(t, topic, TopicConfig{HistoryCount: 10, HistoryAge: time.Hour})
		subscribe(t, topic, "q")
		w, got := collect(c, "q")
		start(t, w)
		settled()
		for i := range 30 {
			publish(t, topic, fmt.Sprintf("%02d", i))
			time.Sleep(time.Second)
		}
		settled()
		list := func() (payloads []string) {
			page, err := topic.History(t.Context(), ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range page.Messages {
				payloads = append(payloads, string(m.Payload))
			}
			return payloads
		}
		if got := list(); len(got) < 10 || len(got) > 12 || got[len(got)-1] != "29" || !slices.IsSorted(got) {
			t.Errorf("history has %q", got)
		}
		if len(got["q"].list()) != 30 {
			t.Errorf("q received %q", got["q"].list())
		}
		time.Sleep(2 * time.Hour)
		if got := list(); len(got) != 0 {
			t.Errorf("history has %q two hours later", got)
		}
	})
}

func TestTopicSubscriptionStartsInThePast(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		wantError(t, topic.Subscribe(t.Context(), "late", From(time.Unix(1, 0))), ErrNotFound)
		configure(t, topic, TopicConfig{HistoryCount: 1000})
		subscribe(t, topic, "first")
		w, got := collect(c, "first", "late")
		start(t, w)
		settled()
		publish(t, topic, "1", ExpireAfter(time.Minute), Urgent()) // the queues have no urgency
		time.Sleep(time.Hour)
		middle := time.Now()
		publish(t, topic, "2")
		publish(t, topic, "3", Headers(map[string]string{"test": ""}))
		settled()
		subscribe(t, topic, "late", From(middle), Where("!test"))
		settled()
		publish(t, topic, "4")
		settled()
		wantReceived(t, got, map[string][]string{"first": {"1", "2", "3", "4"}, "late": {"2", "4"}})

		r, err := topic.Rewind(t.Context(), "late", From(time.Unix(1, 0)))
		if err != nil {
			t.Fatal(err)
		}
		settled()
		if _, exact := c.store.(unlinked); exact {
			return // the queue remembers the ids of its messages for a day
		}
		if r != (Rewound{Sent: 2, Kept: 2}) && r != (Rewound{Sent: 3, Kept: 1}) {
			t.Errorf("Rewind = %+v", r)
		}
		if list := got["late"].list(); !slices.Contains(list[2:], "1") || slices.Contains(list, "3") {
			t.Errorf("late received %q", list)
		}
		_, err = topic.Rewind(t.Context(), "unknown", From(middle))
		wantError(t, err, ErrNotFound)
	})
}

func TestTopicHistoryStartsAtAMessage(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		topic := c.Topic("orders")
		configure(t, topic, TopicConfig{HistoryCount: 1000})
		subscribe(t, topic, "first")
		w, got := collect(c, "first", "late")
		start(t, w)
		settled()
		for _, id := range []string{"1", "2", "3"} {
			publish(t, topic, id, WithID(id))
			settled()
		}
		wantError(t, topic.Subscribe(t.Context(), "late", FromID("unknown")), ErrNotFound)
		wantError(t, topic.Subscribe(t.Context(), "late", FromID("")), ErrInvalid)
		wantError(t, topic.Subscribe(t.Context(), "late", FromID("1"), From(time.Unix(1, 0))), ErrInvalid)
		subscribe(t, topic, "late", FromID("2"))
		settled()
		wantReceived(t, got, map[string][]string{"first": {"1", "2", "3"}, "late": {"2", "3"}})
		if _, err := topic.Rewind(t.Context(), "late", FromID("3")); err != nil {
			t.Error(err)
		}
		_, err := topic.Rewind(t.Context(), "late", FromID("4"))
		wantError(t, err, ErrNotFound)
		_, err = topic.Rewind(t.Context(), "late", From(time.Time{}))
		wantError(t, err, ErrInvalid)
	})
}
