package topic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/store"
)

const (
	// sendsAtOnce is the number of queues to which copies are sent at the same time, if they are sent one by one.
	sendsAtOnce = 16
	// MissedHeader is the header of a message that waits in the topic's queue for queues that cannot be written: a
	// missed as JSON.
	MissedHeader = "later-missed"
	// brokenFirst and brokenMost are the first and the longest pause between two attempts to write such a queue.
	brokenFirst = 5 * time.Second
	brokenMost  = 5 * time.Minute
)

// broken is a queue that cannot be written: it has another format, for example, or a key of the wrong type.
type broken struct {
	pause time.Duration
	next  time.Time // when the next attempt is made
}

// Do implements pump.Work. It changes the settlements of messages so that each subscribed queue receives them with the
// ack, or sends them before if that is not possible in one step. The settlements are refused if the subscriptions have
// changed since they were read here.
func (x *Distributor) Do(ctx context.Context, claim store.Claim, settlements []store.Settlement) error {
	stale, err := true, error(nil)
	for stale && err == nil {
		stale, err = x.tryDistribute(ctx, claim.Messages, settlements)
		err = cmp.Or(err, context.Cause(ctx))
	}
	for i := range settlements {
		if err != nil {
			settlements[i] = store.Settlement{Receipt: settlements[i].Receipt, Action: store.Release}
		}
	}
	return err
}

// tryDistribute is Do with the subscriptions as they are now. It reports whether they have changed since.
func (x *Distributor) tryDistribute(
	ctx context.Context, msgs []store.Claimed, settlements []store.Settlement,
) (stale bool, err error) {
	calling, cancel := context.WithTimeout(ctx, calls.Timeout)
	defer cancel()
	if err := x.load(calling); err != nil {
		return false, err
	}
	plans, sends := make([]plan, len(msgs)), map[string][]store.Claimed{} // by queue
	for i := range msgs {
		plans[i] = x.plan(&msgs[i])
		for _, queue := range plans[i].sends {
			sends[queue] = append(sends[queue], plans[i].copied)
		}
	}
	x.searched, x.oneByOne = x.oneByOne, false
	if stale, err := x.sendAll(ctx, sends); err != nil || stale {
		return stale, err
	}
	for i := range msgs {
		x.settlePlanned(&plans[i], &settlements[i])
	}
	return false, nil
}

// plan is how one message is distributed.
type plan struct {
	copied store.Claimed    // the message as queues receive it
	only   []string         // the queues that it waits for; it was distributed to all others before
	drop   bool             // nobody is subscribed
	then   []store.FollowUp // copies that are written with the ack
	sends  []string         // queues that copies are sent to before the ack
	missed []string         // queues that cannot be written and are not tried now
}

// missed describes a message that waits for queues. It waits under an id of its own, because the id of the message is
// free once it was distributed: a successor may have it, or one that is published later.
type missed struct {
	ID     string   `json:"id"`     // of the message
	Queues []string `json:"queues"` // all others have received it
}

// missedBy returns for what a message waits, or nil if it was not distributed yet.
func missedBy(m *store.Claimed) *missed {
	var of missed
	if json.Unmarshal([]byte(m.Headers[MissedHeader]), &of) != nil || store.CheckID(of.ID) != nil {
		return nil
	}
	return &of
}

// plan decides how a message is distributed.
func (x *Distributor) plan(m *store.Claimed) plan {
	p := plan{copied: *m}
	if waits := missedBy(m); waits != nil {
		p.only, p.copied.ID, p.copied.Headers = waits.Queues, waits.ID, maps.Clone(m.Headers)
		delete(p.copied.Headers, MissedHeader)
	}
	if p.drop = len(x.state.Subscriptions) == 0 && p.only == nil; p.drop {
		return p
	}
	linked := true
	var uncertain []string // queues that may not receive it now
	add := func(queue string, window time.Duration) {
		b := x.broken[queue]
		switch {
		case p.only != nil && !slices.Contains(p.only, queue):
		case b == nil:
			out := store.Outgoing{Message: p.copied.Message, Due: store.Due{At: m.Due}}
			out.DedupWindow = max(out.DedupWindow, window)
			p.then = append(p.then, store.FollowUp{Queue: queue, Message: out})
			linked = linked && store.Linked(x.Store, x.Topic.Queue, queue)
		case time.Now().Before(b.next):
			p.missed, uncertain = append(p.missed, queue), append(uncertain, queue)
		default:
			p.sends, uncertain = append(p.sends, queue), append(uncertain, queue)
		}
	}
	for _, s := range x.state.Subscriptions {
		if !s.Filter.Matches(p.copied.Headers) {
			continue
		}
		window := time.Duration(0)
		if s.CatchingUp {
			window = pump.Window
		}
		add(s.Queue, window)
	}
	if x.state.Config.Retains() {
		add(x.Topic.History, 0)
	}
	oneStep := linked && !x.oneByOne && store.FollowUpsFit(p.then)
	if oneStep && len(uncertain) > 0 {
		rest, ok := x.rest(&p, uncertain)
		oneStep = ok && store.FollowUpsFit(append(p.then, rest))
	}
	if !oneStep {
		for _, f := range p.then {
			p.sends = append(p.sends, f.Queue)
		}
		p.then = nil
	}
	return p
}

