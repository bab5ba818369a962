package storetest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// RunRequests checks that an engine that remembers calls executes a call once for a store.Request, with a subtest for
// each call that changes something, except the calls with the given names. It makes the call at first, and its
// repetition at each of the stores that again returns, such as the same data in another process. open is called for
// each subtest.
func RunRequests(
	t *testing.T, open func(t *testing.T) (first store.Store, again func() []store.Store), except ...string,
) {
	t.Run("claim of messages that changed since", func(t *testing.T) {
		s, again := open(t)
		requestEnv{t, s}.repeatClaim(again)
	})
	t.Run("claim of a limited queue", func(t *testing.T) {
		s, again := open(t)
		requestEnv{t, s}.repeatLimitedClaim(again)
	})
	t.Run("claim of a queue with limits of keys", func(t *testing.T) {
		s, again := open(t)
		requestEnv{t, s}.repeatKeyedClaim(again)
	})
	t.Run("send and claim of a queue with an order", func(t *testing.T) {
		s, again := open(t)
		requestEnv{t, s}.repeatOrder(again)
	})
	t.Run("claim of a queue with urgencies", func(t *testing.T) {
		s, again := open(t)
		requestEnv{t, s}.repeatUrgentClaim(again)
	})
	t.Run("send of an urgent message", func(t *testing.T) {
		s, again := open(t)
		requestEnv{t, s}.repeatUrgentSend(again)
	})
	t.Run("resume key", func(t *testing.T) {
		s, again := open(t)
		requestEnv{t, s}.repeatResume(again)
	})
	t.Run("purge that resumes a key", func(t *testing.T) {
		s, again := open(t)
		requestEnv{t, s}.repeatResumingPurge(again)
	})
	t.Run("set key flow", func(t *testing.T) {
		s, again := open(t)
		requestEnv{t, s}.repeatKeyFlow(again)
	})
	for name, call := range requestCalls {
		if slices.Contains(except, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s, again := open(t)
			env := requestEnv{t, s}
			held := env.prepare()
			ctx := func(number int64) context.Context {
				return store.WithRequest(t.Context(), store.Request{Session: "s:1", Number: number})
			}
			first, err := call(ctx(7), s, held)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range again() {
				env := requestEnv{t, s}
				env.undo()
				before := env.everything()
				result, err := call(ctx(7), s, held)
				if err != nil || !reflect.DeepEqual(withoutClock(result), withoutClock(first)) {
					t.Errorf("first %+v, again %+v, %v", first, result, err)
				}
				if _, err := call(ctx(6), s, held); err != nil && store.CodeOf(err) != store.ErrUnavailable.Code {
					t.Errorf("an earlier request of the session returns %v", err)
				}
				if after := env.everything(); after != before {
					t.Errorf("the repetition changed\n%sto\n%s", before, after)
				}
			}
			last := again()[0]
			env = requestEnv{t, last}
			before := env.everything()
			if _, err := call(ctx(8), last, held); err != nil {
				t.Error(err)
			}
			if undoneRequests[name] && env.everything() == before {
				t.Errorf("the next request was not executed")
			}
		})
	}
}

