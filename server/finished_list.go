package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerFinished(s *Server) {
	const what = " This server has them in its memory, from the live events of all processes since it started: up to a " +
		"number and an age for each queue, and 64 MiB for all. Events can be missed, which missed and gaps count. Other " +
		"servers of the store have lists of their own, or none."
	route(s, access.Look, on("GET /v1/queues/{queue}/finished", "messages", "listFinished",
		"List finished messages, latest first", fails(http.StatusNotFound),
		says("Messages of a queue that were acked, forwarded, cancelled, purged or dropped, or became dead."+what)),
		s.listFinished)
	route(s, access.Look, on("GET /v1/queues/{queue}/finished/{id}", "messages", "getFinished",
		"List the finished messages with an id, latest first", fails(http.StatusNotFound),
		says("More than one, if the id was used again, or a dead message was replayed."+what)), s.getFinished)
}

// Finished is a message that has finished. Times are on the clocks of the processes that reported them.
type Finished struct {
	Queue    string          `json:"queue"`
	ID       string          `json:"id,omitempty" doc:"None for purged: that event does not name the messages"`
	Outcome  store.EventKind `json:"outcome" enum:"acked,forwarded,buried,expired,died,dropped,cancelled,purged" doc:"The event that ended it. The messages of buried, expired and died are dead letters"`
	Time     string          `json:"time" doc:"When it finished"`
	SentAt   string          `json:"sent_at,omitempty" doc:"If this server has seen that, or the id tells it"`
	Due      string          `json:"due,omitempty" doc:"When it was due for its last delivery, if this server has seen that"`
	Attempt  int             `json:"attempt,omitempty" doc:"The number of its last attempt"`
	Lateness wire.Duration   `json:"lateness,omitempty"`
	Duration wire.Duration   `json:"duration,omitempty" doc:"How long the handler ran"`
	Count    int             `json:"count,omitempty" doc:"Of purged: how many messages"`
	Error    string          `json:"error,omitempty" doc:"Up to 300 bytes"`
	Process  *wire.Process   `json:"process,omitempty" doc:"Where it finished"`
}

// FinishedPage is a page of finished messages, latest first.
type FinishedPage struct {
	Page[Finished]
	Kept     int           `json:"kept" doc:"How many finished messages of the queue the server has"`
	MaxCount int           `json:"max_count" doc:"How many it keeps at most"`
	MaxAge   wire.Duration `json:"max_age" doc:"How long it keeps them"`
	Since    string        `json:"since,omitempty" doc:"When it began to see events; none if it has not yet"`
	Missed   int           `json:"missed" doc:"How many events it has missed since then, of this queue or of an unknown one; not all of them are of messages that have finished"`
	Gaps     int           `json:"gaps" doc:"How often it has missed an unknown number of events since then, because the connection to the store was interrupted"`
}

type listFinishedInput struct {
	QueuePath
	PageQuery
	ID       string    `query:"id" maxLength:"128" doc:"Only those with this in their ids"`
	Outcomes []string  `query:"outcome,explode" maxItems:"8" doc:"Only those with one of these outcomes"`
	After    time.Time `query:"finished_after" doc:"Only those that finished at this time or later"`
	Before   time.Time `query:"finished_before" doc:"Only those that finished before this time"`
}

// finishedOutcomes are all outcomes.
var finishedOutcomes = []string{"acked", "forwarded", "buried", "expired", "died", "dropped", "cancelled", "purged"}

// matches returns a function that reports whether a message is asked for.
func (in *listFinishedInput) matches() (func(*finishedEntry) bool, error) {
	for _, outcome := range in.Outcomes {
		if !slices.Contains(finishedOutcomes, outcome) {
			return nil, field("query.outcome", store.Invalid("%q is no outcome: give some of %s", outcome,
				strings.Join(finishedOutcomes, ", ")))
		}
	}
	after, before := in.After.UnixMilli(), in.Before.UnixMilli()
	return func(e *finishedEntry) bool {
		return strings.Contains(e.id, in.ID) &&
			(in.After.IsZero() || e.at >= after) && (in.Before.IsZero() || e.at < before) &&
			(len(in.Outcomes) == 0 || slices.Contains(in.Outcomes, string(e.outcome)))
	}, nil
}

func (s *Server) listFinished(ctx context.Context, in *listFinishedInput) (*output[FinishedPage], error) {
	matches, err := in.matches()
	if err != nil {
		return nil, err
	}
	var before uint64
	if in.Cursor != "" {
		if before, err = strconv.ParseUint(in.Cursor, 10, 64); err != nil || before == 0 {
			return nil, field("query.cursor", store.Invalid("is %.40q: give the next of the page before", in.Cursor))
		}
	}
	if err := s.keepsFinished(ctx, in.Queue); err != nil {
		return nil, err
	}
	out, next := s.finished.page(ctx, in.Queue, before, in.Limit, matches)
	if next > 0 {
		out.Next = strconv.FormatUint(next, 10)
	}
	return outputOf(out), nil
}

