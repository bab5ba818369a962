package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// Due times of messages are from firstDue to lastDue.
var (
	firstDue = time.UnixMilli(1)
	lastDue  = time.Date(2199, 12, 31, 23, 59, 59, 0, time.UTC)
)

func registerDueQueues(s *Server) {
	route(s, access.Look, on("GET /v1/overview/queues", "overview", "listDueQueues",
		"Count the messages that are due in a range of time, by queue", s.fewReads,
		says("The queues with the most scheduled and ready messages in the range come first. Internal queues are left out "+
			"unless they are named. At most 1,000 queues are read, the first ones by name; left_out counts the others. "+
			"Counts are not a snapshot: changes during the request can be missing or counted twice.")), s.dueQueues)
}

// DueQueues are the queues with messages that are due in a range of time.
type DueQueues struct {
	Count      int64      `json:"count" doc:"Scheduled and ready messages of all queues that are due in the range"`
	QueueCount int        `json:"queue_count" doc:"How many queues have some"`
	LeftOut    int        `json:"left_out" doc:"How many queues were not read: beyond 1,000, or damaged"`
	Items      []DueQueue `json:"items" doc:"The queues with the most, at most limit"`
}

// DueQueue is a queue with messages that are due in a range of time.
type DueQueue struct {
	Queue string `json:"queue"`
	Count int64  `json:"count"`
}

type dueQueuesInput struct {
	Queues []string  `query:"queue,explode" maxItems:"200" doc:"Only these queues. Default: all but internal ones"`
	From   time.Time `query:"from" doc:"Count messages that are due from this time on. Default: all until to"`
	To     time.Time `query:"to" doc:"Count messages that are due before this time. Default: all since from"`
	Limit  int       `query:"limit" minimum:"1" maximum:"200" default:"20" doc:"List at most so many queues"`
}

func (s *Server) dueQueues(ctx context.Context, in *dueQueuesInput) (*output[*DueQueues], error) {
	if err := checkQueues(ctx, in.Queues); err != nil {
		return nil, err
	}
	if in.From.IsZero() && in.To.IsZero() {
		return nil, field("query.from", store.Invalid("the range has no bounds: give from, to or both"))
	}
	from, to, wrong := cmp.Or(in.From, firstDue), cmp.Or(in.To, lastDue), "query.from"
	if in.From.IsZero() {
		wrong = "query.to"
	}
	if err := store.CheckHistogram(from, to, 1); err != nil {
		return nil, field(wrong, err)
	}
	var all Overview
	names, err := s.overviewQueues(ctx, &overviewRequest{queues: sortedSet(in.Queues)}, &all)
	if err != nil {
		return nil, err
	}
	out, err := s.countDue(ctx, names, store.HistogramBounds(from, to, 1))
	if err != nil {
		return nil, err
	}
	out.LeftOut += all.QueuesLeftOut
	out.Items = out.Items[:min(len(out.Items), in.Limit)]
	return outputOf(out), nil
}

// countDue counts the messages of queues between two times, and lists the queues with some, the ones with most first.
func (s *Server) countDue(ctx context.Context, names []string, bounds []time.Time) (*DueQueues, error) {
	counts := slices.Repeat([]int64{-1}, len(names))
	if prober, ok := store.As[store.Prober](s.client.Store()); ok {
		var err error
		if counts, err = prober.CountDue(ctx, names, bounds[0], bounds[1]); err != nil {
			return nil, err
		}
	}
	errs := make([]error, len(names))
	atOnce(len(names), func(i int) bool {
		if counts[i] >= 0 {
			return true
		}
		var count []int64
		if count, errs[i] = s.client.Queue(names[i]).HistogramAt(ctx, bounds); errs[i] == nil {
			counts[i] = count[0]
		}
		return errs[i] == nil || isDamage(errs[i])
	})
	out := &DueQueues{Items: []DueQueue{}}
	for i, name := range names {
		switch {
		case isDamage(errs[i]):
			out.LeftOut++
		case errs[i] != nil:
			return nil, errs[i]
		case counts[i] > 0:
			out.Count += counts[i]
			out.Items = append(out.Items, DueQueue{name, counts[i]})
		}
	}
	slices.SortFunc(out.Items, func(a, b DueQueue) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Queue, b.Queue))
	})
	out.QueueCount = len(out.Items)
	return out, nil
}
