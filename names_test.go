package later

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

func TestNothingNewIsNamedByDots(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		hour := recurrence.Spec{Every: time.Hour}
		errOf := func(_ any, err error) error { return err }
		for _, name := range []string{".", ".."} {
			dots, q := c.Queue(name), c.Queue("q")
			offsets := Series{Until: time.Now().Add(time.Hour), Offsets: []time.Duration{0}}
			worker := NewWorker(c, WorkerConfig{Name: name})
			worker.Handle("q", func(context.Context, *Message) error { return nil })
			for what, err := range map[string]error{
				"id":            errOf(q.Send(ctx, nil, WithID(name))),
				"message":       errOf(q.SendMessage(ctx, Outgoing{ID: name})),
				"batch":         errOf(q.SendBatch(ctx, []Outgoing{{ID: name}})),
				"group":         errOf(q.Send(ctx, nil, Group(name))),
				"key":           errOf(q.Send(ctx, nil, Key(name))),
				"queue":         errOf(dots.Send(ctx, nil)),
				"queue message": errOf(dots.SendMessage(ctx, Outgoing{})),
				"queue batch":   errOf(dots.SendBatch(ctx, []Outgoing{{}})),
				"follow-up":     Then(name, nil).err,
				"series":        errOf(q.SendSeries(ctx, nil, offsets, WithID(name))),
				"pause":         dots.Pause(ctx),
				"retention":     dots.SetDeadRetention(ctx, Retention{MaxCount: 1}),
				"topic":         errOf(c.Topic(name).Publish(ctx, nil)),
				"topic config":  c.Topic(name).Configure(ctx, TopicConfig{}),
				"topic's queue": c.Topic(name).Subscribe(ctx, "q"),
				"subscription":  c.Topic("t").Subscribe(ctx, name),
				"schedule":      errOf(c.Schedules().Put(ctx, Schedule{Name: name, Queue: "q", When: hour})),
				"schedule set":  errOf(c.Schedules().Put(ctx, Schedule{Name: "s", Queue: "q", Set: name, When: hour})),
				"its queue":     errOf(c.Schedules().Put(ctx, Schedule{Name: "s", Queue: name, When: hour})),
				"its topic":     errOf(c.Schedules().Put(ctx, Schedule{Name: "s", Queue: "topic:" + name, When: hour})),
				"destination":   ToQueue(name).invalid,
				"worker":        worker.Run(ctx),
			} {
				wantError(t, err, ErrInvalid)
				if err == nil || !strings.Contains(err.Error(), `is "`+name+`", which URLs cannot have`) {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		if queues, err := c.Queues(ctx); err != nil || len(queues) > 0 {
			t.Errorf("%v, %v", queues, err)
		}
	})
}

func TestQueueNamedByDotsCanBeEmptied(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		ctx, q := t.Context(), c.Queue("..")
		for _, id := range []string{".", "..", "a"} {
			m := store.Outgoing{Message: store.Message{ID: id}}
			if _, err := c.store.Send(ctx, "..", []store.Outgoing{m}); err != nil {
				t.Fatal(err)
			}
		}
		if d := mustReceive(t, q, 1)[0]; d.ID != "." || d.Ack(ctx) != nil {
			t.Error(d.ID)
		}
		if was, err := q.Cancel(ctx, ".."); err != nil || was != StateReady {
			t.Error(was, err)
		}
		if page, err := q.List(ctx, ListOptions{State: StateReady}); err != nil || len(page.Messages) != 1 {
			t.Error(page, err)
		}
		if err := q.Resume(ctx); err != nil {
			t.Error(err)
		}
		if err := q.Delete(ctx); err != nil {
			t.Error(err)
		}
	})
}
