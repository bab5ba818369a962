package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

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
			answer: "[{false false true <nil>} {false true false <nil>} {false false false <nil>}]",
		},
		{
			name:    "further follow",
			before:  func(o otherClient) { followed(o); o.send("here", time.Hour) },
			call:    follow,
			between: func(o otherClient) { o.follow(store.Due{}, "a"); o.cancel("here") },
			answer:  "[{false true true <nil>} {false true false <nil>} {false false false <nil>}]",
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

// A claim that is repeated, or whose first attempt arrives late, settles nothing of the lease: not a message that is
// gone, and not one that this process cannot read and another one perhaps can.
func TestRepeatedClaimSettlesNothing(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	for name, damage := range map[string]func(ctx context.Context, messages, id string) error{
		"gone":       func(ctx context.Context, messages, id string) error { return rdb.HDel(ctx, messages, id).Err() },
		"unreadable": func(ctx context.Context, messages, id string) error { return rdb.HSet(ctx, messages, id, "\xff").Err() },
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
				if err := damage(t.Context(), messages, "b"); err != nil {
					t.Fatal(err)
				}
				before = leases()
			}})
			s.preflightDone.Store(true)
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

// While no lease lists a cancelled or followed message, acks look up no records. That is known by a count, which is
// right in whatever way a hold ends. A successor that is live has no record, so it is acked like any other message.
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
