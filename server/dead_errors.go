package server

import (
	"context"
	"net/http"

	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
)

func registerDeadErrors(s *Server) {
	const what = "The last errors of the messages of a group differ only in numbers, UUIDs and long hexadecimal " +
		"numbers, and its pattern has # in their place. Messages that died in the last 24 hours are looked at first, " +
		"then earlier ones. A pattern can be in several pages: add up the counts. The parameter error_pattern and the " +
		"field of a filter select a group."
	route(s, access.Look, on("GET /v1/dead-errors", "queues", "listAllDeadErrors",
		"Group dead messages of all queues by their errors", s.fewReads, says(what)), s.allDeadErrors)
	route(s, access.Look, on("GET /v1/queues/{queue}/dead-errors", "queues", "listDeadErrors",
		"Group dead messages by their errors", fails(http.StatusNotFound), s.fewReads, says(what)), s.deadErrors)
}

// DeadErrorsQuery limits the dead messages that are looked at.
type DeadErrorsQuery struct {
	Look   int    `query:"look" minimum:"1" maximum:"100000" default:"10000" doc:"How many messages to look at"`
	Cursor string `query:"cursor" maxLength:"8192" doc:"The next of the page before"`
}

type deadErrorsInput struct {
	QueuePath
	DeadErrorsQuery
}

type allDeadErrorsInput struct {
	DeadErrorsQuery
	Queues []string `query:"queue,explode" maxItems:"100" doc:"Only these queues. Default: all but internal ones"`
}

// DeadErrorsPage is a page of groups of dead messages, the largest first.
type DeadErrorsPage struct {
	Page[wire.DeadErrors]
	Queues        int    `json:"queues" doc:"How many queues are looked at"`
	LeftOut       int    `json:"left_out,omitempty" doc:"How many of them cannot be read"`
	Dead          int64  `json:"dead" doc:"How many dead messages these queues have"`
	Looked        int    `json:"looked" doc:"How many of them were looked at for this page"`
	HoursFrom     string `json:"hours_from,omitempty" doc:"When the 24 hours begin in which the groups count deaths: a whole hour, the same in all pages"`
	HoursComplete bool   `json:"hours_complete" doc:"All messages that died since then were looked at, in this page or those before it"`
}

func (s *Server) allDeadErrors(ctx context.Context, in *allDeadErrorsInput) (*output[DeadErrorsPage], error) {
	if err := checkQueues(ctx, in.Queues); err != nil {
		return nil, err
	}
	return s.groupDead(ctx, "", &in.DeadErrorsQuery, in.Queues)
}

func (s *Server) deadErrors(ctx context.Context, in *deadErrorsInput) (*output[DeadErrorsPage], error) {
	out, err := s.groupDead(ctx, in.Queue, &in.DeadErrorsQuery, []string{in.Queue})
	if err != nil {
		return nil, err
	}
	return out, s.foundSome(ctx, in.Queue, out.Body.Looked, nil)
}

func (s *Server) groupDead(ctx context.Context, queue string, in *DeadErrorsQuery, queues []string) (
	*output[DeadErrorsPage], error,
) {
	if hides(ctx) {
		return nil, hidden("the texts of errors")
	}
	page, err := inspect.DeadErrors(ctx, s.client, inspect.DeadErrorsOptions{Queues: queues, Visible: visible(ctx),
		Look: in.Look, Cursor: in.Cursor})
	if err != nil {
		return nil, err
	}
	out := DeadErrorsPage{Queues: page.Queues, LeftOut: page.LeftOut, Dead: page.Dead, Looked: page.Looked,
		HoursFrom: wire.FormatTime(page.From), HoursComplete: page.HoursComplete,
		Page: pageOf(page.Groups, func(group inspect.DeadGroup) wire.DeadErrors { return view.DeadErrors(queue, group) })}
	out.Next = page.Next
	return outputOf(out), nil
}
