package later

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

const (
	// maxEventError is how many bytes of an error a WatchEvent has.
	maxEventError = 300
	// followEvery is how often a Watch of all queues looks for new ones, unless that takes long, in a store that can
	// only watch queues that it is told.
	followEvery = 2 * time.Second
)

// WatchEvent is an Event of any process that uses the store, as a Watch receives it.
type WatchEvent struct {
	Kind  EventKind
	Queue string
	ID    string // "" for events of a queue
	// Time is when the event happened, on the clock of its process, in milliseconds.
	Time time.Time
	// Attempt, Lateness, Duration and Count are those of the Event. Durations are in microseconds.
	Attempt  int
	Lateness time.Duration
	Duration time.Duration
	Count    int
	// Error is the text of Event.Err, up to 300 bytes.
	Error string
	// Headers are those that the client of the process asks for; see WithEventHeaders.
	Headers map[string]string
	// Process is where the event happened.
	Process Process
	// Missed is set for EventMissed: how many events are missing before the next one. It is 0 if that is not known,
	// because the connection to the store was interrupted. An EventMissed has a Queue and a Process if they are known.
	Missed int
}

// Process is a program that uses the store.
type Process struct {
	Host string
	PID  int
	Name string // of the program's file
}

// String returns the process as name[pid]@host.
func (p Process) String() string { return fmt.Sprintf("%s[%d]@%s", p.Name, p.PID, p.Host) }

// cutText returns at most limit bytes of s, which are valid UTF-8.
func cutText(s string, limit int) string { return strings.ToValidUTF8(s[:min(len(s), limit)], "") }

func thisProcess() Process {
	p := Process{PID: os.Getpid()}
	p.Host, _ = os.Hostname()
	if len(os.Args) > 0 {
		p.Name = filepath.Base(os.Args[0])
	}
	return p
}

func newWatchEvent(e *Event, failure string) WatchEvent {
	return WatchEvent{Kind: e.Kind, ID: e.ID, Time: e.Time, Attempt: e.Attempt, Lateness: e.Lateness, Duration: e.Duration,
		Count: e.Count, Error: failure, Headers: e.Headers}
}

// Watch receives the events of some queues, whichever process they happen in. It is returned by Client.Watch. Call
// Close when done. Its methods are safe for concurrent use.
type Watch struct {
	client  *Client
	watcher store.Watcher
	ctx     context.Context
	end     context.CancelCauseFunc

	mu      sync.Mutex
	waiting []WatchEvent // received and not returned
}

// Watch starts to watch queues, which need not exist, or all queues if none is given, also those that are created later:
// with the message that creates them, or within a few seconds in a Redis Cluster and for a Redis user who may not listen
// to the pattern of all channels. When it returns, the Watch receives what happens from then on, in every process whose client is not
// created WithoutActivity: all kinds of events but EventStarted.
//
// A client notices a new watcher with its next report: at once if the queue was idle for a second or the Watch is its
// own, else within a second. From then on events arrive about 10 ms after they happened. Watching never slows the
// queue: a process sends up to 100 to 125 events of a queue every 10 ms, and what is more, or what this Watch does not
// read in time, is dropped and counted in an EventMissed. Events are best effort. Those of one process and queue arrive
// in the order in which its goroutines reported them, so the claim of a message can precede its EventSent.
//
// ctx limits the call and not the Watch. Watch returns ErrInvalid for a name that is not allowed, and ErrUnsupported if the server does not allow this program to listen to channels. The
// embedded store has the events of this process, and mem:// those of the store of that name.
func (c *Client) Watch(ctx context.Context, queues ...string) (*Watch, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	for _, name := range queues {
		if err := store.CheckQueue(name); err != nil {
			return nil, err
		}
	}
	names, follows := queues, false
	if len(queues) == 0 {
		names = []string{store.AllQueues}
	}
	watcher, err := c.store.Watch(ctx, names)
	if len(queues) == 0 && errors.Is(err, ErrUnsupported) {
		follows = true
		if names, err = c.Queues(ctx); err == nil {
			watcher, err = c.store.Watch(ctx, names)
		}
	}
	if err != nil {
		return nil, err
	}
	w := &Watch{client: c, watcher: watcher}
	w.ctx, w.end = context.WithCancelCause(c.ending)
	if err := c.addWatch(w); err != nil {
		w.Close()
		return nil, err
	}
	for _, q := range c.used() { // other clients learn of it from their next report
		if len(queues) == 0 || slices.Contains(queues, q.name) {
			q.activity.expectWatcher()
		}
	}
	if follows {
		if err := c.beginLoop(); err != nil {
			w.Close()
			return nil, err
		}
		go func() {
			defer c.loops.Done()
			w.follow(names)
		}()
	}
	return w, nil
}

// addWatch has Close of the client close w.
func (c *Client) addWatch(w *Watch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return errClientClosed
	}
	if c.watches == nil {
		c.watches = map[*Watch]struct{}{}
	}
	c.watches[w] = struct{}{}
	return nil
}

// closeWatches closes what is left open.
func (c *Client) closeWatches() {
	c.mu.Lock()
	watches := c.watches
	c.watches = nil
	c.mu.Unlock()
	for w := range watches {
		w.Close()
	}
}