// requestCalls are calls that change something. Before each, "ready" and "other" are ready, "held" is leased,
// "cancelled" was leased and is cancelled, and "dead" is dead.
var requestCalls = map[string]func(ctx context.Context, s store.Store, held store.Receipt) (any, error){
	"send": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return s.Send(ctx, "q", []store.Outgoing{plainMessage("new"), plainMessage("ready")})
	},
	"send one": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return s.Send(ctx, "q", []store.Outgoing{plainMessage("new")})
	},
	"replace": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		m := plainMessage("new")
		m.OnDuplicate.Mode = store.DuplicateReplace
		return s.Send(ctx, "q", []store.Outgoing{m})
	},
	"claim": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return s.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
	},
	"ack": func(ctx context.Context, s store.Store, held store.Receipt) (any, error) {
		return s.Settle(ctx, "q", []store.Settlement{{Receipt: held, Action: store.Ack}})
	},
	"ack with a follow-up": func(ctx context.Context, s store.Store, held store.Receipt) (any, error) {
		return s.Settle(ctx, "q", []store.Settlement{{Receipt: held, Action: store.Ack,
			Then: []store.FollowUp{{Queue: "next", Message: plainMessage("follow-up")}}}})
	},
	"conditional send": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		m := plainMessage("new")
		m.If = &store.Condition{Property: "color"}
		return s.Send(ctx, "q", []store.Outgoing{m})
	},
	"conditional ack": func(ctx context.Context, s store.Store, held store.Receipt) (any, error) {
		return s.Settle(ctx, "q", []store.Settlement{{Receipt: held, Action: store.Ack,
			If: &store.Condition{Property: "color"}}})
	},
	"conditional bury": func(ctx context.Context, s store.Store, held store.Receipt) (any, error) {
		return s.Settle(ctx, "q", []store.Settlement{{Receipt: held, Action: store.Bury, Reason: "no",
			If: &store.Condition{Property: "color"}}})
	},
	"refused send": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		m := plainMessage("new")
		m.If = undone
		return s.Send(ctx, "q", []store.Outgoing{m})
	},
	"refused ack": func(ctx context.Context, s store.Store, held store.Receipt) (any, error) {
		return s.Settle(ctx, "q", []store.Settlement{{Receipt: held, Action: store.Ack, If: undone}})
	},
	"refused ack with a follow-up": func(ctx context.Context, s store.Store, held store.Receipt) (any, error) {
		return s.Settle(ctx, "q", []store.Settlement{{Receipt: held, Action: store.Ack, If: undone,
			Then: []store.FollowUp{{Queue: "next", Message: plainMessage("follow-up")}}}})
	},
	"refused bury": func(ctx context.Context, s store.Store, held store.Receipt) (any, error) {
		return s.Settle(ctx, "q", []store.Settlement{{Receipt: held, Action: store.Bury, Reason: "no", If: undone}})
	},
	"nack": func(ctx context.Context, s store.Store, held store.Receipt) (any, error) {
		return s.Settle(ctx, "q", []store.Settlement{{Receipt: held, Action: store.Nack, Reason: "no"}})
	},
	"extend": func(ctx context.Context, s store.Store, held store.Receipt) (any, error) {
		return s.Extend(ctx, "q", []store.Extension{{Lease: held.Lease}})
	},
	"cancel": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return s.Cancel(ctx, "q", store.CancelRequest{IDs: []string{"ready", "unknown"}})
	},
	"reschedule": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return s.Reschedule(ctx, "q", []string{"ready", "held", "unknown"}, store.Due{Delay: time.Hour})
	},
	"restore": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		m := plainMessage("new").Message
		return s.Restore(ctx, "q", []store.Info{{Message: m, State: store.StateReady, Due: time.UnixMilli(1)}})
	},
	"remove": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		infos, err := s.Get(context.Background(), "q", []string{"ready"})
		if err != nil || infos[0] == nil {
			infos = []*store.Info{{Message: store.Message{ID: "ready"}}} // as the caller got it before
		}
		return s.Remove(ctx, "q", []store.Info{*infos[0]})
	},
	"replay": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return s.Replay(ctx, "q", store.Selection{State: store.StateDead}, store.Due{})
	},
	"purge": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return s.Purge(ctx, "q", store.Selection{State: store.StateReady})
	},
	"pause": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return nil, s.SetPaused(ctx, "q", true)
	},
	"set properties": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return nil, s.SetProperties(ctx, "q", map[string]string{"color": "red"}, nil)
	},
	"refused set properties": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return refused(s.SetProperties(ctx, "q", map[string]string{"color": "red"}, undone))
	},
	"retain": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return nil, s.SetDeadRetention(ctx, "q", store.Retention{MaxCount: 8}, nil)
	},
	"refused retain": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return refused(s.SetDeadRetention(ctx, "q", store.Retention{MaxCount: 8}, undoneRetention))
	},
	"set flow": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return nil, s.SetFlow(ctx, "q", store.Flow{Concurrency: 8}, nil)
	},
	"refused set flow": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return refused(s.SetFlow(ctx, "q", store.Flow{Concurrency: 8}, undoneFlow))
	},
	"delete": func(ctx context.Context, s store.Store, _ store.Receipt) (any, error) {
		return nil, s.Delete(ctx, "q")
	},
}

