package metrics

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/reserved"
)

// snapshot is the result of one reading of the store. It is not changed afterwards.
type snapshot struct {
	up     bool
	queues []queueState
	// overLimit and failed are the numbers of queues that were left out.
	overLimit, failed int
	// givenBack is the number of messages by queue, or nil if it could not be read.
	givenBack map[string]int
	problems  map[problem]int // nil if they could not be read
	took      time.Duration
}

// problem is the kind and severity of a problem.
type problem struct {
	kind     inspect.ProblemKind
	severity inspect.ProblemSeverity
}

type queueState struct {
	name  string
	stats later.Stats
	due   []int64 // for each of horizons
}

// oldestAge returns how long the message has waited that has waited longest.
func (q *queueState) oldestAge() time.Duration {
	if q.stats.NextDue.IsZero() {
		return 0
	}
	return max(0, q.stats.Now.Sub(q.stats.NextDue))
}

// read reads the store until ctx ends. A queue that cannot be read hides no other one.
func read(ctx context.Context, client *later.Client, cfg Config) (s snapshot) {
	names, more, err := queues(ctx, client, cfg)
	if err != nil {
		return s
	}
	found := make([]*queueState, len(names))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(readers, len(names)) {
		all.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(names) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if q, err := readQueue(ctx, client.Queue(names[i])); err == nil {
					found[i] = q
				}
			}
		})
	}
	all.Go(func() { s.givenBack = readGivenBack(ctx, client) })
	all.Wait()
	s.overLimit = more
	for _, q := range found {
		switch {
		case q == nil:
			s.failed++
		case q.stats.Exists:
			s.queues = append(s.queues, *q)
		}
	}
	s.up = s.failed < len(names) || len(names) == 0
	return s
}

// readGivenBack returns how many messages the workers of each queue give back, or nil if they cannot be read.
func readGivenBack(ctx context.Context, client *later.Client) map[string]int {
	workers, err := client.Workers(ctx)
	if err != nil {
		return nil
	}
	back := map[string]int{}
	for _, w := range workers {
		for _, g := range w.GivenBack {
			back[g.Queue] += g.Messages
		}
	}
	return back
}

// readProblems counts the problems of each kind and severity, with zeros, in queues that were just read. It returns nil
// if they cannot be read.
func readProblems(ctx context.Context, reader *inspect.ProblemReader, queues []queueState) map[problem]int {
	reader.Queues = []string{}
	known := map[string]later.Stats{}
	for i := range queues {
		reader.Queues = append(reader.Queues, queues[i].name)
		known[queues[i].name] = queues[i].stats
	}
	reader.Known = func(queue string) (later.Stats, bool) {
		stats, ok := known[queue]
		return stats, ok
	}
	found, err := reader.Find(ctx)
	if err != nil {
		return nil
	}
	counts := map[problem]int{}
	for _, kind := range inspect.ProblemKinds() {
		counts[problem{kind, inspect.Act}], counts[problem{kind, inspect.Watch}] = 0, 0
	}
	for _, p := range found.Problems {
		counts[problem{p.Kind, p.Severity}]++
	}
	return counts
}

// queues returns the names of the queues to read, in order, and how many more there are.
func queues(ctx context.Context, client *later.Client, cfg Config) (names []string, more int, err error) {
	if len(cfg.Queues) > 0 {
		names = slices.Clone(cfg.Queues)
	} else {
		for cursor := ""; ; {
			page, next, err := client.Store().Queues(ctx, cursor)
			if err != nil {
				return nil, 0, err
			}
			page = slices.DeleteFunc(page, func(name string) bool { return !reserved.IsListed(name) })
			names = append(names, page[:min(len(page), maxListed-len(names))]...)
			if cursor = next; cursor == "" || len(names) == maxListed {
				break
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	more = max(0, len(names)-cfg.MaxQueues)
	return names[:len(names)-more], more, nil
}

// readQueue reads the state of one queue. It makes one call, and up to three more if messages fall due soon.
func readQueue(ctx context.Context, q *later.Queue) (*queueState, error) {
	stats, err := q.Stats(ctx)
	s := &queueState{name: q.Name(), stats: stats, due: make([]int64, len(horizons))}
	if err != nil || stats.Scheduled == 0 {
		return s, err
	}
	from := stats.Now.Truncate(time.Millisecond).Add(time.Millisecond) // messages that are due now are ready
	for i, h := range horizons {
		if stats.NextDue.Sub(from) >= h.span {
			break // and within no shorter time
		}
		counts, err := q.Histogram(ctx, from, from.Add(h.span), 1)
		if err != nil {
			return nil, err
		}
		if s.due[i] = counts[0]; counts[0] == 0 {
			break
		}
	}
	return s, nil
}
