package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// wantGroup checks which messages are in a group.
func wantGroup(t *testing.T, q *Queue, group string, want ...string) {
	t.Helper()
	var got []string
	for info, err := range q.All(t.Context(), ListOptions{Group: group, Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if info.Group != group {
			t.Errorf("message %s of group %q has the group %q", info.ID, group, info.Group)
		}
		got = append(got, info.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("group %q of queue %q has %q, want %q", group, q.Name(), got, want)
	}
}

// fillGroup sends a message of the group g in each state, with the state as its id, and one outside of it.
func fillGroup(t *testing.T, q *Queue) {
	t.Helper()
	mustSend(t, q, "", WithID("dead"), Group("g"))
	wantNoError(t, mustReceive(t, q, 1)[0].Bury(t.Context(), nil))
	mustSend(t, q, "", WithID("leased"), Group("g"))
	mustReceive(t, q, 1)
	mustSend(t, q, "", WithID("ready"), Group("g"))
	mustSend(t, q, "", WithID("scheduled"), Group("g"), In(time.Hour))
	mustSend(t, q, "", WithID("other"), In(time.Hour))
}

func TestGroupIsKeptWithTheMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		fillGroup(t, q)
		wantGroup(t, q, "g", "dead", "leased", "ready", "scheduled")
		page, err := q.ListGroup(ctx, "g", ListOptions{Limit: 3})
		wantNoError(t, err)
		if len(page.Messages) != 3 || page.Next == "" || page.Messages[0].State != StateDead {
			t.Errorf("page is %+v", page)
		}
		info, err := q.Get(ctx, "ready")
		wantNoError(t, err)
		text, err := info.MarshalJSON()
		wantNoError(t, err)
		if info.Group != "g" || !strings.Contains(string(text), `"group":"g"`) {
			t.Errorf("message is %s", text)
		}
		d := mustReceive(t, q, 1)[0]
		if d.Group != "g" {
			t.Errorf("group of the received message is %q", d.Group)
		}
		wantNoError(t, d.Ack(ctx))
		wantGroup(t, q, "g", "dead", "leased", "scheduled")
	})
}

func TestCancelGroupCancelsInEveryState(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		fillGroup(t, q)
		got, err := q.CancelGroup(ctx, "g")
		if want := (GroupCancel{1, 1, 1, 1}); got != want || got.Total() != 4 || err != nil {
			t.Errorf("CancelGroup returned %+v, %v", got, err)
		}
		wantGroup(t, q, "g")
		wantCounts(t, q, 1, 0, 0, 0)
		got, err = q.CancelGroup(ctx, "g")
		if got != (GroupCancel{}) || err != nil {
			t.Errorf("CancelGroup of an empty group returned %+v, %v", got, err)
		}
	})
}

func TestRescheduleGroupLeavesLeasedAndDeadMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		fillGroup(t, q)
		got, err := q.RescheduleGroup(ctx, "g", In(2*time.Hour))
		if want := (GroupReschedule{Rescheduled: 2, Leased: 1, Dead: 1}); got != want || err != nil {
			t.Errorf("RescheduleGroup returned %+v, %v", got, err)
		}
		for id, want := range map[string]time.Duration{
			"ready": 2 * time.Hour, "scheduled": 2 * time.Hour, "other": time.Hour,
		} {
			info, err := q.Get(ctx, id)
			wantNoError(t, err)
			if due := time.Until(info.Due); due != want {
				t.Errorf("%s is due in %v, want %v", id, due, want)
			}
		}
	})
}

func TestGroupsOfManyPagesAreHandledWhole(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q, ctx := c.Queue("q"), t.Context()
	const n = 2*store.MaxBatch + 7
	msgs := make([]Outgoing, n)
	for i := range msgs {
		msgs[i] = Outgoing{ID: fmt.Sprintf("%05d", i), Group: "g"}
	}
	if _, err := q.SendBatch(ctx, msgs); err != nil {
		t.Fatal(err)
	}
	moved, err := q.RescheduleGroup(ctx, "g", In(time.Hour))
	if want := (GroupReschedule{Rescheduled: n}); moved != want || err != nil {
		t.Errorf("RescheduleGroup returned %+v, %v", moved, err)
	}
	cancelled, err := q.CancelGroup(ctx, "g")
	if want := (GroupCancel{Scheduled: n}); cancelled != want || err != nil {
		t.Errorf("CancelGroup returned %+v, %v", cancelled, err)
	}
	wantCounts(t, q, 0, 0, 0, 0)
}