// undoneRequests are the calls that undo has undone, so that they have an effect again.
var undoneRequests = map[string]bool{"send": true, "send one": true, "claim": true, "cancel": true, "restore": true,
	"purge": true, "pause": true, "set properties": true, "retain": true, "delete": true, "refused send": true,
	"refused ack": true, "refused ack with a follow-up": true, "refused bury": true, "refused set properties": true,
	"refused retain": true, "set flow": true, "refused set flow": true}

// undone is a condition that is met only after undo.
var undone = &store.Condition{Property: "color", Value: "blue"}

// undoneRetention is the former retention of a call that is refused before undo.
var undoneRetention = &store.Retention{MaxCount: 9}

// undoneFlow is the former flow of a call that is refused before undo.
var undoneFlow = &store.Flow{Concurrency: 9}

// refused makes a conflict the result of a call.
func refused(err error) (any, error) {
	if err != nil && store.CodeOf(err) == store.ErrConflict.Code {
		return "conflict", nil
	}
	return nil, err
}

func plainMessage(id string) store.Outgoing {
	return store.Outgoing{Message: store.Message{ID: id, Payload: []byte("payload of " + id)}}
}

// requestEnv is a store in a test of requests.
type requestEnv struct {
	t *testing.T
	s store.Store
}

func (e requestEnv) send(ids ...string) {
	e.t.Helper()
	var msgs []store.Outgoing
	for _, id := range ids {
		msgs = append(msgs, plainMessage(id))
	}
	_, err := e.s.Send(e.t.Context(), "q", msgs)
	e.must(err)
}

func (e requestEnv) cancel(ids ...string) {
	e.t.Helper()
	_, err := e.s.Cancel(e.t.Context(), "q", store.CancelRequest{IDs: ids})
	e.must(err)
}

func (e requestEnv) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// prepare fills a queue and returns the receipt of the leased message.
func (e requestEnv) prepare() (held store.Receipt) {
	e.t.Helper()
	ctx := e.t.Context()
	e.send("dead", "held", "cancelled")
	c, err := e.s.Claim(ctx, "q", store.ClaimRequest{Max: 3, Lease: time.Hour})
	if err != nil || len(c.Messages) != 3 {
		e.t.Fatal(c, err)
	}
	for _, m := range c.Messages {
		switch m.ID {
		case "held":
			held = m.Receipt
		case "dead":
			_, err := e.s.Settle(ctx, "q", []store.Settlement{{Receipt: m.Receipt, Action: store.Bury}})
			e.must(err)
		}
	}
	e.cancel("cancelled")
	e.send("ready", "other")
	return held
}

// undo changes the state that the calls changed, so that a call that is executed again has another result.
func (e requestEnv) undo() {
	e.t.Helper()
	e.cancel("new", "follow-up")
	e.send("ready", "later")
	e.must(e.s.SetPaused(e.t.Context(), "q", false))
	e.must(e.s.SetProperties(e.t.Context(), "q", map[string]string{"color": "blue"}, nil))
	e.must(e.s.SetDeadRetention(e.t.Context(), "q", *undoneRetention, nil))
	e.must(e.s.SetFlow(e.t.Context(), "q", *undoneFlow, nil))
}

// everything returns all that the store reports about its queues, except the time.
func (e requestEnv) everything() (text string) {
	e.t.Helper()
	ctx := e.t.Context()
	for _, q := range []string{"q", "next"} {
		stats, err := e.s.Stats(ctx, q)
		e.must(err)
		flow := stats.Flow
		stats.Now, stats.Flow = time.Time{}, store.FlowState{}
		properties, err := e.s.Properties(ctx, q)
		e.must(err)
		text += fmt.Sprintf("%s: %+v %v %v %d\n", q, stats, properties, flow.Flow, flow.Leased)
		for _, state := range []store.State{store.StateScheduled, store.StateReady, store.StateLeased,
			store.StateDead} {
			page, err := e.s.List(ctx, q, store.ListRequest{State: state, Limit: store.MaxBatch})
			e.must(err)
			for _, info := range page.Messages {
				text += fmt.Sprintf("  %s %s %d\n", state, info.ID, info.Attempts)
			}
		}
	}
	return text
}

