package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
)

// demoReport prints what happens in the shop and counts deliveries.
type demoReport struct {
	main    *Main
	failed  func(error) // is called when the output is closed or full
	colours bool
	elapsed func() time.Duration // running time of the demo
	clock   storeClock
}

func newDemoReport(m *Main, failed func(error)) *demoReport {
	return &demoReport{main: m, failed: failed, colours: m.colours()}
}

func (r *demoReport) title(url string) {
	if !r.main.json {
		r.main.print("A shop on %s. Orders that are not paid in time cancel themselves.\n\n", url)
	}
}

type resumedJSON struct {
	Event     string `json:"event"`
	StoppedAt string `json:"stopped_after"`
	Scheduled int    `json:"scheduled"`
	Ready     int    `json:"ready"`
	Leased    int    `json:"leased"`
	Dead      int    `json:"dead"`
}

// resumed prints what was found of a stopped demo.
func (r *demoReport) resumed(f *found) error {
	scheduled, ready, leased, dead := f.states[later.StateScheduled], f.states[later.StateReady],
		f.states[later.StateLeased], f.states[later.StateDead]
	now := time.Now()
	held := ""
	if leased > 0 {
		held = fmt.Sprintf(" (by the stopped worker: delivered again when its lease expires, within %s)",
			durations.Format(demoLease))
	}
	return r.main.printResult(resumedJSON{"resumed", wire.FormatTime(f.stopped), scheduled, ready, leased, dead},
		"Found %d messages of a demo that was stopped after %s (%s). It continues with\n"+
			"%d scheduled, %d ready, %d leased%s, %d dead.\n",
		len(f.pending)+dead, formatTime(f.stopped, now), formatRelative(f.stopped, now), scheduled, ready, leased, held, dead)
}

// colour is the colour of each event, as an SGR number of ECMA-48.
var colour = map[string]int{
	"placed": 2, "paid": 36, "moved": 36, "delivered": 32, "failed": 33, "dead": 31, "too late": 33,
}

type happeningJSON struct {
	At       wire.Duration  `json:"at"`
	Event    string         `json:"event"`
	Queue    string         `json:"queue"`
	ID       string         `json:"id"`
	Text     string         `json:"text"`
	Attempt  int            `json:"attempt,omitempty"`
	Lateness *wire.Duration `json:"lateness,omitempty"`
	Waited   bool           `json:"waited,omitempty"` // fell due while no demo was running
}

// did prints something that the shop did.
func (r *demoReport) did(event string, q *later.Queue, id, text string) {
	r.line(happeningJSON{Event: event, Queue: q.Name(), ID: id, Text: text}, "")
}

// delivery prints a delivery and the result of its handler.
func (r *demoReport) delivery(m *later.Message, text string, err error, waited bool) {
	event := "delivered"
	switch {
	case err != nil:
		event, text = "failed", fmt.Sprintf("%v (attempt %d of %d)", err, m.Attempt, m.MaxAttempts)
	case m.Attempt > 1:
		text += fmt.Sprintf(" (attempt %d)", m.Attempt)
	}
	late := formatMillis(m.Lateness) + " late"
	if waited {
		late = "due " + durations.Format(m.Lateness) + " ago"
	}
	lateness := wire.Measured(m.Lateness)
	r.line(happeningJSON{
		Event: event, Queue: m.Queue, ID: m.ID, Text: text, Attempt: m.Attempt, Lateness: &lateness, Waited: waited,
	}, late)
}

