package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

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
			says("A request for a message that is no longer held, also because it was settled before, is answered with "+
				"409 and the code lease_lost.")), func(ctx context.Context, in *settleInput) (*struct{}, error) {
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

type settleResultsOutput struct {
	Body struct {
		Results []SettleResult `json:"results" doc:"One for each message, in order"`
	}
}

// SettleResult has the problem of a message that was not settled.
type SettleResult struct {
	Error *problem.Problem `json:"error,omitempty"`
}

func (s *Server) settleMany(ctx context.Context, in *settleLeasesInput) (*settleResultsOutput, error) {
	out := &settleResultsOutput{}
	out.Body.Results = make([]SettleResult, len(in.Body.Messages))
	var all sync.WaitGroup
	for i := range in.Body.Messages {
		m := &in.Body.Messages[i]
		all.Go(func() { // acks of one queue, and other settles, go to the store together
			if err := s.settle(ctx, m.Action, m.Token, &m.Settlement); err != nil {
				out.Body.Results[i].Error = s.problemOf(ctx, err)
			}
		})
	}
	all.Wait()
	return out, nil
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
