package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/tidwall/gjson"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const (
	defaultLease = 30 * time.Second
	maxWait      = 5 * time.Minute
)

func registerReceive(s *Server) {
	route(s, access.Work, huma.Operation{
		OperationID: "receiveMessages",
		Method:      http.MethodPost, Path: "/v1/queues/{queue}/receive", Tags: []string{"work"},
		Summary: "Receive messages that are due",
		Description: "Each message is held until the end of its lease; settle it before with its token. Messages that are " +
			"not settled are delivered again, and that counts as a failed attempt. The reply is empty when no message fell " +
			"due in the time to wait.",
		Middlewares: huma.Middlewares{s.receiveFast},
	}, s.receive)
}

type receiveMessagesInput struct {
	QueuePath
	Body struct {
		Max   int      `json:"max,omitempty" minimum:"1" maximum:"500" doc:"Default: 1"`
		Lease Duration `json:"lease,omitempty" doc:"10ms to 24h, for all messages of the reply together. Default: 30s"`
		Wait  Duration `json:"wait,omitempty" doc:"How long to wait for a first message, up to 5m. Default: not at all"`
	} `required:"false"`
}

// receiveFast takes requests as they usually are, and leaves others to huma. Waiting on top of huma's calls would
// double the stack, which is most of what a request that waits takes.
func (s *Server) receiveFast(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	body, give, err := s.readAll(w, r, maxBody)
	if err != nil {
		s.reply(w, r, 0, nil, err)
		return
	}
	give()
	in := &receiveMessagesInput{QueuePath: QueuePath{ctx.Param("queue")}}
	if contentType(ctx.Header("Content-Type")) != jsonType || !eachField(body, in.setPlain) {
		r.Body = io.NopCloser(bytes.NewReader(body))
		next(ctx)
		return
	}
	out, err := s.receive(ctx.Context(), in)
	if err != nil {
		s.reply(w, r, 0, nil, err)
		return
	}
	s.reply(w, r, http.StatusOK, &out.Body, nil)
}

// setPlain sets a field and reports whether it is a known one with a value that is allowed.
func (in *receiveMessagesInput) setPlain(name string, value gjson.Result) bool {
	switch name {
	case "max":
		n, err := strconv.Atoi(value.Raw)
		in.Body.Max = n
		return err == nil && n >= 1 && n <= store.MaxBatch
	case "lease":
		in.Body.Lease = Duration(value.Str)
	case "wait":
		in.Body.Wait = Duration(value.Str)
	default:
		return false
	}
	_, err := durations.Parse(value.Str)
	return value.Type == gjson.String && err == nil
}

type receivedMessagesOutput struct {
	Body struct {
		Messages []Received `json:"messages"`
	}
}

// Received is a message that a request received.
type Received struct {
	wire.Delivery
	Group string `json:"group,omitempty"`
	// Timeout is that of the sender.
	Timeout wire.Duration `json:"timeout,omitempty" doc:"How long its sender lets a handler run"`
	Token   string        `json:"token" doc:"Settles or extends the message, at any server of the store; a secret"`
}

func (s *Server) receive(ctx context.Context, in *receiveMessagesInput) (*receivedMessagesOutput, error) {
	lease, err := in.Body.Lease.parse("lease", false)
	if err != nil {
		return nil, err
	}
	if lease == 0 {
		lease = defaultLease
	}
	if err := store.CheckLease(lease); err != nil {
		return nil, field("lease", err)
	}
	wait, err := in.Body.Wait.parse("wait", true)
	if err != nil {
		return nil, err
	}
	if wait > maxWait {
		return nil, field("wait", store.Invalid("is %v: the limit is %v", wait, maxWait))
	}
	got, err := s.receiveSome(ctx, in.Queue, max(1, in.Body.Max), lease, wait)
	if err != nil {
		return nil, err
	}
	out := &receivedMessagesOutput{}
	out.Body.Messages = make([]Received, len(got))
	for i, d := range got {
		out.Body.Messages[i] = received(d)
	}
	return out, nil
}

// receiveSome returns no messages when none fell due in time, and when the server ends.
func (s *Server) receiveSome(
	ctx context.Context, queue string, n int, lease, wait time.Duration,
) ([]*later.Delivery, error) {
	ctx, done, err := s.wait(ctx, s.waits)
	if err != nil {
		return nil, err
	}
	defer done()
	q := s.client.Queue(queue)
	if wait == 0 {
		return q.Receive(ctx, n, later.Lease(lease), later.NoWait())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errNothingDue)
	defer cancel()
	got, err := q.Receive(ctx, n, later.Lease(lease))
	if errors.Is(err, errNothingDue) || errors.Is(err, errEnding) {
		err = nil
	}
	return got, err
}

var errNothingDue = errors.New("no message fell due in time")

func received(d *later.Delivery) Received {
	return Received{
		Delivery: wire.Delivery{
			ID: d.ID, Queue: d.Queue, Payload: wire.NewPayload(d.Payload), Headers: d.Headers, Due: wire.FormatTime(d.Due),
			Lateness: wire.Measured(d.Lateness), Attempt: d.Attempt, MaxAttempts: d.MaxAttempts,
			SentAt: wire.FormatTime(d.SentAt),
		},
		Group: d.Group, Timeout: wire.Duration(d.Timeout), Token: d.Receipt(),
	}
}
