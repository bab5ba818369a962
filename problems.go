package later

import (
	"context"
	"slices"
	"time"

	"github.com/laterq/later/internal/inspect"
)

// ProblemKind is the kind of a Problem. ProblemKinds lists all kinds, and docs/monitoring.md has their meanings and
// thresholds.
type ProblemKind = inspect.ProblemKind

// ProblemKinds returns all kinds of problems. Problems of the same severity are listed in this order of their kinds.
func ProblemKinds() []ProblemKind { return slices.Clone(inspect.ProblemKinds) }

// ProblemSeverity says whether a Problem needs a person now.
type ProblemSeverity = inspect.ProblemSeverity

// The severities of a Problem.
const (
	ProblemAct   = inspect.Act   // messages are stopped or lost, and go on only when a person acts
	ProblemWatch = inspect.Watch // it may pass by itself, or is meant so
)

// Problem is a condition of the store that needs a person, such as a queue without a worker. All times are of the
// store's clock.
type Problem struct {
	Kind     ProblemKind
	Severity ProblemSeverity
	// Queue, Topic, Schedule, Key, Shard and Message are the subject of the problem, as far as they fit: a problem of a
	// key has a Queue, too, and a problem of a schedule the Queue of its runs. Shards is the number of shards of the
	// queue, or the number to which it changes, and 0 if the problem has nothing to do with shards. Shard, from 0, is set
	// for one that does not answer or has used up its share of a limit.
	Queue    string
	Topic    string
	Schedule string
	Key      string
	Shard    int
	Shards   int
	Message  string
	// Worker is the name of the only worker that the problem is about, "" if there are several. Workers is their number.
	// Paused has the names of the paused workers of WorkersPaused, unless they are more than 5. Workers that drain are
	// not among them.
	Worker  string
	Workers int
	Paused  []string
	// By is who paused a queue: the sender of a request to a server, the user and machine of the command, or the machine
	// and process of a program; "" if that is not known.
	By string
	// Count is how many messages are concerned: they are due, given back or dead. It is the number of halted keys, or of
	// runs for the problem of a schedule.
	Count int64
	// Used and Limit are the messages in flight and the limit that lets no more start. Rate is set instead if it is a
	// rate. Used is also the number of busy handlers, and of messages that died in the last hour, 100 for more.
	Used, Limit int64
	Rate        Rate
	// Since is when it began: when the first message fell due or died, a queue was paused, a handler was called or a run
	// was due. It is zero if that is not known.
	Since time.Time
	// Error is the text of an error: why messages are given back or a queue cannot be read, or the ErrorPattern of most
	// dead messages.
	Error string
	// Now is the store's clock.
	Now time.Time
}

// Text returns the problem as one sentence that names its subject, without a full stop.
func (p Problem) Text() string { return inspect.Problem(p).Text() }

// ProblemPlace is where the web page shows the subject of a Problem: the values of parameters of its URL.
type ProblemPlace = inspect.Place

// Place returns where the web page shows the subject of the problem.
func (p Problem) Place() ProblemPlace { return inspect.Problem(p).Place() }

// ProblemAction is the remedy of a Problem. Do is resume, resume_workers, resume_key, flow or keys, for programs that
// offer that, or show, if the Place has more. Command is the arguments of the later command that does or shows it, and
// Shell returns it as a line for a shell.
type ProblemAction = inspect.Action

// Action returns the remedy of the problem.
func (p Problem) Action() ProblemAction { return inspect.Problem(p).Action() }

// ProblemList is the result of Client.Problems.
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
func (c *Client) Problems(ctx context.Context) (ProblemList, error) {
	return called(c, func() (list ProblemList, err error) {
		found, err := (&inspect.ProblemReader{Fleet: &c.fleet}).Find(ctx)
		list.LeftOut, list.Now = found.LeftOut, found.Now
		for _, p := range found.Problems {
			list.Problems = append(list.Problems, Problem(p))
		}
		return list, err
	})
}
