package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

var eventRules = []rule{
	{"activity counts what was reported by kind", func(e *env) {
		e.send(message("m"))
		e.report(store.Report{Counts: map[store.EventKind]int64{"sent": 3, "lease_lost": 1}})
		e.report(store.Report{Counts: map[store.EventKind]int64{"sent": 4, "acked": 0}})
		a := e.activity()
		want := map[store.EventKind]int64{"sent": 7, "lease_lost": 1}
		e.equal("last minute", a.Minute.Counts, want)
		e.equal("last hour", a.Hour.Counts, want)
		e.equal("last day", a.Day.Counts, want)
		e.equal("exists", a.Exists, true)
	}},
	{"windows last as long as documented", func(e *env) {
		e.send(message("m"))
		for range 7 {
			a := e.activity()
			for _, w := range []struct {
				name        string
				got         store.ActivityWindow
				least, most time.Duration
			}{
				{"minute", a.Minute, time.Minute, 70 * time.Second},
				{"hour", a.Hour, time.Hour, 65 * time.Minute},
				{"day", a.Day, 24 * time.Hour, 25 * time.Hour},
			} {
				if d := a.Now.Sub(w.got.From); d < w.least || d > w.most {
					e.Errorf("the last %s began %v ago", w.name, d)
				}
			}
			e.advance(3701 * time.Millisecond)
		}
	}},
	{"counts leave the minute, the hour and the day", func(e *env) {
		e.send(message("m"))
		counts := func() [3]int64 {
			a := e.activity()
			return [3]int64{a.Minute.Counts["sent"], a.Hour.Counts["sent"], a.Day.Counts["sent"]}
		}
		e.report(store.Report{Counts: map[store.EventKind]int64{"sent": 1}})
		e.advance(60 * time.Second)
		e.equal("after a minute", counts(), [3]int64{1, 1, 1})
		e.advance(10 * time.Second)
		e.equal("after a minute and a step", counts(), [3]int64{0, 1, 1})
		e.report(store.Report{Counts: map[store.EventKind]int64{"sent": 10}})
		e.equal("after another report", counts(), [3]int64{10, 11, 11})
		e.advance(time.Hour - 70*time.Second)
		e.equal("after an hour", counts(), [3]int64{0, 11, 11})
		e.advance(5*time.Minute + 70*time.Second)
		e.equal("after an hour and a step", counts(), [3]int64{0, 0, 11})
		e.report(store.Report{Counts: map[store.EventKind]int64{"sent": 100}})
		e.advance(23 * time.Hour)
		e.equal("after a day and a step", counts()[2] >= 100, true)
		e.advance(2 * time.Hour)
		e.equal("after another day and a step", counts(), [3]int64{})
	}},
	{"buckets are used again", func(e *env) {
		e.send(message("m"))
		for range 30 {
			e.report(store.Report{Counts: map[store.EventKind]int64{"sent": 1}})
			e.advance(10 * time.Second)
		}
		a := e.activity() // the current step has nothing yet
		e.equal("last minute", a.Minute.Counts["sent"], int64(6))
		e.equal("last hour", a.Hour.Counts["sent"], int64(30))
	}},
	{"parts of a window are its steps, the current one last", func(e *env) {
		e.send(message("m"))
		started := e.activity().Now
		e.report(store.Report{Counts: map[store.EventKind]int64{"sent": 1}})
		e.advance(5 * time.Minute)
		e.report(store.Report{Counts: map[store.EventKind]int64{"sent": 2, "acked": 3}})
		a := e.activity()
		for _, w := range []struct {
			store.ActivityWindow
			parts int
			step  time.Duration
		}{{a.Minute, 7, 10 * time.Second}, {a.Hour, 13, 5 * time.Minute}, {a.Day, 25, time.Hour}} {
			e.equal("parts", len(w.Parts), w.parts)
			e.equal("step", w.Step, w.step)
			e.equal("begins at a multiple of the step", w.From.UnixMilli()%w.Step.Milliseconds(), int64(0))
			e.equal("the current part goes on", a.Now.Sub(w.From) < w.Step*time.Duration(w.parts), true)
			sum := map[store.EventKind]int64{}
			for _, part := range w.Parts {
				for kind, n := range part {
					sum[kind] += n
				}
			}
			e.equal("sum of the parts", sum, w.Counts)
		}
		e.equal("this part", a.Hour.Parts[12]["acked"], int64(3))
		e.equal("the part before", a.Hour.Parts[11]["sent"], int64(1))
		e.equal("it ended before now", a.Now.Sub(started) >= 5*time.Minute, true)
	}},
	{"a queue that does not exist has no activity", func(e *env) {
		e.report(store.Report{Counts: map[store.EventKind]int64{"sent": 1}})
		e.equal("activity", e.activity().Day.Counts, map[store.EventKind]int64{})
		e.equal("exists", e.activity().Exists, false)
		e.equal("stats", e.stats().Exists, false)
	}},
	{"delete removes the activity", func(e *env) {
		e.send(message("m"))
		e.report(store.Report{Counts: map[store.EventKind]int64{"sent": 1}})
		e.ok(e.Store.Delete(e.Context(), e.queue))
		e.send(message("m"))
		e.equal("activity", e.activity().Day.Counts, map[store.EventKind]int64{})
	}},
	{"counts are exact above 2^31", func(e *env) {
		e.send(message("m"))
		const many = 3_000_000_000_001
		e.report(store.Report{Counts: map[store.EventKind]int64{"sent": many}})
		e.report(store.Report{Counts: map[store.EventKind]int64{"sent": many}})
		e.equal("activity", e.activity().Minute.Counts["sent"], int64(2*many))
	}},
	{"a report carries as many kinds as are allowed", func(e *env) {
		e.send(message("m"))
		counts := map[store.EventKind]int64{}
		for i := range store.MaxEventKinds {
			counts[store.EventKind(strings.Repeat(string(rune('a'+i%26)), 1+i/26)+"_x")] = int64(i + 1)
		}
		e.report(store.Report{Counts: counts})
		e.equal("activity", e.activity().Hour.Counts, counts)
	}},
	{"a watcher receives what is reported of its queues", func(e *env) {
		w := e.watch(e.queue)
		other := newQueueName()
		e.report(store.Report{Queue: other, Events: []byte("elsewhere"), Number: 1})
		binary := "one\x00\xff two"
		e.equal("watchers", e.report(store.Report{Events: []byte(binary), Number: 2}), 1)
		r := e.next(w)
		e.equal("events", string(r.Events), binary)
		e.equal("queue", r.Queue, e.queue)
		e.equal("missed", r.Missed, 0)
		e.equal("gap", r.Gap, false)
	}},
	{"events arrive in the order of their reports", func(e *env) {
		w := e.watch(e.queue)
		for i := range 100 {
			e.report(store.Report{Events: fmt.Append(nil, i), Number: 1})
		}
		for i := range 100 {
			e.equal("events", string(e.next(w).Events), fmt.Sprint(i))
		}
	}},
	{"a report without watchers says so", func(e *env) {
		e.equal("watchers", e.report(store.Report{Events: []byte("x"), Number: 1}), 0)
		w := e.watch(e.queue)
		e.equal("watchers", e.report(store.Report{}), 1)
		e.ok(w.Close())
		e.noWatchers(e.queue)
	}},
	{"every watcher receives all events", func(e *env) {
		first, second := e.watch(e.queue), e.watch(e.queue)
		e.equal("watchers", e.report(store.Report{Events: []byte("x"), Number: 1}), 2)
		e.equal("first", string(e.next(first).Events), "x")
		e.equal("second", string(e.next(second).Events), "x")
	}},
	{"queues can be added to a watcher", func(e *env) {
		w := e.watch()
		other := newQueueName()
		e.ok(w.Add(e.Context(), e.queue, other, e.queue))
		e.ok(w.Add(e.Context(), other))
		e.equal("watchers", e.report(store.Report{Queue: other, Events: []byte("x"), Number: 1}), 1)
		r := e.next(w)
		e.equal("queue", r.Queue, other)
		e.report(store.Report{Events: []byte("y"), Number: 1})
		e.equal("queue", e.next(w).Queue, e.queue)
	}},
	{"a watcher of all queues receives what is reported of any", func(e *env) {
		w, err := e.Peer.Watch(e.Context(), []string{store.AllQueues})
		if errors.Is(err, store.ErrUnsupported) {
			e.Skip("this engine watches only queues that it is told")
		}
		e.ok(err)
		e.Cleanup(func() { w.Close() })
		fresh := newQueueName()
		for _, queue := range []string{e.queue, fresh} {
			e.equal("watchers", e.report(store.Report{Queue: queue, Events: []byte("x"), Number: 1}), 1)
			e.equal("queue", e.next(w).Queue, queue)
		}
		e.ok(w.Add(e.Context(), fresh))
		for range 2 {
			e.equal("watchers", e.report(store.Report{Queue: fresh, Events: []byte("y"), Number: 1}), 1)
			r := e.next(w)
			e.equal("events", r.Queue+" "+string(r.Events), fresh+" y")
		}
		e.ok(w.Close())
		e.noWatchers(fresh)
	}},
	{"a watcher that does not read misses events and delays nobody", func(e *env) {
		w := e.watch(e.queue)
		const reports = 5000
		for range reports {
			e.equal("watchers", e.report(store.Report{Events: []byte("0123456789"), Number: 10}), 1)
		}
		e.report(store.Report{Events: []byte("end"), Number: 1})
		got, missed := 0, 0
		for got+missed < 10*reports+1 {
			r := e.next(w)
			missed += r.Missed
			switch string(r.Events) {
			case "end":
				got++
			case "0123456789":
				got += 10
			}
		}
		e.equal("received and missed", got+missed, 10*reports+1)
		if missed == 0 || got == 0 {
			e.Errorf("%d events were received and %d missed, want some of both", got, missed)
		}
	}},
	{"next ends with its context", func(e *env) {
		w := e.watch(e.queue)
		ctx, cancel := context.WithCancelCause(e.Context())
		cause := errors.New("enough")
		cancel(cause)
		_, err := w.Next(ctx)
		e.is(err, cause)
	}},
	{"a closed watcher returns ErrClosed", func(e *env) {
		w := e.watch(e.queue)
		ended := make(chan error, 1)
		go func() {
			_, err := w.Next(e.Context())
			ended <- err
		}()
		e.ok(w.Close())
		select {
		case err := <-ended:
			e.is(err, store.ErrClosed)
		case <-time.After(hangTimeout):
			e.Fatal("Next did not return")
		}
		e.is(w.Add(e.Context(), newQueueName()), store.ErrClosed)
		e.ok(w.Close())
	}},
	{"reports of several queues have their own results", func(e *env) {
		e.send(message("m"))
		e.watch(e.queue)
		other := newQueueName()
		results, err := e.Store.Report(e.Context(), []store.Report{
			{Queue: other, Events: []byte("x"), Number: 1},
			{Queue: e.queue, Counts: map[store.EventKind]int64{"acked": 2}},
		})
		e.ok(err)
		e.equal("results", results, []store.ReportResult{{}, {Watchers: 1}})
		e.equal("activity", e.activity().Minute.Counts, map[store.EventKind]int64{"acked": 2})
	}},
}

