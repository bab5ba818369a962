package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/undo"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerMessages(s *Server) {
	registerMerged(s)
	const one = "/v1/queues/{queue}/messages/{id}"
	const tag = "messages"
	route(s, access.Look, on("GET /v1/queues/{queue}/messages", tag, "listMessages", "List messages",
		fails(http.StatusNotFound), s.fewReads,
		says("Leased, ready and scheduled messages by due time, dead ones by time of death, those of a group by id. "+
			"A message that does not change state meanwhile is listed exactly once over all pages. A page has more "+
			"messages than its limit if they were found together; with conditions on what is in a message it can "+
			"be empty although a later one is not.")), s.listMessages)
	route(s, access.Get, on("GET "+one, tag, "getMessage", "Get a message", fails(http.StatusNotFound)),
		s.getMessage)
	route(s, access.Send, on("PATCH "+one, tag, "editMessage",
		"Change the due time, payload or headers of a message", fails(http.StatusNotFound, http.StatusConflict),
		says("A message that changes while it is edited is not changed: the code is conflict.")), s.editMessage)
	route(s, access.Send, on("DELETE "+one, tag, "cancelMessage", "Cancel a message",
		fails(http.StatusNotFound, http.StatusConflict)), s.cancelMessage)
	route(s, access.Send, on("POST "+one+"/run", tag, "runMessage", "Make a message due at once",
		fails(http.StatusNotFound, http.StatusConflict), answers(http.StatusOK)), s.runMessage)
	route(s, access.Operate, on("POST "+one+"/replay", tag, "replayMessage",
		"Make a dead message live again", fails(http.StatusNotFound, http.StatusConflict), answers(http.StatusOK),
		says("Without in and at it is due at once.")), s.replayMessage)
	route(s, access.Get, on("GET "+one+"/why", tag, "explainMessage",
		"Explain why a message has not been handled yet", fails(http.StatusNotFound)), s.explain)
}

// Message is a live message.
type Message struct {
	*later.Info
	whole int // the length of its payload if that was cut, or 0
}

// MarshalJSON returns the JSON of the message.
func (m Message) MarshalJSON() ([]byte, error) {
	text, err := m.Info.MarshalJSON()
	if m.whole > 0 && err == nil {
		text = fmt.Appendf(text[:len(text)-1], `,"payload_bytes":%d}`, m.whole)
	}
	return text, err
}

// cut cuts a long payload to at most n bytes, and a text after a whole character. The result is not JSON.
func (m *Message) cut(n int) {
	if len(m.Payload) <= n {
		return
	}
	short := *m.Info
	short.Payload = bytes.Clone(m.Payload[:n]) // so that the whole payload can be freed
	if utf8.Valid(m.Payload) {
		short.Payload = bytes.ToValidUTF8(short.Payload, nil)
	}
	if jsontext.Check(short.Payload) == nil { // the digits of a longer number
		short.Payload = append(bytes.Clone(short.Payload[:n-1]), '~')
	}
	m.Info, m.whole = &short, len(m.Payload)
}

// Schema returns the schema of the JSON of later.Info.
func (Message) Schema(r huma.Registry) *huma.Schema { return r.Schema(typeOf[wire.Info](), true, "") }

// preview returns the JSON of a message as the sender of a request may see it, with a payload of at most n bytes, or
// the whole payload if n is 0.
func preview(ctx context.Context, info *later.Info, n int) Message {
	m := shownMessage(ctx, info)
	if n > 0 {
		m.cut(n)
	}
	return m
}

// shownMessage is preview with the whole payload.
func shownMessage(ctx context.Context, info *later.Info) Message {
	if !hides(ctx) {
		return Message{Info: info}
	}
	hidden := *info
	hidden.Payload, hidden.Headers, hidden.Raw, hidden.LastError = nil, nil, nil, ""
	hidden.Failures = make([]later.Failure, len(info.Failures))
	for i, f := range info.Failures {
		f.Error = ""
		hidden.Failures[i] = f
	}
	return Message{Info: &hidden}
}

// maxPageBytes is how many bytes a page of a list has as JSON, unless a single message has more.
const maxPageBytes = 8 << 20