func TestGroupEventsNameEachMessage(t *testing.T) {
	var e events
	c := mustNew(t, memstore.New(), WithObserver(e.add))
	defer c.Close()
	q, ctx := c.Queue("q"), t.Context()
	mustSend(t, q, "", WithID("a"), Group("g"), In(time.Hour))
	mustSend(t, q, "", WithID("b"), Group("g"), In(time.Hour))
	_, err := q.RescheduleGroup(ctx, "g", In(time.Minute))
	wantNoError(t, err)
	_, err = q.CancelGroup(ctx, "g")
	wantNoError(t, err)
	for _, id := range []string{"a", "b"} {
		want := []EventKind{EventSent, EventRescheduled, EventCancelled}
		if kinds := e.kinds(id); !slices.Equal(kinds, want) {
			t.Errorf("events of %s are %q, want %q", id, kinds, want)
		}
	}
}

func TestGroupRefusesBadInput(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q, ctx := c.Queue("q"), t.Context()
	for _, name := range []string{"", "a\x00b", "a\n", "\xff", strings.Repeat("g", store.MaxGroup+1)} {
		wantError(t, second(q.Send(ctx, nil, Group(name))), ErrInvalid)
		wantError(t, second(q.CancelGroup(ctx, name)), ErrInvalid)
		wantError(t, second(q.RescheduleGroup(ctx, name, In(0))), ErrInvalid)
		wantError(t, second(q.ListGroup(ctx, name, ListOptions{})), ErrInvalid)
	}
	wantError(t, second(q.Send(ctx, nil, Group("g"), Group("h"))), ErrInvalid)
	wantError(t, second(q.RescheduleGroup(ctx, "g", At(time.Time{}))), ErrInvalid)
	wantError(t, second(q.List(ctx, ListOptions{Group: "g", State: StateReady})), ErrInvalid)
	wantError(t, second(q.ListGroup(ctx, "g", ListOptions{Group: "h"})), ErrInvalid)
	wantError(t, second(q.ListGroup(ctx, "g", ListOptions{From: time.Now()})), ErrInvalid)
}

func TestFollowUpsDefaultsAndTopicsKeepGroups(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		q, next, topic := c.Queue("q"), c.Queue("next"), c.Topic("orders")
		grouped, err := q.With(Group("g"))
		wantNoError(t, err)
		mustSend(t, grouped, "", WithID("default"))
		wantGroup(t, q, "g", "default")
		d := mustReceive(t, q, 1)[0]
		wantNoError(t, d.AckThen(ctx, Then("next", nil, WithID("follow-up"), Group("h"))))
		wantGroup(t, q, "g")
		wantGroup(t, next, "h", "follow-up")

		wantNoError(t, topic.Subscribe(ctx, "mail"))
		_, err = topic.Publish(ctx, nil, Group("h"))
		wantNoError(t, err)
		var handled log[string]
		w := NewWorker(c, WorkerConfig{})
		w.Handle("mail", func(_ context.Context, m *Message) error {
			handled.add(m.Group)
			return nil
		})
		stop := start(t, w)
		time.Sleep(time.Minute)
		wantNoError(t, stop())
		if got := handled.list(); !slices.Equal(got, []string{"h"}) {
			t.Errorf("groups of the distributed messages are %q", got)
		}
	})
}

// groupedAcks counts the acks that say that their message is in a group.
type groupedAcks struct {
	*memstore.Store
	grouped, others atomic.Int64
}

func (g *groupedAcks) Settle(
	ctx context.Context, queue string, settlements []store.Settlement,
) ([]store.SettleResult, error) {
	for i := range settlements {
		switch {
		case settlements[i].Action != store.Ack:
		case settlements[i].Grouped:
			g.grouped.Add(1)
		default:
			g.others.Add(1)
		}
	}
	return g.Store.Settle(ctx, queue, settlements)
}

// Engines rely on it to remove a message from their index without reading it.
func TestEveryAckTellsWhetherTheMessageIsInAGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *Client) {
		s := &groupedAcks{Store: memstore.New()}
		c, other := newClientOn(t, s), newClientOn(t, memstore.New())
		ctx := t.Context()
		acks := int64(0)
		want := func(how string) {
			t.Helper()
			acks++
			if grouped, others := s.grouped.Load(), s.others.Load(); grouped != acks || others != acks {
				t.Errorf("%s: %d acks were of a group and %d of none, want %d of each", how, grouped, others, acks)
			}
		}
		send := func(queue string) *Queue {
			q := c.Queue(queue)
			mustSend(t, q, "", Group("g"))
			mustSend(t, q, "")
			return q
		}
		for _, d := range mustReceive(t, send("ack"), 2) {
			wantNoError(t, d.Ack(ctx))
		}
		want("Ack")
		for _, d := range mustReceive(t, send("then"), 2) {
			wantNoError(t, d.AckThen(ctx, Then("next", nil)))
		}
		want("AckThen")
		q := send("receipt")
		for _, d := range mustReceive(t, q, 2) {
			wantNoError(t, fromReceipt(t, q, d.Receipt()).Ack(ctx))
		}
		want("receipt")

		w := NewWorker(c, WorkerConfig{})
		w.Handle("handled", func(_ context.Context, m *Message) error {
			m.Group = "" // the message stays in its group
			return nil
		})
		w.HandleBatch("batch", func(_ context.Context, msgs []*Message) []error {
			return make([]error, len(msgs))
		}, BatchConfig{})
		w.Forward("forwarded", ToQueue("to").At(other))
		stop := start(t, w)
		for _, queue := range []string{"handled", "batch", "forwarded"} {
			send(queue)
			time.Sleep(time.Minute)
			want(queue)
		}
		wantNoError(t, stop())
		wantGroup(t, other.Queue("to"), "g", groupIDs(t, other.Queue("to"))...)
	})
}

