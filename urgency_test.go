package later

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// An urgent message starts before bulk that has waited longer, and bulk still gets its share.
func TestUrgentMessagesStartFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("mail")
		if err := q.SetFlow(t.Context(), Flow{Urgency: true}); err != nil {
			t.Fatal(err)
		}
		var started log[Urgency]
		w := NewWorker(c, WorkerConfig{Concurrency: 1})
		w.Handle("mail", func(_ context.Context, m *Message) error {
			started.add(m.Urgency)
			return nil
		})
		var out []Outgoing
		for range 70 {
			out = append(out, Outgoing{Urgency: UrgencyLow}, Outgoing{}, Outgoing{Urgency: UrgencyHigh})
		}
		if _, err := q.SendBatch(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		go w.Run(t.Context())
		synctest.Wait()
		all := started.list()
		if len(all) != len(out) || all[0] != UrgencyHigh {
			t.Fatalf("started %d messages, the first %q", len(all), all[0])
		}
		for from := range 63 { // while all three wait
			if next := all[from : from+8]; !slices.Contains(next, UrgencyNormal) {
				t.Errorf("no normal message in the eight from %d: %q", from, next)
			}
		}
		if next := all[:64]; !slices.Contains(next, UrgencyLow) {
			t.Errorf("no message of low urgency in the first 64: %q", next)
		}
		high := 0
		for _, u := range all[:64] {
			if u == UrgencyHigh {
				high++
			}
		}
		if high < 54 {
			t.Errorf("%d of the first 64 messages are urgent, want at least 54", high)
		}
	})
}

// A queue without urgency refuses urgent messages before it writes anything, and so does a default of a queue.
func TestUrgencyIsRefusedWithoutAFlow(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	want := `urgency is "high", and messages of queue "q" have none`
	_, err := q.Send(t.Context(), nil, Urgent())
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("send: %v", err)
	}
	_, err = q.SendBatch(t.Context(), []Outgoing{{}, {Urgency: UrgencyLow}})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `urgency is "low"`) {
		t.Errorf("batch: %v", err)
	}
	if stats, err := q.Stats(t.Context()); err != nil || stats.Exists {
		t.Errorf("the queue exists: %+v, %v", stats, err)
	}
	urgent, err := q.With(Urgent())
	if err != nil {
		t.Fatal(err)
	}
	if err := q.SetFlow(t.Context(), Flow{Urgency: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := urgent.Send(t.Context(), nil, WithID("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := urgent.Send(t.Context(), nil, WithID("b"), Background()); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]Urgency{"a": UrgencyHigh, "b": UrgencyLow} {
		if info, err := q.Get(t.Context(), id); err != nil || info.Urgency != want {
			t.Errorf("%s has the urgency %q, %v; want %q", id, info.Urgency, err, want)
		}
	}
	if err := q.SetFlow(t.Context(), Flow{}); err != nil {
		t.Fatal(err)
	}
	change := func(u Urgency) func(o *Outgoing) error {
		return func(o *Outgoing) error { o.Payload, o.Urgency = []byte("new"), u; return nil }
	}
	if err := q.Edit(t.Context(), "a", change(UrgencyHigh)); err != nil {
		t.Errorf("edit that keeps the urgency: %v", err)
	}
	if err := q.Edit(t.Context(), "b", change(UrgencyHigh)); !errors.Is(err, ErrInvalid) {
		t.Errorf("edit that changes the urgency: %v", err)
	}
	if _, err := q.Send(t.Context(), nil, Urgent(), Background()); !errors.Is(err, ErrInvalid) {
		t.Errorf("two urgencies: %v", err)
	}
}

// Every type with options of a message has all of them.
func TestTypesHaveTheOptionsOfMessages(t *testing.T) {
	for _, test := range []struct{ of, has reflect.Type }{
		{reflect.TypeFor[message.Options](), reflect.TypeFor[store.Message]()},
		{reflect.TypeFor[message.Options](), reflect.TypeFor[Outgoing]()},
		{reflect.TypeFor[message.Options](), reflect.TypeFor[Info]()},
		{reflect.TypeFor[message.Common](), reflect.TypeFor[Schedule]()},
		{reflect.TypeFor[message.Handled](), reflect.TypeFor[Message]()},
	} {
		for _, option := range reflect.VisibleFields(test.of) {
			if _, ok := test.has.FieldByName(option.Name); !ok && !option.Anonymous {
				t.Errorf("%v has no field %s, as %v has", test.has, option.Name, test.of)
			}
		}
	}
}

// A schedule sends urgent messages to a queue without urgency, in which they are normal.
func TestScheduledMessagesHaveAnUrgency(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		s := everyMinute("reset")
		s.Urgency = UrgencyHigh
		if _, err := c.Schedules().Put(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		var got log[Urgency]
		w := NewWorker(c, WorkerConfig{})
		w.Handle(s.Queue, func(_ context.Context, m *Message) error {
			got.add(m.Urgency)
			return nil
		})
		go w.Run(t.Context())
		time.Sleep(90 * time.Second)
		if _, err := c.Schedules().Trigger(t.Context(), s.Name); err != nil {
			t.Errorf("Trigger returned %v", err)
		}
		to := time.Now()
		if b, err := c.Schedules().Backfill(t.Context(), s.Name, to.Add(-time.Hour), to, false); err != nil || b.Sent == 0 {
			t.Errorf("Backfill returned %+v, %v", b, err)
		}
		synctest.Wait()
		list := got.list()
		if len(list) < 60 || !slices.Contains(list, UrgencyHigh) || slices.Contains(list, UrgencyNormal) {
			t.Errorf("received urgencies %q", list)
		}
	})
}

// Follow-ups keep their urgency, whether they are written with the ack or sent before it.
func TestFollowUpsKeepTheirUrgency(t *testing.T) {
	eachLink(t, func(t *testing.T, _ *faulty, c *Client, _ bool) {
		mustSend(t, c.Queue("orders"), "")
		d := mustReceive(t, c.Queue("orders"), 1)[0]
		if err := d.AckThen(t.Context(), Then("mail", nil, WithID("m"), Urgent())); err != nil {
			t.Fatal(err)
		}
		if info, err := c.Queue("mail").Get(t.Context(), "m"); err != nil || info.Urgency != UrgencyHigh {
			t.Errorf("Get returned %+v, %v", info, err)
		}
	})
}
