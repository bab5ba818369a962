package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const (
	defaultLease = 30 * time.Second
	maxWait      = 5 * time.Minute
)

func registerReceive(s *Server) {
	const description = "Each message is held until the end of its lease; settle it before with its token. Messages " +
		"that are not settled are delivered again, and that counts as a failed attempt. The reply is empty when no " +
		"message fell due in the time to wait."
	route(s, access.Work, on("POST /v1/queues/{queue}/receive", "work", "receiveMessages",
		"Receive messages that are due", says(description),
		through(receiveFast(s, true, func(ctx huma.Context) (*receiveMessagesInput, any) {
			in := &receiveMessagesInput{QueuePath: QueuePath{ctx.Param("queue")}}
			return in, &in.Body
		}, s.receive))), s.receive)
	route(s, access.Work, on("POST /v1/receive", "work", "receiveFromQueues",
		"Receive messages that are due in several queues", says(description+" A lease is of the messages of one queue. "+
			"The reply may have fewer messages than there are, so that each queue has one lease."),
		through(receiveFast(s, false, func(huma.Context) (*receiveFromQueuesInput, any) {
			in := new(receiveFromQueuesInput)
			return in, &in.Body
		}, s.receiveMany))), s.receiveMany)
}

// ReceiveOptions are the options of a receive, without its queues.
type ReceiveOptions struct {
	Max         int      `json:"max,omitempty" minimum:"1" maximum:"500" doc:"Default: 1"`
	Lease       Duration `json:"lease,omitempty" doc:"10ms to 24h, for all messages of a queue together. Default: 30s"`
	Wait        Duration `json:"wait,omitempty" doc:"How long to wait for a first message, up to 5m. Default: not at all"`
	Worker      string   `json:"worker,omitempty" minLength:"1" maxLength:"128" doc:"The name of the worker, such as host:1234, under which it is listed and obeys commands. Default: it is not listed"`
	Concurrency int      `json:"concurrency,omitempty" minimum:"1" maximum:"1000000" doc:"Of a worker: how many messages it handles at a time. Default: max"`
	Version     string   `json:"version,omitempty" maxLength:"128" doc:"Of a worker: the version of its program"`
}

type receiveMessagesInput struct {
	QueuePath
	Body ReceiveOptions `required:"false"`
}

type receiveFromQueuesInput struct{ Body ReceiveMany }

// ReceiveMany is a receive from several queues.
type ReceiveMany struct {
	Queues []ReceiveQueue `json:"queues" minItems:"1" maxItems:"16"`
	ReceiveOptions
}

// ReceiveQueue is one of several queues that messages are received from.
type ReceiveQueue struct {
	Name   string `json:"name" minLength:"1" maxLength:"128"`
	Weight int    `json:"weight,omitempty" minimum:"1" maximum:"1000" doc:"Its share of the messages when several of the queues have some. Default: 1"`
}

// receiveFast answers requests to receive messages. Waiting on top of huma's calls would double the stack, which is
// most of the memory that a request that waits takes.
func receiveFast[I any](s *Server, optional bool, newInput func(huma.Context) (in I, body any),
	receive func(context.Context, I) (*output[ReceivedMessages], error)) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		if contentType(ctx.Header("Content-Type")) != jsonType {
			next(ctx)
			return
		}
		r, w := humago.Unwrap(ctx)
		text, give, err := s.readAll(w, r, maxBody)
		in, body := newInput(ctx)
		if err == nil {
			give()
			err = decodeBody(text, optional, body)
		}
		var out *output[ReceivedMessages]
		if err == nil {
			out, err = receive(ctx.Context(), in)
		}
		if err != nil {
			s.reply(w, r, 0, nil, err)
			return
		}
		s.reply(w, r, http.StatusOK, &out.Body, nil)
	}
}

// ReceivedMessages are the messages that a request received.
type ReceivedMessages struct {
	Messages []Received          `json:"messages"`
	Command  later.WorkerCommand `json:"command,omitempty" enum:"pause,drain,restart" doc:"What the worker was told: pause, it gets no messages until it is resumed; drain or restart, finish the messages that it has and end"`
}

// Received is a message that a request received.
type Received struct {
	wire.Delivery
	Token string `json:"token" doc:"Settles or extends the message, at any server of the store; a secret"`
}

func (s *Server) receive(ctx context.Context, in *receiveMessagesInput) (*output[ReceivedMessages], error) {
	return s.receiveFrom(ctx, []later.ReceiveQueue{{Name: in.Queue}}, &in.Body)
}

func (s *Server) receiveMany(ctx context.Context, in *receiveFromQueuesInput) (*output[ReceivedMessages], error) {
	queues := make([]later.ReceiveQueue, len(in.Body.Queues))
	for i, q := range in.Body.Queues {
		err := cmp.Or(store.CheckQueue(q.Name), may(ctx, access.Work, q.Name))
		if slices.ContainsFunc(queues[:i], func(other later.ReceiveQueue) bool { return other.Name == q.Name }) {
			err = store.Invalid("is %q a second time: give each queue once", q.Name)
		}
		if err != nil {
			return nil, field(fmt.Sprintf("queues[%d].name", i), err)
		}
		queues[i] = later.ReceiveQueue(q)
	}
	return s.receiveFrom(ctx, queues, &in.Body.ReceiveOptions)
}