type listInput struct {
	QueuePath
	FilterQuery
	PageQuery
	Look int `query:"look" minimum:"1" maximum:"100000" default:"10000" doc:"How many messages to look at, however few match"`
	// Preview is for lists of payloads that people look at.
	Preview int `query:"preview" minimum:"1" maximum:"1048576" doc:"Cut payloads to so many bytes, also JSON, of which the beginning is then payload_text, and say in payload_bytes how long those are that were cut. Default: the whole payloads"`
}

// MessagePage is a page of messages.
type MessagePage struct {
	Page[Message]
	Looked    int  `json:"looked" doc:"How many messages were looked at"`
	Truncated bool `json:"truncated,omitempty" doc:"The page ended early, since it has 8 MiB: go on with its cursor"`
}

func (s *Server) listMessages(ctx context.Context, in *listInput) (*output[MessagePage], error) {
	filter, err := in.filter(ctx)
	if err != nil {
		return nil, err
	}
	out, err := s.messagePage(ctx, in.Queue, filter, in.PageQuery, in.Look, in.Preview)
	return outputOf(out), s.foundSome(ctx, in.Queue, out.Looked, err)
}

// messagePage searches a queue until there are as many messages as a page has, or look were looked at, or the page is
// full. Parts of it are searched for, since messages may be shown shorter than they are; see preview for n.
func (s *Server) messagePage(ctx context.Context, queue string, f inspect.Filter, q PageQuery, look, n int) (
	b MessagePage, err error) {
	b.Items = []Message{}
	for size, cursor := 0, q.Cursor; ; {
		page, err := inspect.Search(ctx, s.client, queue, f, inspect.SearchOptions{Limit: q.Limit - len(b.Items),
			Look: look - b.Looked, Cursor: cursor, Bytes: maxPageBytes - size})
		if err != nil {
			return b, err
		}
		for _, info := range page.Messages {
			m := preview(ctx, info, n)
			size += m.SizeAsJSON()
			b.Items = append(b.Items, m)
		}
		b.Looked, b.Next, cursor = b.Looked+page.Looked, page.Next, page.Next
		switch {
		case cursor == "" || len(b.Items) >= q.Limit || b.Looked >= look:
			return b, nil
		case size >= maxPageBytes/2 && page.Truncated:
			b.Truncated = true
			return b, nil
		}
	}
}

// maySearch refuses a search for content that is hidden from the sender of the request: the result would tell it. It
// keeps words from being looked for in such content.
func maySearch(ctx context.Context, f *inspect.Filter) error {
	f.NamesOnly = hides(ctx)
	if !hides(ctx) || f.Payload == "" && f.JSON == nil && len(f.Headers) == 0 && f.Error == "" && f.ErrorPattern == "" {
		return nil
	}
	return errHiddenSearch
}

var errHiddenSearch = &problem.Error{Status: http.StatusForbidden,
	Err: fmt.Errorf("a caller who may not see payloads and headers may not search in them either: %w", store.ErrForbidden)}

