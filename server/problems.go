package server

import (
	"context"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/inspect"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const (
	// All senders share one reading of the problems, which is used for between these times, or for as long as 20
	// readings.
	minProblemsEvery = 5 * time.Second
	maxProblemsEvery = time.Minute
	// problemsTimeout is how long a reading may take.
	problemsTimeout = 10 * time.Second
	// maxOverviewProblems is how many problems a stream of overviews has, and maxOverviewKind how many of one kind.
	maxOverviewProblems = 20
	maxOverviewKind     = 5
	// knownFor is how old counts of an overview are at most when problems are found with them.
	knownFor = 2 * time.Second
	// firstProblems is how long the first overview waits for the first reading, so that the page does not have to move
	// what it shows.
	firstProblems = 250 * time.Millisecond
)

func registerProblems(s *Server) {
	route(s, access.Look, on("GET /v1/problems", "overview", "listProblems", "List what needs a person", s.fewReads,
		says("Conditions of the store such as a queue without a worker, the most urgent first. A message that waits "+
			"is listed once it has been due for 30 s. The list is up to 5 s old, or more if reading the store takes more than 0.25 s. At most 1,000 "+
			"queues are looked at, the first ones by name. These problems are not those that describe failed requests.")),
		s.listProblems)
}

// ProblemList is what needs a person.
type ProblemList struct {
	Items         []wire.StoreProblem `json:"items" doc:"The most urgent first"`
	Count         int                 `json:"count" doc:"How many problems there are. The stream of overviews has 20 at most, and 5 of one kind"`
	Act           int                 `json:"act" doc:"How many of them have the severity act"`
	QueuesLeftOut int                 `json:"queues_left_out" doc:"How many queues were not looked at, or only in part"`
	Now           string              `json:"now" doc:"The store's clock when they were read"`
	Stale         bool                `json:"stale,omitempty" doc:"Set if that is more than a minute ago, because later readings have failed or take long"`
}

type listProblemsInput struct {
	Severity string `query:"severity" enum:"act,watch" doc:"Only problems of this severity"`
	Queue    string `query:"queue" maxLength:"128" doc:"Only problems of this queue"`
}

func (s *Server) listProblems(ctx context.Context, in *listProblemsInput) (*output[*ProblemList], error) {
	if in.Queue != "" {
		if err := checkQueues(ctx, []string{in.Queue}); err != nil {
			return nil, err
		}
	}
	found, err := s.problems.current(ctx, s)
	if err != nil {
		return nil, err
	}
	list := shownProblems(ctx, found, 0, func(p *inspect.Problem) bool {
		return (in.Severity == "" || in.Severity == string(p.Severity)) && (in.Queue == "" || in.Queue == p.Queue)
	})
	return outputOf(list), nil
}

// shownProblems returns the problems that the sender of a request may see and that want reports true for. Unless most is
// 0, it returns up to so many of them, and few of one kind.
func shownProblems(ctx context.Context, found *inspect.ProblemList, most int, want func(*inspect.Problem) bool) *ProblemList {
	list := &ProblemList{Items: []wire.StoreProblem{}, QueuesLeftOut: found.LeftOut, Now: wire.FormatTime(found.Now)}
	see, hidden, ofKind := visible(ctx), hides(ctx), map[inspect.ProblemKind]int{}
	schedules, everything := access.CheckSchedules(ctx, access.Look) == nil, access.Check(ctx, access.Look, "") == nil
	for _, p := range found.Problems {
		scheduled := p.Schedule != "" || p.Kind == inspect.ScheduleFailed
		ofStore := p.Kind == inspect.StoreFull || p.Kind == inspect.ScheduleFailed && p.Schedule == ""
		whole := ofStore && !everything
		unseen := whole || p.Queue != "" && !see(p.Queue) || p.Topic != "" && !see(reserved.Topic+p.Topic) || scheduled && !schedules
		if unseen || want != nil && !want(&p) {
			continue
		}
		list.Count++
		if p.Severity == inspect.Act {
			list.Act++
		}
		if hidden {
			p.Error = ""
		}
		if ofKind[p.Kind]++; most == 0 || len(list.Items) < most && ofKind[p.Kind] <= maxOverviewKind {
			list.Items = append(list.Items, view.Problem(later.Problem(p)))
		}
	}
	return list
}

