package later

import (
	"context"
	"errors"
	"fmt"
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

// A mistyped kind shows wherever people look: in the message, its explanation, the workers and the events.
func TestUnknownKindIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var given log[string]
		c.observe = func(e Event) {
			if e.Kind == EventGivenBack {
				given.add(fmt.Sprint(e.ID, " ", e.Err))
			}
		}
		mux := NewMux()
		mux.Handle("order.cancel", ignore)
		w := NewWorker(c, WorkerConfig{Name: "w", Concurrency: 1})
		w.HandleMux("q", mux)
		stop := start(t, w)
		begin := time.Now()
		for i := range 3 {
			mustSend(t, q, "", WithID(fmt.Sprint(i)), Kind("order.cancle"))
		}
		synctest.Wait()
		const why = `kind "order.cancle" has no handler`
		all := given.list()
		slices.Sort(all) // messages that are given back together have their events at the same time
		if !slices.Equal(all, []string{"0 " + why, "1 " + why, "2 " + why}) {
			t.Errorf("events: %q", all)
		}
		time.Sleep(20 * time.Minute)
		info, err := q.Get(t.Context(), "0")
		if err != nil || info.Attempts != 0 || info.LastError != why || info.Failures[0].Worker != "w" {
			t.Errorf("Get returned %+v, %v", info, err)
		}
		wantWhy := func(reason Why, text string) {
			t.Helper()
			e, err := q.Explain(t.Context(), "0")
			if err != nil || e.Reason != reason || !strings.Contains(e.Text(time.UTC), text) {
				t.Errorf("Explain returned %+v, %v: %q; want %s", e, err, e.Text(time.UTC), reason)
			}
			if reason == WhyGivenBack && (e.Error != why || e.Worker != "w" || !e.GivenBackAt.Equal(begin)) {
				t.Errorf("Explain returned %+v", e)
			}
		}
		wantWhy(WhyGivenBack, "workers have given it back for another version for 20 min")
		workers, err := c.ReportWorkers(t.Context(), time.Second)
		want := []GivenBack{{Queue: "q", Kind: "order.cancle", Error: why, Messages: 3}}
		if err != nil || len(workers) != 1 || !slices.Equal(workers[0].GivenBack, want) {
			t.Errorf("ReportWorkers returned %+v, %v; want %v", workers, err, want)
		}
		if err := q.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * outcome.MaxGiveBack)
		wantWhy(WhyPaused, "paused")
		if all, err := c.ReportWorkers(t.Context(), time.Second); err != nil || len(all) != 1 || len(all[0].GivenBack) != 0 {
			t.Errorf("after the last of them fell due ReportWorkers returned %+v, %v", all, err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if err := q.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantWhy(WhyNoWorker, "no worker is running")
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
