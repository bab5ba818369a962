package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerDeadErrors(s *Server) {
	route(s, access.Look, on("GET /v1/queues/{queue}/dead-errors", "queues", "listDeadErrors",
		"Group dead messages by their errors", fails(http.StatusNotFound), s.fewReads,
		says("A group has the messages whose last errors differ only in numbers, UUIDs and long hexadecimal "+
			"numbers, for which its pattern has #. A pattern can be in several pages: add up the counts. The "+
			"parameter error_pattern and the field of a filter select a group.")), s.deadErrors)
}

type deadErrorsInput struct {
	QueuePath
	Look   int    `query:"look" minimum:"1" maximum:"100000" default:"10000" doc:"How many messages to look at"`
	Cursor string `query:"cursor" maxLength:"1024" doc:"The next of the page before"`
}

// DeadErrorsPage is a page of groups of dead messages, the largest first.
type DeadErrorsPage struct {
	Page[wire.DeadErrors]
	Looked int `json:"looked" doc:"How many messages were looked at"`
}

func (s *Server) deadErrors(ctx context.Context, in *deadErrorsInput) (*output[DeadErrorsPage], error) {
	if hides(ctx) {
		return nil, hidden("the texts of errors")
	}
	page, err := s.client.Queue(in.Queue).DeadErrors(ctx, later.DeadErrorsOptions{Look: in.Look, Cursor: in.Cursor})
	if err = s.foundSome(ctx, in.Queue, page.Looked, err); err != nil {
		return nil, err
	}
	out := DeadErrorsPage{Looked: page.Looked, Page: pageOf(page.Groups, func(group later.DeadErrors) wire.DeadErrors {
		return view.DeadErrors(in.Queue, group)
	})}
	out.Next = page.Next
	return outputOf(out), nil
}

// hidden returns the error for a request whose reply would contain something that is hidden from its sender.
func hidden(what string) error {
	return &problem.Error{Status: http.StatusForbidden,
		Err: fmt.Errorf("the reply has %s, which are hidden from you: %w", what, store.ErrForbidden)}
}