// follow adds queues that are created.
func (w *Watch) follow(known []string) {
	seen := map[string]bool{}
	for _, name := range known {
		seen[name] = true
	}
	pause := followEvery
	for {
		timer := time.NewTimer(pause)
		select {
		case <-w.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		began := time.Now()
		names, err := w.client.Queues(w.ctx)
		var fresh []string
		for _, name := range names {
			if !seen[name] {
				fresh = append(fresh, name)
			}
		}
		if err == nil && len(fresh) > 0 {
			err = w.watcher.Add(w.ctx, fresh...)
		}
		if errors.Is(err, ErrUnsupported) {
			w.end(err)
			return
		}
		if err == nil {
			for _, name := range fresh {
				seen[name] = true
			}
		}
		pause = max(followEvery, 20*time.Since(began)) // many names take a while
	}
}

// Next returns the next event. It blocks until there is one or ctx ends; then it returns ctx's cause. After Close, of
// the Watch or of the client, it returns ErrClosed.
func (w *Watch) Next(ctx context.Context) (WatchEvent, error) {
	for {
		if w.ctx.Err() != nil {
			return WatchEvent{}, context.Cause(w.ctx)
		}
		if e, ok := w.take(); ok {
			return e, nil
		}
		if err := w.receive(ctx); err != nil {
			return WatchEvent{}, err
		}
	}
}

func (w *Watch) take() (e WatchEvent, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		return e, false
	}
	e, w.waiting = w.waiting[0], w.waiting[1:]
	return e, true
}

// receive waits for the next events.
func (w *Watch) receive(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.ctx, func() { cancel(context.Cause(w.ctx)) })()
	r, err := w.watcher.Next(ctx)
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Missed > 0 || r.Gap {
		missed := r.Missed
		if r.Gap {
			missed = 0
		}
		w.waiting = append(w.waiting, WatchEvent{Kind: EventMissed, Time: time.Now(), Missed: missed})
	}
	if len(r.Events) > 0 {
		w.waiting = append(w.waiting, decodeEvents(r.Queue, r.Events)...)
	}
	return nil
}

// Close ends the Watch. It leaves nothing in the store. A Watch whose process dies leaves nothing there either, once
// the store notices that its connection is gone: at the latest when it cannot pass on the next events.
func (w *Watch) Close() error {
	w.end(errWatchClosed)
	c := w.client
	c.mu.Lock()
	delete(c.watches, w)
	c.mu.Unlock()
	return w.watcher.Close()
}

var errWatchClosed error = &detail{"watch is closed", ErrClosed}

// encodeEvents returns what is reported of the events of a queue, and their number, to which those add that were
// missed.
func encodeEvents(process Process, events []WatchEvent, missed int) (encoded []byte, number int) {
	number = len(events) + missed
	if number == 0 {
		return nil, 0
	}
	const overhead = 1024 // for what follows the events
	encoded = append(encoded, `{"events":[`...)
	for i := range events {
		one, err := json.Marshal(wireEvent(&events[i]))
		if err != nil || len(encoded)+len(one)+overhead > store.MaxEventBytes {
			missed += len(events) - i
			break
		}
		if i > 0 {
			encoded = append(encoded, ',')
		}
		encoded = append(encoded, one...)
	}
	// The rest is an object of its own, without its first brace.
	rest, err := json.Marshal(wire.Events{
		Process: wire.Process{Host: process.Host, PID: process.PID, Name: process.Name}, Missed: missed,
	})
	if err != nil {
		return nil, 0
	}
	return append(append(encoded, "],"...), rest[1:]...), number
}

func wireEvent(e *WatchEvent) wire.Event {
	return wire.Event{
		Time: wire.FormatTime(e.Time), Kind: e.Kind, ID: e.ID, Attempt: e.Attempt,
		Lateness: wire.Measured(e.Lateness), Duration: wire.Measured(e.Duration), Error: e.Error, Count: e.Count,
		Headers: e.Headers,
	}
}

// decodeEvents returns the events of a report. If it cannot be read, an unknown number is missed.
func decodeEvents(queue string, encoded []byte) []WatchEvent {
	var all wire.Events
	if err := json.Unmarshal(encoded, &all); err != nil {
		return []WatchEvent{{Kind: EventMissed, Queue: queue, Time: time.Now()}}
	}
	process := Process{Host: all.Process.Host, PID: all.Process.PID, Name: all.Process.Name}
	events := make([]WatchEvent, 0, len(all.Events)+1)
	for i := range all.Events {
		e := &all.Events[i]
		at, _ := time.Parse(time.RFC3339Nano, e.Time)
		events = append(events, WatchEvent{
			Kind: e.Kind, Queue: queue, ID: e.ID, Time: at, Attempt: e.Attempt, Error: e.Error, Count: e.Count,
			Lateness: time.Duration(e.Lateness), Duration: time.Duration(e.Duration), Process: process,
			Headers: e.Headers,
		})
	}
	if all.Missed > 0 {
		events = append(events, WatchEvent{Kind: EventMissed, Queue: queue, Time: time.Now(), Missed: all.Missed,
			Process: process})
	}
	return events
}