var eventCloseRules = []rule{
	{"close ends watchers", func(e *env) {
		w, err := e.Store.Watch(e.Context(), []string{e.queue})
		e.ok(err)
		ended := make(chan error, 1)
		go func() {
			_, err := w.Next(e.Context())
			ended <- err
		}()
		e.ok(e.Store.Close())
		select {
		case err := <-ended:
			e.is(err, store.ErrClosed)
		case <-time.After(hangTimeout):
			e.Fatal("Next did not return")
		}
		e.is(w.Add(e.Context(), newQueueName()), store.ErrClosed)
		_, err = e.Store.Watch(e.Context(), []string{e.queue})
		e.is(err, store.ErrClosed)
		_, err = e.Store.Activity(e.Context(), e.queue)
		e.is(err, store.ErrClosed)
	}},
}

// report reports, of the env's queue if the Report names none, and returns the number of watchers.
func (e *env) report(r store.Report) int {
	e.Helper()
	if r.Queue == "" {
		r.Queue = e.queue
	}
	e.ok(r.Check())
	results, err := e.Store.Report(e.Context(), []store.Report{r})
	e.ok(err)
	e.equal("number of results", len(results), 1)
	e.ok(results[0].Err)
	return results[0].Watchers
}

// watch returns a watcher of another process that is closed with the rule.
func (e *env) watch(queues ...string) store.Watcher {
	e.Helper()
	w, err := e.Peer.Watch(e.Context(), queues)
	e.ok(err)
	e.Cleanup(func() { w.Close() })
	return w
}

func (e *env) next(w store.Watcher) store.Reported {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), hangTimeout)
	defer cancel()
	r, err := w.Next(ctx)
	e.ok(err)
	return r
}

func (e *env) activity() store.Activity {
	e.Helper()
	a, err := e.Peer.Activity(e.Context(), e.queue)
	e.ok(err)
	return a
}

// noWatchers waits until the watchers of a queue have gone. An engine may learn that a connection was closed a moment
// later.
func (e *env) noWatchers(queue string) {
	e.Helper()
	deadline := time.Now().Add(hangTimeout)
	for e.report(store.Report{Queue: queue}) > 0 {
		if time.Now().After(deadline) {
			e.Fatal("there are still watchers")
		}
	}
}