func (s *Server) receiveFrom(
	ctx context.Context, queues []later.ReceiveQueue, o *ReceiveOptions,
) (*output[ReceivedMessages], error) {
	lease, err := o.Lease.parse("lease", false)
	if err != nil {
		return nil, err
	}
	lease = cmp.Or(lease, defaultLease)
	if err := store.CheckLease(lease); err != nil {
		return nil, field("lease", err)
	}
	wait, err := o.Wait.wait("wait")
	if err != nil {
		return nil, err
	}
	if o.Worker == "" && (o.Concurrency != 0 || o.Version != "") {
		return nil, field("worker", store.Invalid("is missing, and concurrency and version are of a worker: give its name"))
	}
	got, told, err := s.receiveSome(ctx, queues, o, lease, wait)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		s.release(ctx, got)
		return nil, context.Cause(ctx)
	}
	return outputOf(ReceivedMessages{pageOf(got, received).Items, told}), nil
}

// receiveSome returns no messages when none fell due in time, and when the server ends.
func (s *Server) receiveSome(
	ctx context.Context, queues []later.ReceiveQueue, o *ReceiveOptions, lease, wait time.Duration,
) (got []*later.Delivery, told later.WorkerCommand, err error) {
	ctx, done, err := s.wait(ctx, s.waits)
	if err != nil {
		return nil, "", err
	}
	defer done()
	opts := []later.ReceiveOption{later.Lease(lease)}
	if wait == 0 {
		opts = append(opts, later.NoWait())
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, wait, errNothingDue)
		defer cancel()
	}
	n := max(1, o.Max)
	if o.Worker == "" {
		defer s.receivers.begin(s, queues)()
	}
	switch {
	case o.Worker != "":
		w := later.RemoteWorker{ID: workerID(ctx, o.Worker), Name: o.Worker, Version: o.Version,
			Concurrency: o.Concurrency}
		got, told, err = s.client.ReceiveFor(ctx, w, n, queues, opts...)
	case len(queues) == 1:
		got, err = s.client.Queue(queues[0].Name).Receive(ctx, n, opts...)
	default:
		got, err = s.client.Receive(ctx, n, queues, opts...)
	}
	if errors.Is(err, errNothingDue) || errors.Is(err, errEnding) {
		err = nil
	}
	return got, told, err
}

// release releases messages of a receiver that is gone. A message that cannot be released comes again after its lease.
func (s *Server) release(ctx context.Context, got []*later.Delivery) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stallTimeout)
	defer cancel()
	var all sync.WaitGroup // the client settles them together
	for _, d := range got {
		all.Go(func() {
			if err := d.Release(ctx); err != nil {
				s.log.Debug("a message was not released", "queue", d.Queue, "id", d.ID, "error", err)
			}
		})
	}
	all.Wait()
}

// workerID returns the id of a worker with a name. It is the same at all servers of the store, and different for each
// token and user, so that no caller receives the commands of another's workers.
func workerID(ctx context.Context, name string) string {
	who, _ := access.FromContext(ctx)
	sum := sha256.Sum256([]byte(who.Key() + "\x00" + name))
	return "http-" + base64.RawURLEncoding.EncodeToString(sum[:15])
}

var errNothingDue = errors.New("no message fell due in time")

func received(d *later.Delivery) Received {
	return Received{view.Delivery(d.Message), d.Receipt()}
}

// actions are the actions on a held message: their summaries, and the fields of Settlement that they take.
var actions = []struct{ name, summary, takes string }{
	{"ack", "Remove a message: it is done", "then"},
	{"nack", "Report that an attempt failed", "delay reason"},
	{"snooze", "Deliver a message again, without counting an attempt", "delay reset_attempts"},
	{"bury", "Move a message to dead", "reason"},
	{"release", "Return a message as if it had not been delivered", ""},
	{"extend", "Hold the messages of a lease for longer", "lease"},
}

func registerLeases(s *Server) {
	for _, action := range actions {
		route(s, access.Work, on("POST /v1/leases/{token}/"+action.name, "work", action.name+"Lease",
			action.summary, fails(http.StatusNotFound, http.StatusConflict), answers(http.StatusNoContent),
			bodyUpTo(maxBatchBody),
			says("A request for a message that is no longer held, also because it was settled before, is answered "+
				"with 409 and the code lease_lost."),
		), func(ctx context.Context, in *settleInput) (*struct{}, error) {
			return nil, s.settle(ctx, action.name, in.Token, &in.Body)
		})
	}
	route(s, access.Work, on("POST /v1/leases/settle", "work", "settleLeases",
		"Settle or extend several messages", fails(http.StatusConflict), bodyUpTo(maxBatchBody),
		says("Each message is settled on its own.")), s.settleMany)
}

