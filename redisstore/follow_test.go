package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// follow sends successors of leased messages.
func (o otherClient) follow(due store.Due, ids ...string) {
	o.Helper()
	results, err := o.s.Send(o.Context(), o.queue, following(due, ids...))
	for _, r := range results {
		if !r.Follows {
			o.Errorf("Send(%v) = %+v", ids, results)
		}
	}
	if err != nil {
		o.Error(err)
	}
}

// followMutations are the mutations of messages with successors. hold claims a message, and put settles it.
func followMutations(
	hold func(o otherClient, id string), put func(store.Action) func(o otherClient, s *Store) (string, error),
) []mutation {
	hour := store.Due{Delay: time.Hour}
	followed := func(o otherClient) { hold(o, "a"); o.follow(hour, "a") }
	sendAgain := func(o otherClient) { o.cancel("a"); o.send("a", 2*time.Hour) }
	follow := func(o otherClient, s *Store) (string, error) {
		results, err := s.Send(o.Context(), o.queue, following(hour, "a", "here", "new"))
		return fmt.Sprint(results), err
	}
	return []mutation{
		{
			name:   "follow",
			before: func(o otherClient) { hold(o, "a"); o.send("here", time.Hour) },
			call:   follow,
			between: func(o otherClient) {
				o.cancel("a")
				o.cancel("here")
				o.hold("b")
			},
			answer: "[{false false true <nil> <nil>} {false true false <nil> <nil>} {false false false <nil> <nil>}]",
		},
		{
			name:    "further follow",
			before:  func(o otherClient) { followed(o); o.send("here", time.Hour) },
			call:    follow,
			between: func(o otherClient) { o.follow(store.Due{}, "a"); o.cancel("here") },
			answer:  "[{false true true <nil> <nil>} {false true false <nil> <nil>} {false false false <nil> <nil>}]",
		},
		{
			name: "ack of a followed message", call: put(store.Ack), before: followed, between: sendAgain,
			answer: "[{ lease lost} { <nil>}]",
		},
		{
			name: "nack of a followed message", call: put(store.Nack), before: followed, between: sendAgain,
			answer: "[{ lease lost} {scheduled <nil>}]",
		},
		{
			name:   "cancel of a followed message",
			before: followed,
			call: func(o otherClient, s *Store) (string, error) {
				results, err := s.Cancel(o.Context(), o.queue, store.CancelRequest{IDs: []string{"a"}})
				return fmt.Sprint(results), err
			},
			between: func(o otherClient) { o.send("a", time.Hour) },
			answer:  "[{leased <nil>}]",
		},
	}
}

// A repeated claim, and one with a late first attempt, settle nothing of the lease: neither a message that is gone, nor
// one that this process cannot read, because another process perhaps can.
func TestRepeatedClaimSettlesNothing(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	for name, damage := range map[string]func(messages, id string) error{
		"gone":       func(messages, id string) error { return rdb.HDel(t.Context(), messages, id).Err() },
		"unreadable": func(messages, id string) error { return rdb.HSet(t.Context(), messages, id, "\xff").Err() },
	} {
		t.Run(name, func(t *testing.T) {
			o := otherClient{t, newStore(t, rdb), "claimed-again"}
			if err := o.s.Delete(t.Context(), o.queue); err != nil {
				t.Fatal(err)
			}
			o.send("a", 0)
			o.send("b", 0)
			messages := DefaultPrefix + "{" + o.queue + "}:messages"
			before := ""
			leases := func() string { return fmt.Sprint(rdb.HGetAll(t.Context(), DefaultPrefix+"{"+o.queue+"}:leases").Val()) }
			s := newStore(t, &loseFirstReply{UniversalClient: rdb, do: func() {
				if err := damage(messages, "b"); err != nil {
					t.Fatal(err)
				}
				before = leases()
			}})
			s.preflightDone.Store(true)
			s.keys.of(o.queue).common[claimFew].skip.Store(1) // the reply of its script is not the one to lose
			c, err := s.Claim(t.Context(), o.queue, store.ClaimRequest{Max: 2, Lease: time.Hour})
			if err != nil || len(c.Messages) != 1 || c.Messages[0].ID != "a" || len(c.Died) > 0 {
				t.Fatalf("Claim = %+v, %v; want a alone", c, err)
			}
			if after := leases(); after != before {
				t.Errorf("the lease was %s and is %s", before, after)
			}
		})
	}
}

