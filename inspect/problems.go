package inspect

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

// From when on a condition is a problem.
const (
	// overdueAfter is how long a message is due before its queue may be a problem. A worker that dies is listed for so
	// long, and the restart of a program should take less.
	overdueAfter = fleet.Lease
	// actAfter is how long a message is due before a limit or busy handlers need a person: as long as the alert rules
	// in deploy/prometheus wait.
	actAfter = 5 * time.Minute
	// recentDeath is how old a death is at most that counts as a growth of the dead messages. Deaths are few, so a shorter
	// time would have the problem vanish before a person sees it.
	recentDeath = time.Hour
	// actDeaths is the number of recent deaths that need a person: fewer may be single bad messages.
	actDeaths = 10
	// manyDead is the number of dead messages that are a problem however old they are: one page of a list.
	manyDead = 100
	// missedRecently is how long after its time a run that was left out is a problem: the next day sees it.
	missedRecently = 24 * time.Hour
	// lateRun is how late a run is before its schedule is a problem, as for a missed run.
	lateRun = time.Minute
	// stuckAfter is how long a change of shards may take before it is a problem. A million messages take two minutes.
	stuckAfter = 15 * time.Minute
)

// The bounds of one reading.
const (
	problemQueues  = 1000 // queues, the first ones by name
	problemReaders = 8    // queues that are read at the same time
	problemDeads   = 50   // readings of the deaths of a queue, unless they are known
	problemKeys    = 50   // readings of the keys of a queue
	problemTopics  = 200  // readings of the subscriptions of a topic
	problemRuns    = 1000 // schedules
	maxRecentDead  = 100  // recent deaths that are read of a queue
	maxKeysRead    = 100  // keys that are read of a queue

	// A queue that does not answer within slowQueue is not waited for. After slowQueues queues with an error that took
	// fastQueue or longer, others get only fastQueue: their server is the same, or they answer at once.
	slowQueue  = 2 * time.Second
	slowQueues = problemReaders
	fastQueue  = 100 * time.Millisecond

	// deathsFor is how long the deaths of a queue are remembered while its number of dead messages stays the same.
	deathsFor = time.Minute
	// oneShardFor is how long a queue with one shard is not asked for its shards again.
	oneShardFor = time.Minute
)

// ProblemReader finds the problems of a store. Each reading remembers some of its results for the next one. One call
// may be made at a time.
type ProblemReader struct {
	Client *later.Client
	// Known returns the counts of a queue if the caller has read them a moment ago. It may be nil.
	Known func(queue string) (store.Stats, bool)
	// Queues are the queues to look at, sorted. Default: all, the first ones by name.
	Queues []string

	deaths   map[string]deaths
	oneShard map[string]time.Time // when a queue was found to have one shard
	fleet    fleet.Directory
	last     []Problem // of the last reading
	readings int
	whole    map[string]int // by queue, the number of the last reading that read it in full
}

// ProblemList is the result of Problems.
type ProblemList struct {
	Problems []Problem // the most urgent first
	LeftOut  int       // queues that were not read in full, with their dead messages, keys or subscriptions
	Now      time.Time // the store's clock
}

// Problems returns the problems of the store, from its own data: queues without a worker, with busy workers, with
// limits that hold messages back, that are paused, or with growing dead messages, and topics, schedules, keys and
// shards with problems. It looks at 1,000 queues at most, the first ones by name, and at 1,000 schedules.
//
// It makes a call for each queue, eight at a time, a few more for each queue that may have a problem, and some for
// workers and schedules. It does not report messages that have been due for less than 30 seconds. A queue that cannot
// be read is a problem; Problems returns an error if the store does not answer.
//
// Programs that use Receive are not listed as workers. A queue from which one has received in the last minute has no
// problem because of that.
func Problems(ctx context.Context, c *later.Client) (ProblemList, error) {
	return (&ProblemReader{Client: c}).Find(ctx)
}

// problemReading is one reading.
type problemReading struct {
	*ProblemReader
	store store.Store
	now   time.Time // the store's clock
	begun time.Time // this program's
	loads loads
	slow  atomic.Int32

	deadLooks, keyLooks, topicLooks atomic.Int32

	mu       sync.Mutex
	found    []Problem
	deaths   map[string]deaths
	oneShard map[string]time.Time
	dead     map[string]bool // queues with dead messages
	behind   map[string]bool // queues beyond a bound; true if nothing is known of the part that was not looked at
}

