package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/store"
)

const (
	// maxOverviews is the number of different overviews that are watched at the same time. Each takes up to 10 MiB.
	maxOverviews = 16
	// An overview is read at intervals between these, which are as long as ten readings.
	minOverviewEvery = 500 * time.Millisecond
	maxOverviewEvery = 10 * time.Second
	readingsEvery    = 10
	// overviewTimeout is how long a reading may take.
	overviewTimeout = 10 * time.Second
	// hurryEvery is how often an overview is read at once at most, after changes through this server.
	hurryEvery = time.Second
	// A stream of changes has changesRate bytes a second on average, after changesBurst bytes, so that an idle page
	// costs little. An event waits for maxChangesPause at most.
	changesRate     = 800
	changesBurst    = 16 << 10
	maxChangesPause = 3 * time.Second
	// stillEvery is how often it has an event while no queue changes: the clock and the chart.
	stillEvery = 2 * time.Second
	// problemEvery is how often a client is told again of a problem that goes on.
	problemEvery = 5 * time.Second
)

// overviews are the overviews that are watched, by their keys.
type overviews struct {
	mu  sync.Mutex
	all map[string]*sharedOverview
}

// sharedOverview is an overview that is read again and again for any number of clients. Each client is sent the latest
// state at its own pace.
type sharedOverview struct {
	key     string
	clients int // guarded by overviews.mu
	stop    func()

	soon chan struct{} // has the next reading begin at once

	mu      sync.Mutex
	text    overviewText
	problem []byte // why the last reading failed, as an event; nil if it did not
	told    int    // the number of the reading that clients are sent at once
	streams crowd

	problems     []byte // the latest event with the problems of the store, nil before the first one
	sameProblems []byte // the same without its times: an event is sent when this changes
	changes      int    // how often they have changed
}

// join returns the overview that a request shows. The caller calls leave.
func (os *overviews) join(ctx context.Context, s *Server, r *overviewRequest) (*sharedOverview, error) {
	os.mu.Lock()
	defer os.mu.Unlock()
	key := r.key()
	o := os.all[key]
	if o == nil {
		give, err := s.watched.take(ctx, 1)
		if err != nil {
			return nil, err
		}
		reading, cancel := context.WithCancel(r.context(s.ending))
		o = &sharedOverview{key: key, soon: make(chan struct{}, 1), stop: func() {
			cancel()
			give()
		}}
		if os.all == nil {
			os.all = map[string]*sharedOverview{}
		}
		os.all[key] = o
		s.open.Go(func() { o.run(reading, s, r) })
	}
	o.clients++
	return o, nil
}

// leave ends an overview with its last client.
func (os *overviews) leave(o *sharedOverview) {
	os.mu.Lock()
	defer os.mu.Unlock()
	if o.clients--; o.clients == 0 {
		delete(os.all, o.key)
		o.stop()
	}
}

// readSoon has all overviews read soon, after a change through this server.
func (os *overviews) readSoon() {
	os.mu.Lock()
	defer os.mu.Unlock()
	for _, o := range os.all {
		select {
		case o.soon <- struct{}{}:
		default: // it will be read anyway
		}
	}
}

// run reads the overview until ctx ends.
func (o *sharedOverview) run(ctx context.Context, s *Server, r *overviewRequest) {
	var kept keptDetails
	var hurried time.Time // when it was last read at once
	first := true         // no reading has ended
	for atOnce := false; ; {
		begin := time.Now()
		reading, cancel := context.WithTimeout(ctx, overviewTimeout)
		var show func(*Overview) // so that clients see something before a long reading has ended
		if first {
			show = func(part *Overview) {
				if last := o.text.last; last == nil || part.QueuesRead > last.QueuesRead { // else after one that failed
					o.set(part, false)
				}
			}
		}
		overview, err := s.readOverview(reading, r, &kept, show)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			o.fail(s.problemOf(ctx, unanswered(reading, err, overviewTimeout)))
		default:
			o.setProblems(s.overviewProblems(r.context(ctx)))
			o.set(overview, atOnce || first)
			first = false
		}
		next := time.NewTimer(overviewEvery(time.Since(begin)))
		maySoon := time.After(time.Until(hurried.Add(hurryEvery)))
		atOnce = false
		for wait, soon := true, (chan struct{})(nil); wait; {
			select {
			case <-maySoon:
				soon = o.soon
			case <-soon:
				hurried, atOnce, wait = time.Now(), true, false
			case <-next.C:
				wait = false
			case <-ctx.Done():
				return
			}
		}
		next.Stop()
	}
}

// unanswered returns the error of a reading. If the reading took all of its time, the store did not answer.
func unanswered(reading context.Context, err error, timeout time.Duration) error {
	if err != nil && errors.Is(reading.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the store did not answer within %v: %w: %w", timeout, store.ErrUnavailable, err)
	}
	return err
}

// overviewEvery returns how long to wait after a reading that took a time.
func overviewEvery(took time.Duration) time.Duration {
	return min(max(readingsEvery*took, minOverviewEvery)-took, maxOverviewEvery)
}