func (r *demoReport) line(h happeningJSON, late string) {
	at := r.elapsed()
	if r.main.json {
		h.At = wire.Measured(at)
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
	return r.main.print("\nDead messages, kept with the reason until they are replayed or purged:\n\n%s\n", indent(t))
}

func indent(t *table) string { return "  " + strings.Join(t.lines(), "\n  ") + "\n" }

type summaryJSON struct {
	Sent      int           `json:"sent"`
	Done      int           `json:"done"`
	Paid      int           `json:"paid"`
	Dead      int           `json:"dead"`
	Waiting   int           `json:"waiting"`
	Lost      int           `json:"lost"`
	Delivered int           `json:"delivered"`
	Again     int           `json:"again"`
	Early     int           `json:"early"`
	P50       wire.Duration `json:"lateness_p50"`
	P99       wire.Duration `json:"lateness_p99"`
	Max       wire.Duration `json:"lateness_max"`
	Stops     int           `json:"stops"`
	Waited    int           `json:"waited"`
	MaxWait   wire.Duration `json:"waited_max"`
}

// summary prints what became of all messages. The last line is meant for programs.
func (r *demoReport) summary(a *outcome) error {
	p50, p99, most := percentile(a.lateness, 50), percentile(a.lateness, 99), percentile(a.lateness, 100)
	return r.main.printResult(
		summaryJSON{
			a.sent, a.delivered, a.paid, a.dead, a.waiting, len(a.lost), a.deliveries, a.again, a.early,
			wire.Measured(p50), wire.Measured(p99), wire.Measured(most), a.stops, a.waited, wire.Measured(a.longest),
		},
		"%s\nsent=%d delivered=%d early=%d lost=%d lateness p50=%s p99=%s max=%s",
		a, a.sent, a.deliveries, a.early, len(a.lost), formatMillis(p50), formatMillis(p99), formatMillis(most))
}

func (a *outcome) String() string {
	parts := []string{
		fmt.Sprintf("%d done", a.delivered), fmt.Sprintf("%d cancelled by payment", a.paid), fmt.Sprintf("%d dead", a.dead),
	}
	if a.waiting > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting", a.waiting))
	}
	lost := "none"
	if len(a.lost) > 0 {
		lost = strconv.Itoa(len(a.lost))
	}
	text := fmt.Sprintf("Of %d messages sent: %s, %s lost; %d deliveries, including failed attempts.",
		a.sent, strings.Join(parts, ", "), lost, a.deliveries)
	if a.stops == 0 {
		return text
	}
	text += fmt.Sprintf("\nThe demo was stopped %s and continued.", times(a.stops))
	if a.waited > 0 {
		text += fmt.Sprintf(" %d deliveries fell due meanwhile and were at most %s late.",
			a.waited, durations.Format(a.longest))
	}
	if a.again > 0 {
		text += fmt.Sprintf(" %d messages were delivered again, because the stop came before their ack.", a.again)
	}
	return text
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// percentile returns the smallest of the sorted durations that p percent of them do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// storeClock is the difference between the store's clock and the local clock. The zero value means none.
type storeClock struct {
	ahead time.Duration // of the local clock
	error time.Duration // the maximum error of ahead
}

// clockSamples is how often the clocks are compared. The fastest reply is the most accurate.
const clockSamples = 10

// measure compares the store's clock with the local clock.
func (c *storeClock) measure(ctx context.Context, q *later.Queue) error {
	for i := range clockSamples {
		asked := time.Now()
		stats, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		roundTrip := time.Since(asked)
		if i == 0 || roundTrip/2 < c.error {
			*c = storeClock{ahead: stats.Now.Sub(asked.Add(roundTrip / 2)), error: roundTrip / 2}
		}
	}
	return nil
}

// isBefore reports whether the store's clock had certainly not reached t when the local clock showed now.
func (c *storeClock) isBefore(now, t time.Time) bool {
	return now.Add(c.ahead + c.error).Before(t)
}

// pendingCount counts the messages of the shop that are neither done nor dead, as far as this process knows.
type pendingCount struct {
	prefix string        // of the queues
	none   chan struct{} // receives a token when there may be none left

	mu    sync.Mutex
	count int
}

func newPendingCount(prefix string) *pendingCount {
	return &pendingCount{prefix: prefix, none: make(chan struct{}, 1)}
}

func (l *pendingCount) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count += n
	if l.count > 0 {
		return
	}
	select {
	case l.none <- struct{}{}:
	default:
	}
}

func (l *pendingCount) observe(e later.Event) {
	if e.Queue == l.prefix+"book" {
		return
	}
	switch e.Kind {
	case later.EventSent:
		l.add(1)
	case later.EventAcked, later.EventDied:
		l.add(-1)
	}
}
