package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

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

	mu      sync.Mutex
	event   []byte // the latest event, or nil before the first one
	problem bool   // it is a problem
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
		o = &sharedOverview{key: key, stop: func() {
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

// run reads the overview until ctx ends.
func (o *sharedOverview) run(ctx context.Context, s *Server, r *overviewRequest) {
	var kept keptDetails
	for {
		begin := time.Now()
		reading, cancel := context.WithTimeout(ctx, overviewTimeout)
		overview, err := s.readOverview(reading, r, &kept)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			o.set("problem", s.problemOf(ctx, unanswered(reading, err, overviewTimeout)))
		default:
			o.setProblems(s.overviewProblems(r.context(ctx)))
			o.set("overview", overview)
		}
		select {
		case <-time.After(overviewEvery(time.Since(begin))):
		case <-ctx.Done():
			return
		}
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

// set makes an event the latest one, unless it is the same problem as before.
func (o *sharedOverview) set(name string, data any) {
	var text bytes.Buffer
	_ = encodeJSON(&text, data) // numbers and texts can always be encoded
	event := sseEvent(name, text.Bytes())
	o.mu.Lock()
	defer o.mu.Unlock()
	if bytes.Equal(o.event, event) {
		return
	}
	o.event, o.problem = event, name == "problem"
	o.streams.beat()
}

func sseEvent(name string, data []byte) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n", name, data)
}

// setProblems makes problems of the store the latest ones, unless they differ by the time of their reading only. The
// clients get them with the next event.
func (o *sharedOverview) setProblems(list *ProblemList) {
	if list == nil {
		return
	}
	var text, same bytes.Buffer
	_ = encodeJSON(&text, list)
	timeless := *list
	timeless.Now, timeless.Items = "", slices.Clone(list.Items)
	for i := range timeless.Items {
		timeless.Items[i].Now = ""
	}
	_ = encodeJSON(&same, timeless)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !bytes.Equal(o.sameProblems, same.Bytes()) {
		o.problems, o.sameProblems = sseEvent("problems", text.Bytes()), same.Bytes()
		o.changes++
	}
}

// latest returns the latest event, and whether it is a problem. It has the client listen for the next one. The problems
// of the store come first if they have changed more often than the client has seen.
func (o *sharedOverview) latest(client *listener, seen *int) (event []byte, problem bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	client.listen()
	if *seen == o.changes {
		return o.event, o.problem
	}
	*seen = o.changes
	return slices.Concat(o.problems, o.event), o.problem
}

func (s *Server) watchOverview(ctx context.Context, in *overviewInput) (*huma.StreamResponse, error) {
	r, err := newOverviewRequest(ctx, in)
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
		w := newSSEWriter(hctx)
		o.send(ctx, &w, s.heartbeat)
	}}, nil
}

// send writes events until the client is gone or too slow, or ctx ends.
func (o *sharedOverview) send(ctx context.Context, w *sseWriter, heartbeat time.Duration) {
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	again := time.NewTicker(problemEvery)
	defer again.Stop()
	client := o.streams.join()
	defer client.leave()
	beat, seen := []byte(":\n\n"), 0
	for taken := w.send(beat); taken; {
		event, problem := o.latest(client, &seen)
		taken = w.send(event)
		for wait := taken; wait; {
			select {
			case <-client.C:
				wait = false
			case <-again.C:
				if problem {
					taken = w.send(event)
				}
			case <-alive.C:
				taken = w.send(beat)
			case <-ctx.Done():
				return
			}
			wait = wait && taken
		}
	}
}
