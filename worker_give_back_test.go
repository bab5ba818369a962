package later

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/outcome"
)

type giveBackOrder struct{ Number int }

// decoder is a destination that takes the messages that it can decode.
type decoder struct{ orders Typed[giveBackOrder] }

func (d decoder) Deliver(_ context.Context, msgs []*Message) []error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		_, errs[i] = d.orders.Decode(m)
	}
	return errs
}

func (d decoder) String() string { return "decoder" }

// undecodable has workers of an old version handle a queue in each of the ways, by name.
var undecodable = map[string]func(w *Worker){
	"handler": func(w *Worker) {
		w.Handle("q", Handler(func(context.Context, giveBackOrder, *Message) error { return nil }))
	},
	"batch": func(w *Worker) {
		w.HandleBatch("q", decoder{TypedQueue[giveBackOrder](w.client.Queue("q"))}.Deliver, BatchConfig{})
	},
	"mux": func(w *Worker) {
		mux := NewMux()
		mux.Handle("*", Handler(func(context.Context, giveBackOrder, *Message) error { return nil }))
		w.HandleMux("q", mux)
	},
	"destination": func(w *Worker) {
		w.Forward("q", To(decoder{TypedQueue[giveBackOrder](w.client.Queue("q"))}))
	},
}

func TestUndecodablePayloadIsGivenBackForAnHourAndThenDead(t *testing.T) {
	for name, handle := range undecodable {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Client) {
				q := c.Queue("q")
				run := func() (stop func() error) {
					w := NewWorker(c, WorkerConfig{Name: name})
					handle(w)
					return start(t, w)
				}
				stop := run()
				mustSend(t, q, `{"Number":7}`)
				mustSend(t, q, `{"Number":"seven"}`, WithID("new"), MaxAttempts(1))
				synctest.Wait()
				begin := time.Now()
				for range 59 { // restarts do not begin the hour again
					time.Sleep(time.Minute)
					info, err := q.Get(t.Context(), "new")
					if err != nil || info.Attempts != 0 || !strings.Contains(info.LastError, "cannot be decoded into later.give") ||
						len(info.Failures) != 1 || info.Failures[0].Attempt != 0 || !info.Failures[0].Time.Equal(begin) {
						t.Fatalf("after %v: %+v, %v", time.Since(begin), info, err)
					}
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					stop = run()
				}
				time.Sleep(3 * time.Minute) // the last delay may have begun before the end of the hour
				info, err := q.Get(t.Context(), "new")
				if err != nil || info.DeadReason != DeadUnreadable || info.Attempts != 1 ||
					!strings.Contains(info.LastError, "payload cannot be decoded into later.give") {
					t.Errorf("after the hour: %+v, %v", info, err)
				}
				if age := info.DiedAt.Sub(begin); age < time.Hour || age > time.Hour+outcome.MaxGiveBack {
					t.Errorf("it died after %v", age)
				}
				wantCounts(t, q, 0, 0, 0, 1)
			})
		})
	}
}

func TestUndecodablePayloadIsDeadAtOnceBelowZero(t *testing.T) {
	for name, cfg := range map[string]WorkerConfig{
		"worker": {GiveBackFor: -1},
		"queue":  {GiveBackFor: time.Minute, Queues: map[string]QueueConfig{"q": {GiveBackFor: -1}}},
	} {
		for _, handle := range undecodable {
			inBubble(t, func(t *testing.T, c *Client) {
				var events log[EventKind]
				c.observe = func(e Event) { events.add(e.Kind) }
				w := NewWorker(c, cfg)
				handle(w)
				start(t, w)
				mustSend(t, c.Queue("q"), "no JSON", WithID("a"))
				synctest.Wait()
				if info, err := c.Queue("q").Get(t.Context(), "a"); err != nil || info.DeadReason != DeadUnreadable {
					t.Errorf("%s: Get returned %+v, %v", name, info, err)
				}
				if all := events.list(); !slices.Contains(all, EventBuried) || slices.Contains(all, EventGivenBack) {
					t.Errorf("%s: events are %v", name, all)
				}
			})
		}
	}
}

func TestGiveBackForIsChecked(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		for _, cfg := range []WorkerConfig{
			{GiveBackFor: 1 << 62}, {Queues: map[string]QueueConfig{"q": {GiveBackFor: 1 << 62}}},
		} {
			w := NewWorker(c, cfg)
			w.Handle("q", ignore)
			if err := w.Run(t.Context()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "GiveBackFor is") {
				t.Errorf("Run returned %v", err)
			}
		}
	})
}

func TestDeliveryIsGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		mustSend(t, q, "", WithID("a"))
		reason := errors.New("of another version")
		for range 2 {
			d := mustReceive(t, q, 1)[0]
			if d.Attempt != 1 {
				t.Errorf("attempt is %d", d.Attempt)
			}
			if err := d.GiveBack(t.Context(), time.Minute, -1, reason); err != nil {
				t.Fatal(err)
			}
			wantCounts(t, q, 1, 0, 0, 0)
			time.Sleep(time.Minute)
		}
		if err := mustReceive(t, q, 1)[0].GiveBack(t.Context(), 0, time.Minute, reason); err != nil {
			t.Fatal(err)
		}
		if info, err := q.Get(t.Context(), "a"); err != nil || info.DeadReason != DeadUnreadable ||
			info.LastError != reason.Error() {
			t.Errorf("Get returned %+v, %v", info, err)
		}
	})
}

func TestUnknownKindOutlivesTheTimeThatPayloadsHave(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		mux := NewMux()
		mux.Handle("known", ignore)
		w := NewWorker(c, WorkerConfig{GiveBackFor: time.Minute})
		w.HandleMux("q", mux)
		start(t, w)
		mustSend(t, c.Queue("q"), "", Kind("other"))
		time.Sleep(3 * time.Hour)
		if stats, err := c.Queue("q").Stats(t.Context()); err != nil || stats.Dead != 0 || stats.Scheduled+stats.Leased != 1 {
			t.Errorf("after three hours: %+v, %v", stats, err)
		}
	})
}

func TestWorkersShowWhatForwardersGiveBack(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{Name: "w"})
		undecodable["destination"](w)
		start(t, w)
		mustSend(t, c.Queue("q"), "no JSON", Kind("k"))
		time.Sleep(20 * time.Minute)
		all, err := c.ReportWorkers(t.Context(), time.Second)
		if err != nil || len(all) != 1 || len(all[0].GivenBack) != 1 || all[0].GivenBack[0].Messages != 1 ||
			all[0].GivenBack[0].Kind != "k" {
			t.Errorf("ReportWorkers returned %+v, %v", all, err)
		}
	})
}
