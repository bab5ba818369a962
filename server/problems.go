package server

import (
	"context"
	"sync"
	"time"

	"github.com/laterq/later/inspect"
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
	// firstProblems is how long an overview waits for the first reading, or for the first one after a long time, so that
	// the page does not have to move what it shows.
	firstProblems = 250 * time.Millisecond
)

func registerProblems(s *Server) {
	route(s, access.Look, on("GET /v1/problems", "overview", "listProblems", "List what needs a person", s.fewReads,
		says("Conditions of the store such as a queue without a worker, the most urgent first. A message that waits "+
			"is listed once it has been due for 30 s. The list is up to 10 s old, or more if reading the store takes more "+
			"than 0.25 s. It is read again soon after a change through this server. At most 1,000 queues are looked at, "+
			"the first ones by name. A failed request has a problem of another kind.")),
		s.listProblems)
}

// ProblemList has the problems of the store.
type ProblemList struct {
	Items         []wire.StoreProblem `json:"items" doc:"The most urgent first"`
	Count         int                 `json:"count" doc:"How many problems there are. The stream of overviews has 20 at most, and 5 of one kind"`
	Act           int                 `json:"act" doc:"How many of them have the severity act"`
	QueuesLeftOut int                 `json:"queues_left_out" doc:"How many queues were not looked at, or only in part"`
	Now           string              `json:"now" doc:"The store's clock when they were read"`
	Stale         bool                `json:"stale,omitempty" doc:"Only in the stream of overviews: set if that is more than 70 s ago, because later readings have failed"`
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

// visibleProblem returns a function that reports whether the sender of a request may see a problem.
func visibleProblem(ctx context.Context) func(*inspect.Problem) bool {
	see := visible(ctx)
	schedules, everything := access.CheckSchedules(ctx, access.Look) == nil, access.Check(ctx, access.Look, "") == nil
	return func(p *inspect.Problem) bool {
		switch unreadable := p.Kind == inspect.ScheduleFailed && p.Schedule == ""; {
		case (p.Kind == inspect.StoreFull || unreadable) && !everything:
			return false
		case (p.Schedule != "" || unreadable) && !schedules:
			return false
		case p.Topic != "" && !see(reserved.Topic+p.Topic):
			return false
		}
		return p.Queue == "" || see(p.Queue)
	}
}

// shownProblems returns the problems that the sender of a request may see and that want reports true for. It returns
// at most the given number of them, and few of one kind, unless that number is 0.
func shownProblems(
	ctx context.Context, found *inspect.ProblemList, most int, want func(*inspect.Problem) bool,
) *ProblemList {
	list := &ProblemList{Items: []wire.StoreProblem{}, QueuesLeftOut: found.LeftOut, Now: wire.FormatTime(found.Now)}
	sees, hidden, ofKind := visibleProblem(ctx), hides(ctx), map[inspect.ProblemKind]int{}
	for _, p := range found.Problems {
		if !sees(&p) || want != nil && !want(&p) {
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
			list.Items = append(list.Items, view.Problem(p))
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
	readAt  time.Time            // when the reading of last began
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

// knowsSinceChange returns the counts of a queue if they were read after the last change through this server.
func (ps *sharedProblems) knowsSinceChange(queue string) (stats store.Stats, ok bool) {
	ps.mu.Lock()
	changed := !ps.changed.Before(ps.since)
	ps.mu.Unlock()
	if changed {
		return stats, false
	}
	return ps.knows(queue)
}

// begin begins a reading if one is due, and returns a channel that is closed at its end, or nil. It reports whether the
// last reading is good enough meanwhile: nothing was changed through this server since.
func (ps *sharedProblems) begin(s *Server) (ready chan struct{}, fresh bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	fresh = ps.last != nil && ps.err == nil && ps.changed.Before(ps.readAt) && time.Since(ps.readAt) < 2*ps.every
	every := ps.every
	if !ps.changed.Before(ps.began) {
		every = min(every, ps.took+max(minOverviewEvery, 5*ps.took))
	}
	if ps.ready != nil || time.Since(ps.began) < every || s.ending.Err() != nil {
		return ps.ready, fresh
	}
	if ps.reader == nil {
		ps.reader = &inspect.ProblemReader{Client: s.client, Known: ps.knows}
	}
	ready = make(chan struct{})
	ps.ready, ps.began = ready, time.Now()
	s.open.Go(func() {
		defer close(ready)
		ctx, cancel := context.WithTimeout(s.ending, problemsTimeout)
		defer cancel()
		found, err := ps.reader.Find(ctx)
		err = unanswered(ctx, err, problemsTimeout)
		ps.mu.Lock()
		defer ps.mu.Unlock()
		ps.ready, ps.err = nil, err
		if err == nil {
			ps.last, ps.readAt = &found, ps.began
		}
		ps.took = time.Since(ps.began)
		ps.every = min(max(20*ps.took, minProblemsEvery), maxProblemsEvery)
	})
	return ready, fresh
}

// result returns the last reading, nil if there is none, and its error. The reading is stale if none has succeeded for
// longer than the longest time from one to the next.
func (ps *sharedProblems) result() (found *inspect.ProblemList, stale bool, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.last, time.Since(ps.readAt) > maxProblemsEvery+problemsTimeout, ps.err
}

// readSoon advances the next reading, after a change through this server.
func (ps *sharedProblems) readSoon() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.changed = time.Now()
}

// current returns the problems as of a reading that is not too old.
func (ps *sharedProblems) current(ctx context.Context, s *Server) (*inspect.ProblemList, error) {
	if ready, fresh := ps.begin(s); ready != nil && !fresh {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	found, _, err := ps.result()
	if err == nil && found == nil {
		err = errEnding
	}
	return found, err
}

// overviewProblems returns the problems that the sender of a request may see as of the last reading, or nil before the
// first one. An overview waits for a reading only if there is none that is new enough, and not for long.
func (s *Server) overviewProblems(ctx context.Context) *ProblemList {
	ready, _ := s.problems.begin(s)
	found, stale, _ := s.problems.result()
	if ready != nil && stale {
		select {
		case <-ready:
		case <-ctx.Done():
		case <-time.After(firstProblems):
		}
		found, stale, _ = s.problems.result()
	}
	if found == nil {
		return nil
	}
	list := shownProblems(ctx, found, maxOverviewProblems, nil)
	list.Stale = stale
	return list
}