// Find returns the problems, the most urgent first. It makes one call for each queue, a few for each one that may have
// a problem, and some for workers and schedules.
//
// A queue that cannot be read, or does not answer while others do, is a problem, not an error.
func (pr *ProblemReader) Find(ctx context.Context) (ProblemList, error) {
	// A worker that cannot be listed is no problem of the store, and programs that list workers log it.
	pr.fleet.Store, pr.fleet.Log = pr.Client.Store(), slog.New(slog.DiscardHandler)
	names, scheduled, err := pr.queues(ctx)
	if err != nil {
		return ProblemList{}, err
	}
	clock, err := pr.fleet.Store.Stats(ctx, reserved.Worker)
	if err != nil {
		return ProblemList{}, err
	}
	workers, err := pr.fleet.List(ctx)
	if err != nil {
		return ProblemList{}, err
	}
	r := &problemReading{ProblemReader: pr, store: pr.fleet.Store, now: clock.Now, begun: time.Now(),
		loads: newLoads(workers), deaths: map[string]deaths{}, oneShard: map[string]time.Time{}, dead: map[string]bool{},
		behind: map[string]bool{}}
	found := ProblemList{LeftOut: max(0, len(names)-problemQueues), Now: clock.Now}
	names = names[:len(names)-found.LeftOut]
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(pr.whole[a], pr.whole[b]) })
	if err := r.readQueues(ctx, names); err != nil {
		return ProblemList{}, err
	}
	r.givenBack(workers)
	if p, ok := store.As[store.Pinger](r.store); ok {
		if err := p.Ping(ctx); errors.Is(err, store.ErrFull) {
			r.add(Problem{Kind: StoreFull, Severity: Act, Error: err.Error()})
		}
	}
	if scheduled {
		if err := r.schedules(ctx); err != nil {
			return ProblemList{}, err
		}
	}
	pr.deaths, pr.oneShard, pr.last = r.deaths, r.oneShard, r.found
	found.LeftOut += r.countWhole(names)
	slices.SortFunc(r.found, func(a, b Problem) int { return a.compare(&b) })
	found.Problems = slices.Clone(r.found)
	return found, nil
}

// countWhole keeps the queues that were read in full, so that the next reading begins with the others. It returns the
// number of queues with a part that is not known from an earlier reading either.
func (r *problemReading) countWhole(names []string) (unknown int) {
	before := r.whole
	r.readings++
	r.whole = make(map[string]int, len(names))
	for _, name := range names {
		isUnknown, left := r.behind[name]
		if r.whole[name] = r.readings; left {
			r.whole[name] = before[name]
		}
		if isUnknown {
			unknown++
		}
	}
	return unknown
}

// queues returns the names of the queues to look at, sorted, and whether there are schedules.
func (pr *ProblemReader) queues(ctx context.Context) (all []string, scheduled bool, err error) {
	if pr.Queues != nil {
		clock, err := pr.fleet.Store.Stats(ctx, reserved.Schedules)
		all = slices.DeleteFunc(slices.Clone(pr.Queues), func(name string) bool { return !looksAt(name) })
		return all, clock.Exists, err
	}
	for cursor, more := "", true; more; more = cursor != "" {
		var names []string
		if names, cursor, err = pr.fleet.Store.Queues(ctx, cursor); err != nil {
			return nil, false, err
		}
		for _, name := range names {
			scheduled = scheduled || name == reserved.Schedules
			if looksAt(name) {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), scheduled, nil
}

// looksAt reports whether a queue is looked at.
func looksAt(queue string) bool { return reserved.IsListed(queue) && !reserved.IsIdle(queue) }

// readQueues looks at all queues. It returns an error if none answers.
func (r *problemReading) readQueues(ctx context.Context, names []string) error {
	errs := make([]error, len(names))
	if err := atOnce(ctx, problemReaders, len(names), func(i int) {
		errs[i] = r.readQueue(ctx, names[i])
	}); err != nil {
		return err
	}
	failed := 0
	for _, err := range errs {
		if err != nil && !isDamage(err) {
			failed++
		}
	}
	if failed > 0 && failed == len(names) {
		return errors.Join(errs[:min(len(errs), 3)]...)
	}
	for i, err := range errs {
		if err != nil {
			r.add(Problem{Kind: Unreadable, Severity: Act, Queue: names[i], Error: err.Error()})
		}
	}
	return nil
}

// isDamage reports whether an error is about a single queue, so that others may be intact.
func isDamage(err error) bool {
	return errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrUnsupported)
}

// add adds a problem.
func (r *problemReading) add(p Problem) {
	p.Now = r.now
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, p)
}

