package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerSeries(s *Server) {
	const one = "/v1/queues/{queue}/series/{id}"
	const tag = "series"
	route(s, access.Send, on("POST /v1/queues/{queue}/series", tag, "sendSeries", "Send a reminder series",
		fails(http.StatusConflict), answers(http.StatusCreated), bodyUpTo(wire.MaxMessage),
		says("A message for each of the offsets, due at the moment plus the offset, under one id. It may be "+
			"repeated: this sends what is missing, and the code is duplicate if nothing is.")), s.sendSeries)
	route(s, access.Get, on("GET "+one, tag, "listSeries", "List what remains of a series",
		fails(http.StatusNotFound)), s.listSeries)
	route(s, access.Send, on("PATCH "+one, tag, "moveSeries",
		"Move what remains of a series to another moment", fails(http.StatusNotFound, http.StatusConflict),
		says("Messages that a worker holds, dead ones, and those that have fallen due already and would not be due "+
			"later are left. After an error some may have been moved; repeat it.")), s.moveSeries)
	route(s, access.Send, on("DELETE "+one, tag, "cancelSeries", "Cancel what remains of a series",
		fails(http.StatusNotFound)), s.cancelSeries)
	const group = "/v1/queues/{queue}/groups/{group}"
	route(s, access.Operate, on("PATCH "+group, "groups", "rescheduleGroup",
		"Change the due time of the messages of a group", fails(http.StatusNotFound),
		says("Leased and dead messages are left as they are. After an error some may have been changed; repeat it.")),
		s.rescheduleGroup)
	route(s, access.Operate, on("DELETE "+group, "groups", "cancelGroup",
		"Cancel the messages of a group, whatever their states", fails(http.StatusNotFound),
		says("After an error some may have been cancelled; repeat it.")), s.cancelGroup)
}

// maxSeriesHeaders limits the headers of the messages of a series, not counting the headers that name the part.
const maxSeriesHeaders = store.MaxHeaders - 5

// SeriesPath is a series of a path.
type SeriesPath struct {
	QueuePath
	ID string `path:"id" maxLength:"96" doc:"The id of the series"`
}

// Moment is the moment of a series.
type Moment struct {
	Until time.Time `json:"until" doc:"The moment that the offsets are from"`
	Past  string    `json:"past,omitempty" enum:"skip,send" doc:"What happens to messages that would be due in the past: left out, or due at once. Default: skip"`
}

func (m *Moment) policy() later.PastPolicy {
	if m.Past == "send" {
		return later.SendPast
	}
	return later.SkipPast
}

type sendSeriesInput struct {
	QueuePath
	Body SendSeriesRequest
}

// SendSeriesRequest is a series to send.
type SendSeriesRequest struct {
	ID      string   `json:"id,omitempty" maxLength:"96" doc:"Default: a generated id"`
	Offsets []Offset `json:"offsets" minItems:"1" maxItems:"500"`
	message.Payload
	Headers map[string]string `json:"headers,omitempty" maxProperties:"59"`
	message.Options
	Durable *Durable `json:"durable,omitempty" doc:"Answer when the messages are on disk and on replicas"`
	Moment
}

// Offset is the distance of a message from the moment of its series.
type Offset string

// Schema returns the schema of the text.
func (Offset) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "-24h for a day before the moment, 1h for an hour after it",
		Examples: []any{"-24h"}}
}

func (o Offset) parse() (time.Duration, error) {
	unsigned, before := strings.CutPrefix(string(o), "-")
	d, err := durations.Parse(strings.TrimPrefix(unsigned, "+"))
	if before {
		d = -d
	}
	return d, err
}

func (s *Server) sendSeries(ctx context.Context, in *sendSeriesInput) (*output[wire.SentSeries], error) {
	b := &in.Body
	body := Outgoing{ID: b.ID, Payload: b.Payload, Headers: b.Headers, Options: b.Options, Durable: b.Durable}
	message, err := body.outgoing()
	if err != nil {
		return nil, err
	}
	if n := len(message.Headers); n > maxSeriesHeaders {
		return nil, field("headers", store.TooLarge("are %d with the content type of the payload: the limit is %d, because "+
			"a series adds its own; omit some", n, maxSeriesHeaders))
	}
	series := later.Series{Until: b.Until, Past: b.policy(), Offsets: make([]time.Duration, len(b.Offsets))}
	for i, offset := range b.Offsets {
		if series.Offsets[i], err = offset.parse(); err != nil {
			return nil, field(fmt.Sprintf("offsets[%d]", i), err)
		}
	}
	r, err := s.client.Queue(in.Queue).SendSeriesMessage(ctx, message, series)
	if err != nil && r.Sent > 0 {
		err = fmt.Errorf("sent %d messages of the series, then: %w", r.Sent, err)
	}
	return outputOf(wire.SentSeries{Queue: in.Queue, Series: r.ID, Until: wire.FormatTime(b.Until), Sent: r.Sent,
		Skipped: r.Skipped, Duplicates: r.Duplicates}), err
}