// set adds a reading. Clients are sent it at once if it follows a change.
func (o *sharedOverview) set(overview *Overview, atOnce bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.set(overview)
	o.problem = nil
	if atOnce {
		o.told = o.text.reading
	}
	o.streams.beat()
}

// fail has clients told why the last reading failed, unless they were told the same before.
func (o *sharedOverview) fail(why *problem.Problem) {
	event := sseEvent("problem", textOf(why))
	o.mu.Lock()
	defer o.mu.Unlock()
	if !bytes.Equal(o.problem, event) {
		o.problem = event
		o.streams.beat()
	}
}

func sseEvent(name string, data []byte) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data)
}

// setProblems makes problems of the store the latest ones, unless they differ by the time of their reading only. The
// clients get them with the next event.
func (o *sharedOverview) setProblems(list *ProblemList) {
	if list == nil {
		return
	}
	timeless := *list
	timeless.Now, timeless.Items = "", slices.Clone(list.Items)
	for i := range timeless.Items {
		timeless.Items[i].Now = ""
	}
	same := textOf(timeless)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !bytes.Equal(o.sameProblems, same) {
		o.problems, o.sameProblems = sseEvent("problems", textOf(list)), same
		o.changes++
	}
}

// overviewClient is a client that an overview is sent to.
type overviewClient struct {
	*sharedOverview
	sseWriter
	listener *listener
	changes  bool // it is sent changes
	pace     pace
	seen     int       // the number of the last reading that it was sent
	sent     time.Time // when that was
	problems int       // how many changes of the problems it was sent
}

// latest returns the latest event, and whether it is a problem. It has the client listen for the next one. The problems
// of the store come first if they have changed more often than the client has seen.
func (c *overviewClient) latest() (event []byte, isProblem bool) {
	o := c.sharedOverview
	o.mu.Lock()
	defer o.mu.Unlock()
	c.listener.listen()
	switch {
	case o.problem != nil:
		event, isProblem = o.problem, true
	case o.text.reading > c.seen:
		if !c.changes {
			if o.text.last.QueuesRead > 0 {
				break
			}
			c.seen = 0
		} else if o.text.moved <= c.seen && time.Since(c.sent) < stillEvery {
			break
		}
		event = o.text.event(c.seen)
		c.seen, c.sent = o.text.reading, time.Now()
	}
	if c.problems != o.changes {
		c.problems = o.changes
		return slices.Concat(o.problems, event), isProblem
	}
	return event, isProblem
}

// urgent reports whether the client is to be sent a reading at once.
func (c *overviewClient) urgent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told > c.seen || c.problem != nil
}

func (s *Server) watchOverview(ctx context.Context, in *watchInput) (*huma.StreamResponse, error) {
	r, err := newOverviewRequest(ctx, &in.OverviewQuery)
	if err != nil {
		return nil, err
	}
	ctx, done, err := s.wait(ctx, s.waits)
	if err != nil {
		return nil, err
	}
	o, err := s.overviews.join(ctx, s, r)
	if err != nil {
		done()
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		defer done()
		defer s.overviews.leave(o)
		c := &overviewClient{sharedOverview: o, sseWriter: newSSEWriter(hctx), changes: in.Changes}
		if hctx.Method() == http.MethodHead {
			return
		}
		defer s.zip(hctx, &c.sseWriter)()
		c.run(ctx, s.heartbeat)
	}}, nil
}

// run writes events until the client is gone or too slow, or ctx ends.
func (c *overviewClient) run(ctx context.Context, heartbeat time.Duration) {
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	again := time.NewTicker(problemEvery)
	defer again.Stop()
	c.listener = c.streams.join()
	defer c.listener.leave()
	beat := []byte(":\n\n")
	for taken := c.send(beat); taken; {
		event, isProblem := c.latest()
		before := c.written
		taken = c.send(event)
		var pause <-chan time.Time
		if c.changes && !isProblem && c.seen > 0 && len(event) > 0 {
			pause = time.After(c.pace.spend(c.written-before, time.Now()))
		}
		for news := false; taken && (!news || pause != nil); {
			select {
			case <-c.listener.C:
				news = true
				if c.listener.listen(); c.urgent() {
					pause = nil
				}
			case <-pause:
				pause = nil
			case <-again.C:
				if isProblem {
					taken = c.send(event)
				}
			case <-alive.C:
				taken = c.send(beat)
			case <-ctx.Done():
				return
			}
		}
	}
}

// pace limits how many bytes a stream of changes has.
type pace struct {
	debt float64 // bytes that were sent beyond the rate
	at   time.Time
}

// spend returns how long to wait after n bytes before the next event.
func (p *pace) spend(n int, now time.Time) time.Duration {
	if !p.at.IsZero() { // the first event has all queues
		p.debt = max(0, p.debt-now.Sub(p.at).Seconds()*changesRate) + float64(n)
	}
	p.at = now
	return min(time.Duration(max(0, p.debt-changesBurst)/changesRate*float64(time.Second)), maxChangesPause)
}