// repeatClaim claims messages, gives some of them successors, cancels others, repeats the claim, and works on. The
// repetition returns the others as they were claimed, and the holder of the first reply notices nothing of it.
func (e requestEnv) repeatClaim(again func() []store.Store) {
	e.t.Helper()
	ctx, session := e.t.Context(), "s:1"
	request := func(number int64) context.Context {
		return store.WithRequest(ctx, store.Request{Session: session, Number: number})
	}
	lease := store.ClaimRequest{Max: 5, Lease: time.Hour}
	failed := plainMessage("failed")
	failed.Group, failed.MaxAttempts, failed.DedupWindow = "g", 3, time.Minute
	_, err := e.s.Send(ctx, "q", []store.Outgoing{failed})
	e.must(err)
	c, err := e.s.Claim(ctx, "q", lease)
	e.must(err)
	_, err = e.s.Settle(ctx, "q", []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Nack}})
	e.must(err)
	e.send("plain", "followed", "cancelled", "sent again")
	first, err := e.s.Claim(request(7), "q", lease)
	if err != nil || len(first.Messages) != 5 {
		e.t.Fatal(first, err)
	}
	e.follow("failed", "1")
	e.follow("failed", "2")
	e.follow("followed", "1")
	e.cancel("cancelled", "sent again")
	e.send("sent again") // and claimed under another lease, and then followed
	other, err := e.s.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
	if err != nil || len(other.Messages) != 1 {
		e.t.Fatal(other, err)
	}
	e.follow("sent again", "1")

	gone := func(m store.Claimed) bool { return m.ID == "cancelled" || m.ID == "sent again" }
	want := withoutClock(first).(store.Claim)
	want.Messages = slices.DeleteFunc(slices.Clone(want.Messages), gone)
	var last requestEnv
	for _, s := range again() {
		last = requestEnv{e.t, s}
		last.claimsAgain(request(7), lease, want)
	}
	r, err := last.s.Extend(ctx, "q", []store.Extension{{Lease: first.Messages[0].Receipt.Lease, For: time.Hour}})
	e.must(err)
	var lost []string
	for _, receipt := range r[0].Lost {
		lost = append(lost, receipt.ID)
	}
	if slices.Sort(lost); r[0].Err != nil || !slices.Equal(lost, []string{"cancelled", "sent again"}) {
		e.t.Errorf("the holder learns that it lost %v, and %v", lost, r[0].Err)
	}
	last.claimsAgain(request(7), lease, want)
	for len(want.Messages) > 0 {
		held := want.Messages[0]
		settled, err := last.s.Settle(ctx, "q", []store.Settlement{{Receipt: held.Receipt, Action: store.Ack}})
		if err != nil || settled[0].Err != nil {
			e.t.Fatalf("ack of %s = %+v, %v", held.ID, settled, err)
		}
		want.Messages = want.Messages[1:]
		if len(want.Messages) > 0 {
			last.claimsAgain(request(7), lease, want)
		}
	}
	_, err = last.s.Settle(ctx, "q", []store.Settlement{{Receipt: other.Messages[0].Receipt, Action: store.Ack}})
	e.must(err)
	// The next claim returns the successors.
	next, err := last.s.Claim(request(8), "q", lease)
	e.must(err)
	payloads := map[string]string{}
	for _, m := range next.Messages {
		payloads[m.ID] = fmt.Sprintf("%s, attempt %d", m.Payload, m.Attempt)
	}
	if !reflect.DeepEqual(payloads, map[string]string{"failed": "successor 2, attempt 1",
		"followed": "successor 1, attempt 1", "sent again": "successor 1, attempt 1"}) {
		e.t.Errorf("claimed next: %v", payloads)
	}
}