// leave notes that a bound leaves out a part of a queue, and whether nothing is known of that part.
func (r *problemReading) leave(queue string, unknown bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behind[queue] = r.behind[queue] || unknown
}

// again adds the problems of the last reading that want reports true for, and returns how many there are.
func (r *problemReading) again(want func(*Problem) bool) (n int) {
	for _, p := range r.ProblemReader.last {
		if want(&p) {
			r.add(p)
			n++
		}
	}
	return n
}

// readQueue looks at one queue.
func (r *problemReading) readQueue(ctx context.Context, name string) error {
	limit := slowQueue
	if r.slow.Load() >= slowQueues {
		limit = fastQueue
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		store.Errorf(store.ErrUnavailable, "no answer within %v", limit))
	defer cancel()
	begun := time.Now()
	q, err := r.read(ctx, name)
	if err == nil && q.Exists && !q.down {
		err = r.look(ctx, q)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if (err != nil || q.down) && time.Since(begun) >= fastQueue {
		r.slow.Add(1)
	}
	return err
}

// problemQueue is a queue as it was read.
type problemQueue struct {
	store.Stats
	name   string
	topic  string       // "" for other queues
	shards store.Shards // Number is 0 unless there are several
	down   bool         // a shard does not answer
	load   load
}

// read reads the counts of a queue, and its shards if it has several.
func (r *problemReading) read(ctx context.Context, name string) (q *problemQueue, err error) {
	q = &problemQueue{name: name, load: r.loads.of(name)}
	if topic, ok := reserved.CutTopic(name); ok {
		q.topic = topic
	}
	if known := r.ProblemReader.oneShard[name]; r.begun.Sub(known) < oneShardFor {
		r.hasOneShard(name, known)
		q.Stats, err = r.stats(ctx, name)
		return q, err
	}
	shards, err := store.ShardsOf(ctx, r.store, name)
	if err != nil {
		return q, err
	}
	if shards.Number == 1 && len(shards.Each) == 1 {
		r.hasOneShard(name, r.begun)
		q.Stats = shards.Each[0].Stats
		return q, nil
	}
	q.shards = shards
	for i := range shards.Each {
		if err := shards.Each[i].Err; err != nil {
			q.down = true
			r.add(Problem{Kind: ShardDown, Severity: Act, Queue: name, Shard: i, Shards: len(shards.Each),
				Error: err.Error()})
		}
	}
	if shards.Moving && r.now.Sub(shards.Since) >= stuckAfter {
		r.add(Problem{Kind: ShardsStuck, Severity: Watch, Queue: name, Shards: shards.Number, Since: shards.Since})
	}
	if !q.down {
		q.Stats, err = r.stats(ctx, name)
	}
	return q, err
}

func (r *problemReading) stats(ctx context.Context, name string) (store.Stats, error) {
	if r.Known != nil {
		if stats, ok := r.Known(name); ok {
			return stats, nil
		}
	}
	return r.store.Stats(ctx, name)
}

func (r *problemReading) hasOneShard(name string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.oneShard[name] = at
}

// givenBack adds the messages that workers give back, by queue.
func (r *problemReading) givenBack(workers []fleet.Info) {
	byQueue := map[string]*Problem{}
	for i := range workers {
		w := &workers[i]
		for _, g := range w.GivenBack {
			p := byQueue[g.Queue]
			switch {
			case g.Messages == 0:
				continue
			case p == nil:
				p = &Problem{Kind: GivesBack, Severity: Act, Queue: g.Queue, Worker: w.Name}
				byQueue[g.Queue] = p
			case p.Worker != w.Name:
				p.Worker = ""
			}
			if int64(g.Messages) > p.Used { // the most frequent error
				p.Used, p.Error = int64(g.Messages), g.Error
			}
			p.Count += int64(g.Messages)
		}
	}
	for _, p := range byQueue {
		p.Used = 0
		r.add(*p)
	}
}
