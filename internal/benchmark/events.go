package benchmark

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later"
)

// EventsConfig configures Events.
type EventsConfig struct {
	Messages, Size, Handlers int
	Rounds                   int           // each measures all modes, one after the other
	Limit                    time.Duration // of each drain
}

// The modes that Events compares.
const (
	EventsOff     = "off"     // a client WithoutActivity
	EventsOn      = "on"      // nobody watches
	EventsWatched = "watched" // one watcher, in this process
)

// EventRates are what Events measured in a mode: the medians of its rounds.
type EventRates struct {
	Mode        string
	Send, Drain float64 // messages per second
	// Seen and Missed are the events of all rounds that the watcher received and did not.
	Seen, Missed int
}

// Events measures what reporting and watching events costs: the rates of 32 senders and of a worker, without reports,
// with reports that nobody watches, and with a watcher. Modes alternate, and begin with another one in each round.
// Queues have names that begin with name, and are deleted. The watcher belongs to watching.
func Events(ctx context.Context, c, watching *later.Client, name string, cfg EventsConfig) ([]EventRates, error) {
	off, err := later.New(c.Store(), later.WithoutActivity())
	if err != nil {
		return nil, err
	}
	defer off.Close()
	modes := []string{EventsOff, EventsOn, EventsWatched}
	rates := make([]EventRates, len(modes))
	sends, drains := make([][]float64, len(modes)), make([][]float64, len(modes))
	for round := range cfg.Rounds {
		for i := range modes {
			m := (i + round) % len(modes)
			client := c
			if modes[m] == EventsOff {
				client = off
			}
			one := &eventsRound{client: client, queue: fmt.Sprintf("%s-%s-%d", name, modes[m], round), cfg: cfg}
			if modes[m] == EventsWatched {
				one.watching = watching
			}
			if err := one.measure(ctx); err != nil {
				return nil, err
			}
			sends[m], drains[m] = append(sends[m], one.send), append(drains[m], one.drain)
			rates[m].Seen += one.seen
			rates[m].Missed += one.missed
		}
	}
	for m, mode := range modes {
		rates[m].Mode, rates[m].Send, rates[m].Drain = mode, median(sends[m]), median(drains[m])
	}
	return rates, nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// eventsRound is one measurement in one mode.
type eventsRound struct {
	client, watching *later.Client // watching is nil without a watcher
	queue            string
	cfg              EventsConfig

	send, drain  float64
	seen, missed int
}

func (r *eventsRound) measure(ctx context.Context) (err error) {
	q := r.client.Queue(r.queue)
	defer func() { err = errors.Join(err, q.Delete(context.WithoutCancel(ctx))) }()
	if err := q.SetDeadRetention(ctx, later.Retention{}); err != nil { // creates the queue
		return err
	}
	if r.watching != nil {
		stop, err := r.watch(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	cfg := SendConfig{Messages: r.cfg.Messages, Goroutines: 32, Size: r.cfg.Size}
	sent, err := Send(ctx, Later(r.client, r.queue), cfg)
	if err != nil {
		return err
	}
	r.send = sent.PerSecond()
	if _, err := q.Purge(ctx); err != nil {
		return err
	}
	d, err := Drain(ctx, Later(r.client, r.queue), DrainConfig{Messages: r.cfg.Messages, Size: r.cfg.Size,
		Handlers: r.cfg.Handlers, Limit: r.cfg.Limit})
	if err == nil && d.Handled < d.Messages {
		err = fmt.Errorf("%d of %d messages were handled within %v", d.Handled, d.Messages, r.cfg.Limit)
	}
	r.drain = d.PerSecond()
	return err
}

// watch counts the events of the queue until stop is called.
func (r *eventsRound) watch(ctx context.Context) (stop func(), err error) {
	w, err := r.watching.Watch(ctx, r.queue)
	if err != nil {
		return nil, err
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			e, err := w.Next(ctx)
			switch {
			case err != nil:
				return
			case e.Kind == later.EventMissed:
				r.missed += e.Missed
			default:
				r.seen++
			}
		}
	})
	return func() {
		w.Close()
		reading.Wait()
	}, nil
}