// repeatLimitedClaim repeats a claim, which counts once against a concurrency and a rate.
func (e requestEnv) repeatLimitedClaim(again func() []store.Store) {
	e.t.Helper()
	ctx := store.WithRequest(e.t.Context(), store.Request{Session: "s:1", Number: 7})
	flow := store.Flow{Concurrency: 5, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 4}}
	e.must(e.s.SetFlow(e.t.Context(), "q", flow, nil))
	e.send("a", "b", "c", "d", "e", "f")
	lease := store.ClaimRequest{Max: 2, Lease: time.Hour}
	first, err := e.s.Claim(ctx, "q", lease)
	if err != nil || len(first.Messages) != 2 || !first.Limited {
		e.t.Fatal(first, err)
	}
	want := withoutClock(first).(store.Claim)
	last := e
	for _, s := range again() {
		last = requestEnv{e.t, s}
		last.claimsAgain(ctx, lease, want)
		stats, err := s.Stats(e.t.Context(), "q")
		if flow := stats.Flow; err != nil || flow.Leased != 2 || flow.Next.After(flow.Now) {
			e.t.Errorf("after the repetition: %+v, %v", flow, err)
		}
	}
	settled, err := last.s.Settle(e.t.Context(), "q",
		[]store.Settlement{{Receipt: first.Messages[0].Receipt, Action: store.Ack}})
	if err != nil || settled[0].Err != nil {
		e.t.Fatal(settled, err)
	}
	c, err := last.s.Claim(e.t.Context(), "q", store.ClaimRequest{Max: 6, Lease: time.Hour})
	e.must(err)
	stats, err := last.s.Stats(e.t.Context(), "q")
	e.must(err)
	if flow := stats.Flow; len(c.Messages) != 2 || flow.Leased != 3 || !flow.Next.After(flow.Now) {
		e.t.Errorf("the next claim: %+v; %+v", c, flow)
	}
}

// follow sends a successor of a held message.
func (e requestEnv) follow(id, number string) {
	e.t.Helper()
	m := store.Outgoing{Message: store.Message{ID: id, Payload: []byte("successor " + number)},
		Due: store.Due{At: time.UnixMilli(1)}} // not the due time of the held message
	m.OnDuplicate.Mode = store.DuplicateFollow
	r, err := e.s.Send(e.t.Context(), "q", []store.Outgoing{m})
	if err != nil || !r[0].Follows {
		e.t.Fatalf("a send that follows = %+v, %v", r, err)
	}
}

// claimsAgain repeats a claim, which returns the wanted messages and changes nothing.
func (e requestEnv) claimsAgain(ctx context.Context, req store.ClaimRequest, want store.Claim) {
	e.t.Helper()
	before := e.everything()
	got, err := e.s.Claim(ctx, "q", req)
	if err != nil {
		e.t.Fatal(err)
	}
	got = withoutClock(got).(store.Claim)
	for _, messages := range [][]store.Claimed{got.Messages, want.Messages} {
		for i := range messages { // hints that make settling cheaper may differ
			messages[i].Receipt.Claim, messages[i].Receipt.Index = nil, 0
		}
	}
	if !reflect.DeepEqual(got.Messages, want.Messages) {
		e.t.Errorf("the repeated claim returned\n%+v, want\n%+v", got.Messages, want.Messages)
	}
	if after := e.everything(); after != before {
		e.t.Errorf("the repeated claim changed\n%sto\n%s", before, after)
	}
}

// withoutClock returns a result with comparable times. A repetition may return its own time, and whether the queue has
// a flow by then.
func withoutClock(result any) any {
	switch r := result.(type) {
	case store.Claim:
		r.Now, r.Deadline, r.Limited = time.Time{}, r.Deadline.UTC(), false
		for i := range r.Messages {
			r.Messages[i].Due = r.Messages[i].Due.UTC()
		}
		return r
	case store.Bulk:
		r.Before = r.Before.UTC()
		return r
	case []store.ExtendResult:
		for i := range r {
			r[i].Deadline = r[i].Deadline.UTC()
		}
	}
	return result
}