func (s *Server) getMessage(ctx context.Context, in *MessagePath) (*output[Message], error) {
	info, err := s.client.Queue(in.Queue).Get(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return outputOf(shownMessage(ctx, info)), nil
}

// UndoableQuery asks for a change that undoChange can undo.
type UndoableQuery struct {
	Undoable bool `query:"undoable" doc:"Keep what undoChange needs to undo the change exactly, which takes a further call of the store and, for cancelled messages, memory of the server"`
}

// keepIf returns the context for a change of messages, and its kept if the request asks for one, else nil.
func (s *Server) keepIf(ctx context.Context, q UndoableQuery) (context.Context, *kept) {
	if !q.Undoable {
		return ctx, nil
	}
	k := s.undos.begin()
	return undo.WithLog(ctx, &k.log), k
}

// forgetIf forgets the kept of a change that failed.
func (s *Server) forgetIf(k *kept) {
	if k != nil {
		s.undos.forget(k)
	}
}

type editMessageInput struct {
	MessagePath
	UndoableQuery
	Body struct {
		Due
		message.Payload
		Headers *map[string]string `json:"headers,omitempty" doc:"All headers, in place of those that it has; the content type stays with the payload unless they have one, or the payload is new"`
	}
}

func (s *Server) editMessage(ctx context.Context, in *editMessageInput) (*output[Message], error) {
	b := &in.Body
	due, err := b.when()
	if err != nil {
		return nil, err
	}
	timed, edits := b.given(), b.Payload.Given() || b.Headers != nil
	q := s.client.Queue(in.Queue)
	if !timed && !edits {
		return nil, field("body", store.Invalid("changes nothing: give in, at, a payload or headers"))
	}
	changing, k := s.keepIf(ctx, in.UndoableQuery)
	if edits {
		err = q.Edit(changing, in.ID, func(m *later.Outgoing) error {
			if timed {
				m.When = due
			}
			m.Payload, m.Headers, err = edited(m, &b.Payload, b.Headers)
			return err
		})
	} else {
		err = q.Reschedule(changing, in.ID, due)
	}
	if err != nil {
		s.forgetIf(k)
		return nil, err
	}
	s.changed(ctx, s.keptOf(k, access.Send), "message changed", slog.String("queue", in.Queue), slog.String("id", in.ID))
	return s.getMessage(ctx, &in.MessagePath)
}

type cancelInput struct {
	MessagePath
	KeepID
	UndoableQuery
}

func (s *Server) cancelMessage(ctx context.Context, in *cancelInput) (*output[wire.Cancelled], error) {
	changing, k := s.keepIf(ctx, in.UndoableQuery)
	was, err := s.client.Queue(in.Queue).Cancel(changing, in.ID, in.options()...)
	if err != nil {
		s.forgetIf(k)
		return nil, err
	}
	s.changed(ctx, s.keptOf(k, access.Send), "message cancelled", slog.String("queue", in.Queue), slog.String("id", in.ID))
	return outputOf(wire.Cancelled{ID: in.ID, Queue: in.Queue, Was: was}), nil
}

func (s *Server) runMessage(ctx context.Context, in *MessagePath) (*output[Message], error) {
	if err := s.client.Queue(in.Queue).RunNow(ctx, in.ID); err != nil {
		return nil, err
	}
	s.Changed(ctx, "message run now", slog.String("queue", in.Queue), slog.String("id", in.ID))
	return s.getMessage(ctx, in)
}

type replayMessageInput struct {
	MessagePath
	Body struct {
		Due
	} `required:"false"`
}

func (s *Server) replayMessage(ctx context.Context, in *replayMessageInput) (*output[Message], error) {
	due, err := in.Body.when()
	if err != nil {
		return nil, err
	}
	q := s.client.Queue(in.Queue)
	replayed, err := q.Replay(ctx, due, in.ID)
	if err != nil {
		return nil, err
	}
	if replayed == 0 {
		return nil, fmt.Errorf("no dead message %q in queue %q: %w", in.ID, in.Queue, later.ErrNotFound)
	}
	s.Changed(ctx, "message replayed", slog.String("queue", in.Queue), slog.String("id", in.ID))
	return s.getMessage(ctx, &in.MessagePath)
}

type whyInput struct {
	MessagePath
	TimeZone string `query:"time_zone" maxLength:"64" doc:"Of the times of day in the text. Default: UTC" example:"Europe/Berlin"`
}

func (s *Server) explain(ctx context.Context, in *whyInput) (*output[wire.Explanation], error) {
	zone, err := time.LoadLocation(in.TimeZone)
	if err != nil || in.TimeZone == "Local" {
		return nil, field("query.time_zone", store.Invalid("%q is no time zone: give one such as Europe/Berlin", in.TimeZone))
	}
	e, err := inspect.Explain(ctx, s.client, in.Queue, in.ID)
	if err != nil {
		return nil, err
	}
	if hides(ctx) {
		e.Error = ""
	}
	return outputOf(view.Explanation(e, zone)), nil
}

// hidden returns the error for a request whose reply would contain something that is hidden from its sender.
func hidden(what string) error {
	return &problem.Error{Status: http.StatusForbidden,
		Err: fmt.Errorf("the reply has %s, which are hidden from you: %w", what, store.ErrForbidden)}
}
