package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later"
)

// demoReport prints what happens in the shop and counts deliveries.
type demoReport struct {
	main    *Main
	failed  func(error) // called when the output is closed or full
	colours bool
	opened  time.Time
	clock   engineClock

	mu       sync.Mutex
	lateness []time.Duration // of each delivery
	early    int
}

func newDemoReport(m *Main, failed func(error)) *demoReport {
	return &demoReport{main: m, failed: failed, colours: m.colours(), opened: time.Now()}
}

func (r *demoReport) title(url string) {
	if !r.main.json {
		r.main.print("A shop on %s. Its orders cancel themselves when they are not paid in time.\n\n", url)
	}
}

// colour of what happened, as a number of ECMA-48's SGR.
var colour = map[string]int{"placed": 2, "paid": 36, "moved": 36, "delivered": 32, "failed": 33, "dead": 31, "too late": 33}

type happeningJSON struct {
	AtMS       float64  `json:"at_ms"`
	Event      string   `json:"event"`
	Queue      string   `json:"queue"`
	ID         string   `json:"id"`
	Text       string   `json:"text"`
	Attempt    int      `json:"attempt,omitempty"`
	LatenessMS *float64 `json:"lateness_ms,omitempty"`
}

// did prints something that the shop did.
func (r *demoReport) did(event string, q *later.Queue, id, text string) {
	r.line(happeningJSON{Event: event, Queue: q.Name(), ID: id, Text: text}, "")
}

// delivered prints a delivery that was handled.
func (r *demoReport) delivered(m *later.Message, text string) {
	if m.Attempt > 1 {
		text += fmt.Sprintf(" (attempt %d)", m.Attempt)
	}
	r.delivery("delivered", m, text)
}

func (r *demoReport) delivery(event string, m *later.Message, text string) {
	late := millisJSON(m.Lateness)
	r.line(happeningJSON{Event: event, Queue: m.Queue, ID: m.ID, Text: text, Attempt: m.Attempt, LatenessMS: &late},
		formatMillis(m.Lateness)+" late")
}

func (r *demoReport) line(h happeningJSON, late string) {
	at := time.Since(r.opened)
	if r.main.json {
		h.AtMS = millisJSON(at)
		if err := r.main.printJSON(h); err != nil {
			r.failed(err)
		}
		return
	}
	event := fmt.Sprintf("%-9s", h.Event)
	if r.colours {
		event = fmt.Sprintf("\x1b[%dm%s\x1b[0m", colour[h.Event], event)
	}
	line := fmt.Sprintf("%7.3fs  %s  %-11s  %-48s %12s", at.Seconds(), event, h.ID, h.Text, late)
	if err := r.main.print("%s\n", strings.TrimRight(line, " ")); err != nil {
		r.failed(err)
	}
}

// deliveries is the middleware that counts each delivery as it comes, and prints the failed ones.
func (r *demoReport) deliveries(next later.HandlerFunc) later.HandlerFunc {
	return func(ctx context.Context, m *later.Message) error {
		early := r.clock.isBefore(time.Now(), m.Due) || m.Lateness < 0
		r.mu.Lock()
		r.lateness = append(r.lateness, m.Lateness)
		if early {
			r.early++
		}
		r.mu.Unlock()
		err := next(ctx, m)
		if err != nil {
			r.delivery("failed", m, fmt.Sprintf("%v (attempt %d of %d)", err, m.Attempt, m.MaxAttempts))
		}
		return err
	}
}

func (r *demoReport) stats(all []queueStats) error {
	if r.main.json {
		return r.main.printStats(all)
	}
	return r.main.print("\n%s\n", indent(statsTable(all)))
}

func (r *demoReport) dead(t *table) error {
	if r.main.json || len(t.rows) == 0 {
		return nil
	}
	return r.main.print("\nDead, kept with the reason until replayed or purged:\n\n%s\n", indent(t))
}

func indent(t *table) string { return "  " + strings.Join(t.lines(), "\n  ") + "\n" }

type summaryJSON struct {
	Delivered int     `json:"delivered"`
	Early     int     `json:"early"`
	P50MS     float64 `json:"lateness_p50_ms"`
	P99MS     float64 `json:"lateness_p99_ms"`
	MaxMS     float64 `json:"lateness_max_ms"`
}

// summary prints the last line.
func (r *demoReport) summary() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.lateness)
	p50, p99, most := percentile(r.lateness, 50), percentile(r.lateness, 99), percentile(r.lateness, 100)
	return r.main.printResult(
		summaryJSON{len(r.lateness), r.early, millisJSON(p50), millisJSON(p99), millisJSON(most)},
		"delivered=%d early=%d lateness p50=%s p99=%s max=%s",
		len(r.lateness), r.early, formatMillis(p50), formatMillis(p99), formatMillis(most))
}

// percentile gives the smallest of the sorted durations that p percent of them do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// engineClock is the store's clock as seen from this process. The zero value is one that is the same.
type engineClock struct {
	ahead time.Duration // of ours
	error time.Duration // of ahead, at most
}

// clockSamples is how often the clocks are compared; the quickest answer is the most exact one.
const clockSamples = 10

// measure compares the store's clock with ours.
func (c *engineClock) measure(ctx context.Context, q *later.Queue) error {
	for i := range clockSamples {
		asked := time.Now()
		stats, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		roundTrip := time.Since(asked)
		if i == 0 || roundTrip/2 < c.error {
			*c = engineClock{ahead: stats.Now.Sub(asked.Add(roundTrip / 2)), error: roundTrip / 2}
		}
	}
	return nil
}

// isBefore tells whether the store's clock surely had not reached t when ours showed now.
func (c *engineClock) isBefore(now, t time.Time) bool {
	return now.Add(c.ahead + c.error).Before(t)
}

// living counts the messages that are not yet done or dead.
type living struct {
	mu      sync.Mutex
	count   int
	changed chan struct{} // holds a token after a change
}

func newLiving() *living { return &living{changed: make(chan struct{}, 1)} }

func (l *living) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count += n
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *living) cancelled() { l.add(-1) }

func (l *living) observe(e later.Event) {
	switch e.Kind {
	case later.EventSent:
		l.add(1)
	case later.EventAcked, later.EventDied:
		l.add(-1)
	}
}

// awaitNone waits until there are none, or ctx ends. It is to be called when all have been sent.
func (l *living) awaitNone(ctx context.Context) error {
	for {
		l.mu.Lock()
		count := l.count
		l.mu.Unlock()
		if count == 0 {
			return nil
		}
		select {
		case <-l.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
