package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
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
		Method: http.MethodPost, Path: "/v1/queues/{queue}/receive", Tags: []string{"work"},
		Summary: "Receive messages that are due",
		Description: "Each message is held until the end of its lease; settle it before with its token. Messages that are " +
			"not settled are delivered again, and that counts as a failed attempt. The reply is empty when no message fell " +
			"due in the time to wait.",
	}, s.receive)
}

type receiveInput struct {
	QueuePath
	Body struct {
		Max   int      `json:"max,omitempty" minimum:"1" maximum:"500" doc:"Default: 1"`
		Lease Duration `json:"lease,omitempty" doc:"10ms to 24h, for all messages of the reply together. Default: 30s"`
		Wait  Duration `json:"wait,omitempty" doc:"How long to wait for a first message, up to 5m. Default: not at all"`
	} `required:"false"`
}

type receiveOutput struct {
	Body struct {
		Messages []Received `json:"messages"`
	}
}

// Received is a message that a request received.
type Received struct {
	wire.Delivery
	Group string `json:"group,omitempty"`
	// Timeout is that of the sender.
	TimeoutMS float64 `json:"timeout_ms,omitempty" doc:"How long its sender lets a handler run"`
	Token     string  `json:"token" doc:"Settles or extends the message, at any server of the store; a secret"`
}

func (s *Server) receive(ctx context.Context, in *receiveInput) (*receiveOutput, error) {
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
	out := &receiveOutput{}
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
	ctx, done, err := s.wait(ctx)
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
			LatenessMS: wire.Millis(d.Lateness), Attempt: d.Attempt, MaxAttempts: d.MaxAttempts,
			SentAt: wire.FormatTime(d.SentAt),
		},
		Group: d.Group, TimeoutMS: wire.Millis(d.Timeout), Token: d.Receipt(),
	}
}