// groupIDs returns the ids of the messages in the group g of a queue. There must be at least one.
func groupIDs(t *testing.T, q *Queue) (ids []string) {
	t.Helper()
	for info, err := range q.All(t.Context(), ListOptions{State: StateReady}) {
		wantNoError(t, err)
		if info.Group == "g" {
			ids = append(ids, info.ID)
		}
	}
	if len(ids) != 1 {
		t.Errorf("%d messages are in the group", len(ids))
	}
	return ids
}

// shortPages ends each page of a listing after two messages, as engines do that bound a page by bytes, and the first
// page before any.
type shortPages struct{ store.Store }

func (s shortPages) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	switch req.Cursor {
	case "":
		return store.Page{Next: "first"}, nil
	case "first":
		req.Cursor = ""
	}
	req.Limit = min(req.Limit, 2)
	return s.Store.List(ctx, queue, req)
}

func TestGroupCallsGoOnBehindShortPages(t *testing.T) {
	q := newClientOn(t, shortPages{memstore.New()}).Queue("q")
	for i := range 5 {
		mustSend(t, q, "", WithID(fmt.Sprint("m", i)), Group("g"))
	}
	moved, err := q.RescheduleGroup(t.Context(), "g", In(time.Hour))
	wantNoError(t, err)
	if moved.Rescheduled != 5 {
		t.Errorf("%d messages were rescheduled, want 5", moved.Rescheduled)
	}
	cancelled, err := q.CancelGroup(t.Context(), "g")
	wantNoError(t, err)
	if cancelled.Scheduled != 5 {
		t.Errorf("%d messages were cancelled, want 5", cancelled.Scheduled)
	}
}

// partial is a store that returns results of its own for cancels and reschedules of some messages.
type partial struct {
	store.Store
	results map[string]error
	empty   bool // a page without messages precedes each listing of a group
	calls   int
}

func (p *partial) Cancel(ctx context.Context, queue string, req store.CancelRequest) ([]store.CancelResult, error) {
	p.calls++
	results, err := p.Store.Cancel(ctx, queue, req)
	for i, id := range req.IDs {
		if wrong := p.results[id]; wrong != nil {
			results[i].Err = wrong
		}
	}
	return results, err
}

func (p *partial) Reschedule(ctx context.Context, queue string, ids []string, due store.Due) ([]error, error) {
	p.calls++
	results, err := p.Store.Reschedule(ctx, queue, ids, due)
	for i, id := range ids {
		if wrong := p.results[id]; wrong != nil {
			results[i] = wrong
		}
	}
	return results, err
}

func (p *partial) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	if p.empty && req.Cursor == "" {
		return store.Page{Next: "first"}, nil
	}
	if req.Cursor == "first" {
		req.Cursor = ""
	}
	return p.Store.List(ctx, queue, req)
}

func TestGroupCallsCountOnlyWhatSucceededAndReturnTheFirstOtherError(t *testing.T) {
	for _, c := range []struct {
		results map[string]error
		want    error
	}{
		{map[string]error{"b": store.ErrNotFound}, nil}, // removed during the call
		{map[string]error{"b": store.ErrCorrupt}, ErrCorrupt},
	} {
		p := &partial{Store: memstore.New(), results: c.results, empty: true}
		q := newClientOn(t, p).Queue("q")
		send := func() {
			for _, id := range []string{"a", "b", "c"} {
				mustSend(t, q, "", WithID(id), Group("g"), In(time.Hour))
			}
		}
		send()
		moved, err := q.RescheduleGroup(t.Context(), "g", In(2*time.Hour))
		if moved != (GroupReschedule{Rescheduled: 2}) || !errors.Is(err, c.want) {
			t.Errorf("RescheduleGroup returned %+v, %v; want 2 and %v", moved, err, c.want)
		}
		cancelled, err := q.CancelGroup(t.Context(), "g")
		if cancelled != (GroupCancel{Scheduled: 2}) || !errors.Is(err, c.want) {
			t.Errorf("CancelGroup returned %+v, %v; want 2 and %v", cancelled, err, c.want)
		}
		if p.calls != 2 {
			t.Errorf("%d calls; an empty page needs none", p.calls)
		}
	}
}