func (s *Server) listSeries(ctx context.Context, in *SeriesPath) (*output[Page[wire.SeriesMessage]], error) {
	remaining, err := s.client.Queue(in.Queue).ListSeries(ctx, in.ID)
	if err == nil && len(remaining) == 0 {
		err = nothingOf("series", in.Queue, in.ID)
	}
	return outputOf(pageOf(remaining, view.SeriesMessage)), err
}

type moveSeriesInput struct {
	SeriesPath
	UndoableQuery
	Body Moment
}

func (s *Server) moveSeries(ctx context.Context, in *moveSeriesInput) (*output[wire.MovedSeries], error) {
	if in.Body.Until.IsZero() {
		return nil, field("until", store.Invalid("is the zero time: give the new moment"))
	}
	changing, k := s.keepIf(ctx, in.UndoableQuery)
	n, err := s.client.Queue(in.Queue).MoveSeries(changing, in.ID, in.Body.Until, in.Body.policy())
	changed := n.Moved + n.Skipped
	err = s.changedPart(ctx, s.keptOf(k, access.Send), "series", "moved", in.Queue, in.ID, changed, changed+n.Left, err)
	return outputOf(wire.MovedSeries{Queue: in.Queue, Series: in.ID, Until: wire.FormatTime(in.Body.Until),
		Moved: n.Moved, Skipped: n.Skipped, Left: n.Left}), err
}

type cancelSeriesInput struct {
	SeriesPath
	KeepID
	UndoableQuery
}

func (s *Server) cancelSeries(ctx context.Context, in *cancelSeriesInput) (*output[wire.CancelledSeries], error) {
	changing, k := s.keepIf(ctx, in.UndoableQuery)
	n, err := s.client.Queue(in.Queue).CancelSeries(changing, in.ID, in.options()...)
	err = s.changedPart(ctx, s.keptOf(k, access.Send), "series", "cancelled", in.Queue, in.ID, n.Total(), n.Total(), err)
	return outputOf(wire.CancelledSeries{Queue: in.Queue, Series: in.ID, Cancelled: n.Total()}), err
}

// GroupPath is a group of a path.
type GroupPath struct {
	QueuePath
	Group string `path:"group" maxLength:"128" doc:"The name of the group"`
}

type rescheduleGroupInput struct {
	GroupPath
	UndoableQuery
	Body Due
}

func (s *Server) rescheduleGroup(ctx context.Context, in *rescheduleGroupInput) (
	*output[wire.RescheduledGroup], error,
) {
	due, err := in.Body.when()
	switch {
	case err != nil:
		return nil, err
	case !in.Body.given():
		return nil, field("in", store.Invalid("is missing: give in or at"))
	}
	changing, k := s.keepIf(ctx, in.UndoableQuery)
	n, err := s.client.Queue(in.Queue).RescheduleGroup(changing, in.Group, due)
	found := n.Rescheduled + n.Leased + n.Dead
	err = s.changedPart(ctx, s.keptOf(k, access.Operate), "group", "rescheduled", in.Queue, in.Group, n.Rescheduled,
		found, err)
	return outputOf(wire.RescheduledGroup{Queue: in.Queue, Group: in.Group, Due: dueAt(due),
		Rescheduled: n.Rescheduled, Leased: n.Leased, Dead: n.Dead}), err
}

type cancelGroupInput struct {
	GroupPath
	KeepID
	UndoableQuery
}

// KeepID selects the effect of a cancel on the ids of the messages.
type KeepID struct {
	Keep bool `query:"keep_id" doc:"Start the dedup windows of the messages, as an ack does"`
}

func (k KeepID) options() (opts []later.CancelOption) {
	if k.Keep {
		opts = append(opts, later.KeepID())
	}
	return opts
}

func (s *Server) cancelGroup(ctx context.Context, in *cancelGroupInput) (*output[wire.CancelledGroup], error) {
	changing, k := s.keepIf(ctx, in.UndoableQuery)
	n, err := s.client.Queue(in.Queue).CancelGroup(changing, in.Group, in.options()...)
	err = s.changedPart(ctx, s.keptOf(k, access.Operate), "group", "cancelled", in.Queue, in.Group, n.Total(), n.Total(),
		err)
	return outputOf(wire.CancelledGroup{Queue: in.Queue, Group: in.Group, Cancelled: n.Total(),
		Scheduled: n.Scheduled, Ready: n.Ready, Leased: n.Leased, Dead: n.Dead}), err
}