// Settlement says how a message is settled. Each action takes some of the fields.
type Settlement struct {
	Delay         Duration   `json:"delay,omitempty" doc:"Of nack and snooze: deliver it again after this delay. Default: at once"`
	Reason        string     `json:"reason,omitempty" maxLength:"2048" doc:"Of nack and bury: why"`
	ResetAttempts bool       `json:"reset_attempts,omitempty" doc:"Of snooze: count failed attempts from 0"`
	Lease         Duration   `json:"lease,omitempty" doc:"Of extend: hold all messages of the lease for so long from now"`
	Then          []FollowUp `json:"then,omitempty" maxItems:"500" doc:"Of ack: messages to send together with it, in one step"`
}

// FollowUp is a message that is sent with the ack of another one.
type FollowUp struct {
	Queue string `json:"queue" minLength:"1" maxLength:"128"`
	Outgoing
}

type settleInput struct {
	Token string     `path:"token" maxLength:"512" doc:"The token of a received message"`
	Body  Settlement `required:"false"`
}

type settleLeasesInput struct {
	Body struct {
		Messages []TokenSettlement `json:"messages" minItems:"1" maxItems:"500"`
	}
}

// TokenSettlement says how one of several messages is settled.
type TokenSettlement struct {
	Token  string `json:"token" maxLength:"512"`
	Action string `json:"action" enum:"ack,nack,snooze,bury,release,extend"`
	Settlement
}

// SettleResults are the results of several messages.
type SettleResults struct {
	Results []SettleResult `json:"results" doc:"One for each message, in order"`
}

// SettleResult has the problem of a message that was not settled.
type SettleResult struct {
	Error *problem.Problem `json:"error,omitempty"`
}

func (s *Server) settleMany(ctx context.Context, in *settleLeasesInput) (*output[SettleResults], error) {
	results := make([]SettleResult, len(in.Body.Messages))
	var all sync.WaitGroup
	for i := range in.Body.Messages {
		m := &in.Body.Messages[i]
		all.Go(func() { // acks of one queue, and other settles, go to the store together
			if err := s.settle(ctx, m.Action, m.Token, &m.Settlement); err != nil {
				results[i].Error = s.problemOf(ctx, err)
			}
		})
	}
	all.Wait()
	return outputOf(SettleResults{results}), nil
}

// settle does one action. It returns ErrInvalid for a field that the action does not take.
func (s *Server) settle(ctx context.Context, action, token string, how *Settlement) error {
	d, err := s.delivery(ctx, token)
	if err != nil {
		return err
	}
	if err := how.check(action); err != nil {
		return err
	}
	delay, err := how.Delay.delay("delay")
	if err != nil {
		return err
	}
	var reason error
	if how.Reason != "" {
		reason = errors.New(how.Reason)
	}
	switch action {
	case "nack":
		return d.Nack(ctx, delay, reason)
	case "snooze":
		if how.ResetAttempts {
			return d.Snooze(ctx, delay, later.ResetAttempts)
		}
		return d.Snooze(ctx, delay)
	case "bury":
		return d.Bury(ctx, reason)
	case "release":
		return d.Release(ctx)
	case "extend":
		lease, err := how.Lease.parse("lease", false)
		if err != nil {
			return err
		}
		return field("lease", d.Extend(ctx, lease))
	}
	then, err := s.followUps(ctx, how.Then)
	if err != nil {
		return err
	}
	return d.AckThen(ctx, then)
}

// delivery returns the delivery of a token, if the request may settle it.
func (s *Server) delivery(ctx context.Context, token string) (*later.Delivery, error) {
	receipt, err := wire.ParseReceipt(token)
	if err != nil {
		return nil, field("token", err)
	}
	if err := may(ctx, access.Work, receipt.Queue); err != nil {
		return nil, err
	}
	return s.client.Queue(receipt.Queue).Delivery(token)
}

// check refuses fields that an action does not take.
func (s *Settlement) check(action string) error {
	i := slices.IndexFunc(actions, func(a struct{ name, summary, takes string }) bool { return a.name == action })
	for name, given := range map[string]bool{
		"delay": s.Delay != "", "reason": s.Reason != "", "reset_attempts": s.ResetAttempts, "lease": s.Lease != "",
		"then": s.Then != nil,
	} {
		if given && !slices.Contains(strings.Fields(actions[i].takes), name) {
			return field(name, store.Invalid("%s takes no %s: omit it", action, name))
		}
	}
	if action == "extend" && s.Lease == "" {
		return field("lease", store.Invalid("extend needs a lease: give one such as 30s"))
	}
	return nil
}

// followUps returns messages to send with an ack, if the request may send them.
func (s *Server) followUps(ctx context.Context, then []FollowUp) (*later.FollowUps, error) {
	if len(then) == 0 {
		return nil, nil
	}
	all := new(later.FollowUps)
	for i := range then {
		where := fmt.Sprintf("then[%d]", i)
		if err := may(ctx, access.Send, then[i].Queue); err != nil {
			return nil, field(where, err)
		}
		message, err := then[i].outgoing()
		if err != nil {
			return nil, field(where, err)
		}
		all.ThenMessage(then[i].Queue, message)
	}
	return all, nil
}