// settlePlanned makes the settlement of a message the last step of its plan.
func (x *Distributor) settlePlanned(p *plan, s *store.Settlement) {
	for _, queue := range p.sends {
		if x.broken[queue] != nil {
			p.missed = append(p.missed, queue)
		}
	}
	s.If, s.Then = x.state.Unchanged(), p.then
	switch {
	case p.drop && x.state.Config.DropUnsubscribed:
		s.Action, s.Reason = store.Bury, noSubscribersText
	case p.drop:
		s.Action = store.Release
	case len(p.missed) > 0:
		x.setAside(p, s)
	}
}

// setAside has a message wait in the topic's queue for queues that cannot be written.
func (x *Distributor) setAside(p *plan, s *store.Settlement) {
	retry := brokenMost
	for _, queue := range p.missed {
		retry = min(retry, max(0, time.Until(x.broken[queue].next)))
	}
	if len(p.missed) != len(p.only) { // else it waits for the same queues as before
		if rest, ok := x.rest(p, p.missed); ok {
			rest.Message.Due.Delay = retry
			s.Then = append(p.then, rest)
			return
		}
	}
	// Queues that received it now receive it again, but remember it for a day; see pump.Send.
	s.Action, s.Delay = store.Snooze, retry
}

// rest returns the follow-up by which a message waits in the topic's queue for other queues. A header has their names,
// so that only they receive it then. It reports whether that is possible.
func (x *Distributor) rest(p *plan, queues []string) (store.FollowUp, bool) {
	text, err := json.Marshal(missed{p.copied.ID, queues})
	if err != nil {
		panic(err) // a list of texts
	}
	rest := store.FollowUp{Queue: x.Topic.Queue, Message: store.Outgoing{Message: p.copied.Message}}
	rest.Message.ID = new(store.IDs).New(p.copied.Key)
	rest.Message.Headers = map[string]string{MissedHeader: string(text)}
	maps.Copy(rest.Message.Headers, p.copied.Headers)
	return rest, rest.Check() == nil && store.Linked(x.Store, x.Topic.Queue, x.Topic.Queue)
}

// Acked implements pump.Work.
func (x *Distributor) Acked(m *store.Claimed, s *store.Settlement) {
	kind := event.Forwarded
	if n := len(s.Then); n > 0 && s.Then[n-1].Queue == x.Topic.Queue {
		kind = event.Snoozed // it waits for queues that cannot be written
	}
	id := m.ID
	if waits := missedBy(m); waits != nil {
		id = waits.ID
	}
	x.Reports.Event(kind, id)
}

// Settled implements pump.Work.
func (x *Distributor) Settled(*store.Claimed, *store.Settlement, store.State) {}

// Refused implements pump.Work. One of the queues with copies may be the reason: then they are sent one by one, and
// only that queue goes without.
func (x *Distributor) Refused(error, []store.Settlement) pump.Answer {
	if x.searched {
		return pump.GiveUp
	}
	x.oneByOne = true
	return pump.DoAgain
}

// sendAll sends messages to queues and finds out which of them cannot be written. It reports whether the subscriptions
// have changed, so that a queue did not take them. An error says that a queue takes nothing now.
func (x *Distributor) sendAll(ctx context.Context, sends map[string][]store.Claimed) (stale bool, err error) {
	queues := slices.Sorted(maps.Keys(sends))
	conflicts, errs := make([]bool, len(queues)), make([]error, len(queues))
	var all sync.WaitGroup
	slots := make(chan struct{}, sendsAtOnce)
	for i, queue := range queues {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = pump.Send(ctx, x.Store, queue, sends[queue], x.Topic.linked())
			if conflicts[i] = errors.Is(errs[i], store.ErrConflict); conflicts[i] {
				calling, cancel := context.WithTimeout(ctx, calls.Timeout)
				defer cancel()
				_, errs[i] = x.Topic.relink(calling, queue)
			}
		})
	}
	all.Wait()
	for i, queue := range queues {
		switch {
		case errs[i] == nil:
			x.written(queue)
		case calls.IsRefusal(errs[i]):
			x.notWritten(queue, errs[i])
		default:
			err = cmp.Or(err, errs[i])
		}
	}
	return slices.Contains(conflicts, true), err
}

// written records that a queue can be written.
func (x *Distributor) written(queue string) {
	if x.broken[queue] != nil {
		delete(x.broken, queue)
		x.Log.Info("later: a queue receives the messages of its topic again", "topic", x.Topic.Name, "queue", queue)
	}
}

// notWritten records that a queue cannot be written, and sets the time of the next attempt.
func (x *Distributor) notWritten(queue string, err error) {
	b := x.broken[queue]
	if b == nil {
		b = &broken{pause: brokenFirst}
		x.broken[queue] = b
		x.Log.Error("later: a subscribed queue cannot be written, so its messages wait in the topic's queue; retrying",
			"topic", x.Topic.Name, "queue", queue, "error", err)
	}
	b.next = time.Now().Add(b.pause)
	b.pause = min(2*b.pause, brokenMost)
}