// While no lease lists a cancelled or followed message, acks look up no records. A count tells them, and it stays right
// however a hold ends. A live successor has no record, so it is acked like any other message.
func TestFollowedMessagesOfLeasesAreCounted(t *testing.T) {
	rdb := redistest.Start(t).Client(t) // the check reads all queues
	s := newFrozenClock(t, rdb)
	ctx, queue := t.Context(), "followed"
	if err := s.Delete(ctx, queue); err != nil {
		t.Fatal(err)
	}
	o := otherClient{t, s, queue}
	records := func() map[string]string { return rdb.HGetAll(ctx, DefaultPrefix+"{"+queue+"}:records").Val() }
	settle := func(action store.Action) func(c store.Claim) {
		return func(c store.Claim) {
			for _, st := range settleAll(c, action) {
				o.settle(st)
			}
		}
	}
	for name, end := range map[string]func(c store.Claim){
		"acks": settle(store.Ack), "nacks": settle(store.Nack), "releases": settle(store.Release),
		"buries": settle(store.Bury),
		"acks of a whole claim": func(c store.Claim) {
			results, err := s.Settle(ctx, queue, settleAll(c, store.Ack))
			if err != nil || results[0].Err != nil || results[1].Err != nil {
				t.Errorf("acks = %+v, %v", results, err)
			}
		},
		"acks with follow-ups": func(c store.Claim) {
			settlements := settleAll(c, store.Ack)
			for i := range settlements {
				m := store.Outgoing{Message: store.Message{ID: "then"}}
				settlements[i].Then = []store.FollowUp{{Queue: queue, Message: m}}
			}
			results, err := s.Settle(ctx, queue, settlements)
			if err != nil || results[0].Err != nil || results[1].Err != nil {
				t.Errorf("acks = %+v, %v", results, err)
			}
		},
		"cancels": func(c store.Claim) {
			o.cancel("a")
			o.cancel("b")
			if _, err := s.Extend(ctx, queue, []store.Extension{{Lease: c.Messages[0].Receipt.Lease}}); err != nil {
				t.Error(err)
			}
		},
		"the end of the lease": func(store.Claim) {
			advance(rdb)(t, queue, time.Hour)
			claim(t, s, queue, 1, time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := otherClient{t, s, queue}
			o.send("a", 0)
			o.send("b", 0)
			c := claim(t, s, queue, 2, time.Minute)
			o.follow(store.Due{}, "a", "b")
			o.follow(store.Due{}, "b")
			if refs, _, _ := strings.Cut(records()[""], "\t"); refs != "2" {
				t.Errorf("the placeholder is %q, want a count of 2", records()[""])
			}
			end(c)
			if left := records(); len(left) > 0 {
				t.Errorf("records of %q are left", slices.Sorted(maps.Keys(left)))
			}
			if wrong := findIssues(t, s, false); len(wrong) > 0 {
				t.Errorf("issues: %+v", wrong)
			}
			if _, err := s.Purge(ctx, queue, store.Selection{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// collapseCalls counts the bytes of the arguments of each call of collapse.lua, and the messages that it sent.
type collapseCalls struct {
	redis.UniversalClient
	sha   string
	bytes []int
	sent  []int
}

func (c *collapseCalls) Process(ctx context.Context, cmd redis.Cmder) error {
	err := c.UniversalClient.Process(ctx, cmd)
	if args := cmd.Args(); err == nil && len(args) > 1 && args[1] == any(c.sha) {
		bytes := 0
		for _, arg := range args {
			if text, ok := arg.([]byte); ok {
				bytes += len(text)
			}
		}
		c.bytes = append(c.bytes, bytes)
		reply, _ := any(cmd).(interface{ Val() any })
		letters, _ := reply.Val().(string)
		c.sent = append(c.sent, len(letters))
	}
	return err
}

// A call that replaces messages or sends successors copies both, so both count.
func TestCollapseIsBoundedByBytes(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx, long, middle := t.Context(), make([]byte, store.MaxPayload), make([]byte, 600<<10)
	const n = 7
	for _, c := range []struct {
		name      string
		old, new  []byte
		held      bool
		unchanged bool
		most      int // messages in a call
	}{
		{"long by short", long, nil, false, false, 2},
		{"short by long", nil, long, false, false, 2},
		{"long by long", long, long, false, false, 1},
		{"middle by middle", middle, middle, false, false, 1},
		{"middle if it is unchanged", middle, nil, false, true, 1},
		{"long followed by long", long, long, true, false, 1},
		{"short by short", nil, nil, false, false, n},
	} {
		t.Run(c.name, func(t *testing.T) {
			queue := "collapse-" + strings.ReplaceAll(c.name, " ", "-")
			if err := s.Delete(ctx, queue); err != nil {
				t.Fatal(err)
			}
			var old, changed []store.Outgoing
			for i := range n {
				m := store.Outgoing{Message: store.Message{ID: fmt.Sprint(i), Payload: c.old}}
				old = append(old, m)
				m.Payload, m.OnDuplicate.Mode = c.new, store.DuplicateFollow
				changed = append(changed, m)
			}
			for one := range slices.Chunk(old, 2) {
				if _, err := s.Send(ctx, queue, one); err != nil {
					t.Fatal(err)
				}
			}
			for held := 0; c.held && held < n; {
				held += len(claim(t, s, queue, n, time.Hour).Messages)
			}
			for i := range changed {
				if c.unchanged {
					infos, err := s.Get(ctx, queue, []string{changed[i].ID})
					if err != nil {
						t.Fatal(err)
					}
					changed[i].OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace, Unchanged: infos[0]}
				}
			}
			calls := &collapseCalls{UniversalClient: rdb, sha: s.scripts["collapse"].sha}
			ctx := store.WithRequest(ctx, store.Request{Session: c.name, Number: 1})
			results, err := newStore(t, calls).Send(ctx, queue, changed)
			again, errAgain := s.Send(ctx, queue, changed)
			if err != nil || errAgain != nil || !slices.Equal(results, again) {
				t.Errorf("Send = %+v, %v, and again %+v, %v", results, err, again, errAgain)
			}
			for i, r := range results {
				if want := (store.SendResult{Replaced: !c.held, Follows: c.held}); r != want {
					t.Errorf("result %d is %+v, want %+v", i, r, want)
				}
			}
			infos, err := s.Get(ctx, queue, []string{"0", fmt.Sprint(n - 1)})
			if err != nil || len(infos[0].Payload) != len(c.new) || len(infos[1].Payload) != len(c.new) {
				t.Errorf("Get returned %v", err)
			}
			if most := slices.Max(calls.sent); most > c.most || len(calls.sent) > n {
				t.Errorf("calls sent %d messages, want at most %d", calls.sent, c.most)
			}
			if most := slices.Max(calls.bytes); most > collapseBytes+n*100 {
				t.Errorf("calls had %d bytes", calls.bytes)
			}
		})
	}
}