func (s *Server) getFinished(ctx context.Context, in *MessagePath) (*output[FinishedPage], error) {
	if err := s.keepsFinished(ctx, in.Queue); err != nil {
		return nil, err
	}
	out, _ := s.finished.page(ctx, in.Queue, 0, maxFinishedOfID, func(e *finishedEntry) bool { return e.id == in.ID })
	if len(out.Items) == 0 {
		return nil, fmt.Errorf("no finished message %q of queue %q is kept, of the last %d within %s: %w", in.ID, in.Queue,
			out.MaxCount, durations.Format(time.Duration(out.MaxAge)), store.ErrNotFound)
	}
	return outputOf(out), nil
}

// maxFinishedOfID is how often an id that has finished is shown.
const maxFinishedOfID = 100

// keepsFinished returns an ErrNotFound unless finished messages of a queue are kept, and the queue exists. While the
// store cannot be read, it counts as existing.
func (s *Server) keepsFinished(ctx context.Context, queue string) error {
	if err := s.queueExists(ctx, queue); errors.Is(err, store.ErrNotFound) {
		s.finished.forget(queue)
		return err
	}
	if !s.finished.has(queue) {
		return errNotKept(queue)
	}
	return nil
}

// page returns up to limit messages with numbers below one that match, the latest first, as the sender of a request may
// see them. 0 is after all. next is the number of the last one if there are more.
func (f *finishedLists) page(ctx context.Context, queue string, before uint64, limit int,
	matches func(*finishedEntry) bool,
) (out FinishedPage, next uint64) {
	hide := hides(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	out = FinishedPage{Page: Page[Finished]{Items: []Finished{}}, MaxCount: f.MaxCount, MaxAge: wire.Duration(f.MaxAge),
		Since: wire.FormatTime(f.since), Missed: int(f.missed), Gaps: f.gaps}
	l := f.queues[queue]
	if l == nil {
		return out, 0
	}
	f.dropOld(l, time.Now())
	out.Kept, out.Missed, out.Gaps = len(l.entries), out.Missed+int(l.missed), out.Gaps+l.gaps
	for _, e := range slices.Backward(l.entries) {
		if before > 0 && e.number >= before || !matches(e) {
			continue
		}
		if len(out.Items) == limit {
			return out, next
		}
		out.Items = append(out.Items, e.shown(queue, hide))
		next = e.number
	}
	return out, 0
}

// shown returns the JSON of the message, without its error if that is hidden.
func (e *finishedEntry) shown(queue string, hide bool) Finished {
	out := Finished{Queue: queue, ID: e.id, Outcome: e.outcome,
		Time: timeOf(e.at), SentAt: timeOf(e.sent), Due: timeOf(e.due),
		Attempt: e.attempt, Lateness: e.lateness, Duration: e.duration, Count: e.count, Error: e.err}
	if e.process != (unique.Handle[wire.Process]{}) {
		process := e.process.Value()
		out.Process = &process
	}
	if hide {
		out.Error = ""
	}
	return out
}

// timeOf returns the text of a time in ms since 1970, or "" for 0.
func timeOf(ms int64) string {
	if ms == 0 {
		return ""
	}
	return wire.FormatTime(time.UnixMilli(ms))
}

// withID returns the last finished message with an id in each queue that see reports true for, by queue.
func (f *finishedLists) withID(id string, see func(queue string) bool, hide bool) (all []Finished) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for queue, l := range f.queues {
		if !see(queue) {
			continue
		}
		f.dropOld(l, now)
		for _, e := range slices.Backward(l.entries) {
			if e.id == id {
				all = append(all, e.shown(queue, hide))
				break
			}
		}
	}
	slices.SortFunc(all, func(a, b Finished) int { return strings.Compare(a.Queue, b.Queue) })
	return all
}

// visible returns the names of queues with finished messages, or what stands for them, as the sender of a request may
// know them: who may not look at all queues is told of their own only.
func (f *finishedLists) visible(ctx context.Context) (names []string) {
	if may(ctx, access.Look, "") != nil {
		return nil
	}
	who, _ := access.FromContext(ctx)
	if who.Queues == nil {
		return f.Queues
	}
	for _, own := range who.Queues {
		if name, all := strings.CutSuffix(own, "*"); all && f.overlaps(name) || !all && f.has(own) {
			names = append(names, own)
		}
	}
	return names
}

// overlaps reports whether finished messages of some queues that begin with a text may be kept.
func (c *FinishedConfig) overlaps(begin string) bool {
	return slices.ContainsFunc(c.Queues, func(pattern string) bool {
		name, all := strings.CutSuffix(pattern, "*")
		return strings.HasPrefix(name, begin) || all && strings.HasPrefix(begin, name)
	})
}