// sharedProblems are the problems of the store, which all senders share.
type sharedProblems struct {
	mu      sync.Mutex
	last    *inspect.ProblemList // nil before the first reading
	err     error                // of the last reading
	began   time.Time            // when the last reading began
	readAt  time.Time            // when the one began that last has
	took    time.Duration        // how long the last reading took
	every   time.Duration        // from one reading to the next
	changed time.Time            // when something was changed through this server
	ready   chan struct{}        // closed at the end of the reading under way; nil if there is none
	reader  *inspect.ProblemReader
	known   map[string]store.Stats // counts of overviews, from knownAt on
	since   time.Time
}

// know keeps the counts of queues that an overview has just read.
func (ps *sharedProblems) know(read []readQueue) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if now := time.Now(); now.Sub(ps.since) >= knownFor/2 {
		ps.known, ps.since = make(map[string]store.Stats, len(read)), now
	}
	for i := range read {
		if q := &read[i]; q.err == nil && q.Exists {
			ps.known[q.shown.Queue] = q.Stats
		}
	}
}

func (ps *sharedProblems) knows(queue string) (stats store.Stats, ok bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if time.Since(ps.since) >= knownFor {
		return stats, false
	}
	stats, ok = ps.known[queue]
	return stats, ok
}

// begin begins a reading if one is due, and returns a channel that is closed at its end, or nil.
func (ps *sharedProblems) begin(s *Server) <-chan struct{} {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	every := ps.every
	if !ps.changed.Before(ps.began) {
		every = min(every, ps.took+max(minOverviewEvery, 5*ps.took))
	}
	if ps.ready != nil || time.Since(ps.began) < every || s.ending.Err() != nil {
		return ps.ready
	}
	if ps.reader == nil {
		ps.reader = &inspect.ProblemReader{Known: ps.knows,
			Fleet: &fleet.Directory{Store: s.client.Store(), Log: s.log}}
	}
	ready := make(chan struct{})
	ps.ready, ps.began = ready, time.Now()
	s.open.Go(func() {
		defer close(ready)
		ctx, cancel := context.WithTimeout(s.ending, problemsTimeout)
		defer cancel()
		found, err := ps.reader.Find(ctx, nil)
		ps.mu.Lock()
		defer ps.mu.Unlock()
		ps.ready, ps.err = nil, err
		if err == nil {
			ps.last, ps.readAt = &found, ps.began
		}
		ps.took = time.Since(ps.began)
		ps.every = min(max(20*ps.took, minProblemsEvery), maxProblemsEvery)
	})
	return ready
}

// result returns the last reading, nil if there is none, and its error.
func (ps *sharedProblems) result() (*inspect.ProblemList, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.last, ps.err
}

// isStale reports whether the last reading that succeeded is so old that others must have failed.
func (ps *sharedProblems) isStale() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return time.Since(ps.readAt) > maxProblemsEvery+problemsTimeout
}

// stale has the next reading come soon, after a change through this server.
func (ps *sharedProblems) stale() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.changed = time.Now()
}

// current returns the problems as of a reading that is not too old.
func (ps *sharedProblems) current(ctx context.Context, s *Server) (*inspect.ProblemList, error) {
	if ready := ps.begin(s); ready != nil {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	found, err := ps.result()
	if err == nil && found == nil {
		err = errEnding
	}
	return found, err
}

// overviewProblems returns the problems that the sender of a request may see as of the last reading, or nil before the
// first one. An overview does not wait for them.
func (s *Server) overviewProblems(ctx context.Context) *ProblemList {
	ready := s.problems.begin(s)
	found, _ := s.problems.result()
	if found == nil && ready != nil {
		select {
		case <-ready:
		case <-ctx.Done():
		case <-time.After(firstProblems):
		}
		found, _ = s.problems.result()
	}
	if found == nil {
		return nil
	}
	list := shownProblems(ctx, found, maxOverviewProblems, nil)
	list.Stale = s.problems.isStale()
	return list
}
