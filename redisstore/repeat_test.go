package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// mutation is a call that changes a queue: the initial state, the call with its reply as text, and the calls of other
// clients between its first and second attempt.
type mutation struct {
	name    string
	before  func(o otherClient)
	call    func(o otherClient, s *Store) (string, error)
	reads   int // calls before the one that changes something
	between func(o otherClient)
	answer  string
}

func mutations() []mutation {
	held := map[string]store.Receipt{} // by test and id
	hold := func(o otherClient, id string) { held[o.Name()+id] = o.hold(id) }
	put := func(action store.Action) func(o otherClient, s *Store) (string, error) {
		return func(o otherClient, s *Store) (string, error) {
			settlements := []store.Settlement{{Receipt: store.Receipt{Lease: "none", ID: "x"}, Action: action},
				{Receipt: held[o.Name()+"a"], Action: action}}
			results, err := s.Settle(o.Context(), o.queue, settlements)
			return fmt.Sprint(results), err
		}
	}
	hour := store.Due{Delay: time.Hour}
	return append(followMutations(hold, put), []mutation{
		{
			name:   "send",
			before: func(o otherClient) { o.send("here", time.Hour) },
			call: func(o otherClient, s *Store) (string, error) {
				results, err := s.Send(o.Context(), o.queue, []store.Outgoing{{Message: store.Message{ID: "here"}},
					{Message: store.Message{ID: "new"}}})
				return fmt.Sprint(results[0].Duplicate, results[1].Duplicate), err
			},
			between: func(o otherClient) { o.cancel("here"); o.cancel("new"); o.send("new", time.Hour) },
			answer:  "true false",
		},
		{
			name:   "send of an existing message",
			before: func(o otherClient) { o.send("a", time.Hour); o.send("b", time.Hour) },
			call: func(o otherClient, s *Store) (string, error) {
				results, err := s.Send(o.Context(), o.queue, []store.Outgoing{{Message: store.Message{ID: "a"}}})
				return fmt.Sprint(results[0].Duplicate), err
			},
			between: func(o otherClient) { o.cancel("a") },
			answer:  "true",
		},
		{
			name:   "collapse",
			before: func(o otherClient) { o.send("here", time.Hour); o.bury("dead"); hold(o, "held") },
			call: func(o otherClient, s *Store) (string, error) {
				results, err := s.Send(o.Context(), o.queue, collapsing(hour, "here", "new", "dead", "held"))
				return fmt.Sprint(results), err
			},
			between: func(o otherClient) { o.cancel("here"); o.cancel("dead"); o.cancel("new"); o.send("new", 0) },
			answer: "[{false true false <nil> <nil>} {false false false <nil> <nil>} " +
				"{false false false <nil> message is dead} {false false false <nil> message is leased}]",
		},
		{
			name: "send with keys",
			before: func(o otherClient) {
				o.send("here", time.Hour)
				o.sendOnce("first", "k", "1")
				o.sendOnce("x", "l", "1")
			},
			call: func(o otherClient, s *Store) (string, error) {
				msgs := []store.Outgoing{{Message: store.Message{ID: "a"}}, {Message: store.Message{ID: "again"}},
					{Message: store.Message{ID: "b"}}, {Message: store.Message{ID: "here"}}}
				for i, key := range []string{"new", "k", "l", "m"} {
					msgs[i].Once = store.NewOnce([]byte(key), []byte{'1' + byte(i/2)})
				}
				results, err := s.Send(o.Context(), o.queue, msgs)
				text := ""
				for _, r := range results {
					text += fmt.Sprint(r.Duplicate, " ", r.Err)
					if r.First != nil {
						text += " " + r.First.ID
					}
					text += ", "
				}
				return text, err
			},
			between: func(o otherClient) { o.cancel("a"); o.cancel("first"); o.cancel("here") },
			answer:  "false <nil> a, true <nil> first, false message has changed, true <nil>, ",
		},
		{
			name:   "restore",
			before: func(o otherClient) { o.send("here", time.Hour) },
			call: func(o otherClient, s *Store) (string, error) {
				dead := store.Info{Message: store.Message{ID: "dead"}, State: store.StateDead, Due: time.UnixMilli(1),
					DiedAt: time.UnixMilli(2), DeadReason: store.DeadFailed}
				here := store.Info{Message: store.Message{ID: "here"}, State: store.StateReady, Due: time.UnixMilli(1)}
				results, err := s.Restore(o.Context(), o.queue, []store.Info{here, dead})
				return fmt.Sprint(results[0].Duplicate, results[1].Duplicate), err
			},
			between: func(o otherClient) { o.cancel("here"); o.cancel("dead") },
			answer:  "true false",
		},
		{
			name:   "restore of an existing message",
			before: func(o otherClient) { o.send("a", time.Hour); o.send("b", time.Hour) },
			call: func(o otherClient, s *Store) (string, error) {
				results, err := s.Restore(o.Context(), o.queue, []store.Info{{Message: store.Message{ID: "a"},
					State: store.StateReady, Due: time.UnixMilli(1)}})
				return fmt.Sprint(results[0].Duplicate), err
			},
			between: func(o otherClient) { o.cancel("a") },
			answer:  "true",
		},
		{
			name:   "cancel of an unknown message",
			before: func(o otherClient) { o.send("b", time.Hour) },
			call: func(o otherClient, s *Store) (string, error) {
				results, err := s.Cancel(o.Context(), o.queue, store.CancelRequest{IDs: []string{"a"}})
				return fmt.Sprint(results), err
			},
			between: func(o otherClient) { o.send("a", time.Hour) },
			answer:  "[{ not found}]",
		},
		{
			name:   "reschedule of a leased message",
			before: func(o otherClient) { hold(o, "a") },
			call: func(o otherClient, s *Store) (string, error) {
				errs, err := s.Reschedule(o.Context(), o.queue, []string{"a"}, hour)
				return fmt.Sprint(errs), err
			},
			between: func(o otherClient) {
				o.settle(store.Settlement{Receipt: held[o.Name()+"a"], Action: store.Nack, Delay: time.Minute})
			},
			answer: "[message is leased]",
		},
		{
			name:   "replay of nothing",
			before: func(o otherClient) { o.send("b", time.Hour) },
			call: func(o otherClient, s *Store) (string, error) {
				done, err := s.Replay(o.Context(), o.queue, store.Selection{State: store.StateDead}, hour)
				return fmt.Sprint(done.Done, done.More), err
			},
			between: func(o otherClient) { o.bury("a") },
			answer:  "0 false",
		},
		{
			name:   "purge of nothing",
			before: func(o otherClient) { o.send("b", time.Hour) },
			call: func(o otherClient, s *Store) (string, error) {
				done, err := s.Purge(o.Context(), o.queue, store.Selection{State: store.StateDead})
				return fmt.Sprint(done.Done, done.More), err
			},
			between: func(o otherClient) { o.bury("a") },
			answer:  "0 false",
		},
		{
			name:   "cancel",
			before: func(o otherClient) { hold(o, "held"); o.send("a", 0); o.send("b", time.Hour) },
			call: func(o otherClient, s *Store) (string, error) {
				results, err := s.Cancel(o.Context(), o.queue,
					store.CancelRequest{IDs: []string{"a", "unknown", "b", "held", "a"}})
				return fmt.Sprint(results), err
			},
			between: func(o otherClient) { o.send("a", time.Hour); o.send("unknown", time.Hour) },
			answer:  "[{ready <nil>} { not found} {scheduled <nil>} {leased <nil>} { not found}]",
		},
		{
			name:   "reschedule",
			before: func(o otherClient) { o.bury("dead"); o.send("a", time.Hour) },
			call: func(o otherClient, s *Store) (string, error) {
				errs, err := s.Reschedule(o.Context(), o.queue, []string{"a", "dead", "unknown"}, store.Due{})
				return fmt.Sprint(errs), err
			},
			between: func(o otherClient) { o.cancel("a"); o.send("a", 2*time.Hour) },
			answer:  "[<nil> message is dead not found]",
		},
		{
			name: "pause",
			call: func(o otherClient, s *Store) (string,
				error) {
				return "", s.SetPaused(o.Context(), o.queue, true)
			},
			before: func(o otherClient) { o.send("a", 0) }, between: func(o otherClient) { o.pause(false) },
		},
		{
			name: "resume",
			call: func(o otherClient, s *Store) (string,
				error) {
				return "", s.SetPaused(o.Context(), o.queue, false)
			},
			before: func(o otherClient) { o.pause(true) }, between: func(o otherClient) { o.pause(true) },
		},
		{
			name: "retain",
			call: func(o otherClient, s *Store) (string, error) {
				return "", s.SetDeadRetention(o.Context(), o.queue, store.Retention{MaxCount: 1}, nil)
			},
			before: func(o otherClient) { o.send("a", 0) },
			between: func(o otherClient) {
				if err := o.s.SetDeadRetention(o.Context(), o.queue, store.Retention{MaxCount: 2}, nil); err != nil {
					o.Error(err)
				}
			},
		},
		{
			name: "set limits of keys",
			call: func(o otherClient, s *Store) (string, error) {
				return "", s.SetFlow(o.Context(), o.queue, store.Flow{Key: store.KeyFlow{Concurrency: 1}}, nil)
			},
			before: func(o otherClient) { o.send("a", 0) },
			between: func(o otherClient) {
				if err := o.s.SetFlow(o.Context(), o.queue, store.Flow{Fair: true}, nil); err != nil {
					o.Error(err)
				}
			},
		},
		{
			name: "resume a key",
			call: func(o otherClient, s *Store) (string, error) {
				return "", s.ResumeKey(o.Context(), o.queue, "k")
			},
			before: func(o otherClient) {
				if err := o.s.SetFlow(o.Context(), o.queue, halts, nil); err != nil {
					o.Error(err)
				}
				o.buryOf("k", "a")
			},
			between: func(o otherClient) { o.buryOf("k", "b") },
		},
		{
			name: "set limits of a key",
			call: func(o otherClient, s *Store) (string, error) {
				one := 1
				return "", s.SetKeyFlow(o.Context(), o.queue, "k", store.KeyOverride{Concurrency: &one})
			},
			before: func(o otherClient) {
				o.send("a", 0)
				if err := o.s.SetFlow(o.Context(), o.queue, store.Flow{Fair: true}, nil); err != nil {
					o.Error(err)
				}
			},
			between: func(o otherClient) {
				if err := o.s.SetKeyFlow(o.Context(), o.queue, "k", store.KeyOverride{}); err != nil {
					o.Error(err)
				}
			},
		},
		{
			name:   "set properties",
			before: func(o otherClient) { o.setProperties(map[string]string{"old": "1", "kept": "1"}) },
			call: func(o otherClient, s *Store) (string, error) {
				return "", s.SetProperties(o.Context(), o.queue, map[string]string{"old": "", "new": "1"}, nil)
			},
			between: func(o otherClient) { o.setProperties(map[string]string{"old": "2", "new": "", "kept": "2"}) },
		},
		{
			name:   "set of too many properties",
			before: func(o otherClient) { o.fillProperties() },
			call: func(o otherClient, s *Store) (string, error) {
				err := s.SetProperties(o.Context(), o.queue, map[string]string{"new": "1"}, nil)
				if errors.Is(err, store.ErrTooLarge) {
					return "too large", nil
				}
				return "", err
			},
			between: func(o otherClient) { o.setProperties(map[string]string{"1": ""}) },
			answer:  "too large",
		},
		{
			name:   "removal of unknown properties",
			before: func(o otherClient) { o.send("a", time.Hour) },
			call: func(o otherClient, s *Store) (string, error) {
				return "", s.SetProperties(o.Context(), o.queue, map[string]string{"a": ""}, nil)
			},
			between: func(o otherClient) { o.setProperties(map[string]string{"a": "1"}) },
		},
		{
			name:   "replay",
			before: func(o otherClient) { o.bury("a"); o.bury("b") },
			call: func(o otherClient, s *Store) (string, error) {
				done, err := s.Replay(o.Context(), o.queue,
					store.Selection{State: store.StateDead, IDs: []string{"a", "b"}}, hour)
				return fmt.Sprint(done.Done, done.More), err
			},
			between: func(o otherClient) { o.cancel("a"); o.bury("a") },
			answer:  "2 false",
		},
		{
			name:   "purge of dead messages",
			before: func(o otherClient) { o.bury("a"); o.bury("b") },
			call: func(o otherClient, s *Store) (string, error) {
				done, err := s.Purge(o.Context(), o.queue, store.Selection{State: store.StateDead})
				return fmt.Sprint(done.Done, done.More), err
			},
			between: func(o otherClient) { o.bury("a") },
			answer:  "2 false",
		},
		{
			name:   "purge of all messages",
			before: func(o otherClient) { o.bury("a"); o.send("b", time.Hour); hold(o, "c") },
			call: func(o otherClient, s *Store) (string, error) {
				done, err := s.Purge(o.Context(), o.queue, store.Selection{})
				return fmt.Sprint(done.Done, done.More), err
			},
			between: func(o otherClient) { o.bury("a"); o.send("b", 2*time.Hour) },
			answer:  "3 false",
		},
		{
			name:   "remove",
			before: func(o otherClient) { o.send("a", time.Hour); o.send("b", time.Hour) },
			reads:  1,
			call: func(o otherClient, s *Store) (string, error) {
				removed, err := s.Remove(o.Context(), o.queue,
					[]store.Info{*o.info("a"), {Message: store.Message{ID: "b"}}})
				return fmt.Sprint(removed), err
			},
			between: func(o otherClient) { o.send("a", time.Hour) },
			answer:  "[true false]",
		},
		{
			name: "nack", call: put(store.Nack), before: func(o otherClient) { hold(o, "a") },
			between: func(o otherClient) { claim(o.T, o.s, o.queue, 1, time.Minute) },
			answer:  "[{ lease lost} {ready <nil>}]",
		},
		{
			name: "bury", call: put(store.Bury), before: func(o otherClient) { hold(o, "a") },
			between: func(o otherClient) { o.cancel("a"); o.send("a", time.Hour) },
			answer:  "[{ lease lost} {dead <nil>}]",
		},
		{
			name:   "claim",
			before: func(o otherClient) { o.send("a", 0) },
			call: func(o otherClient, s *Store) (string, error) {
				c, err := s.Claim(o.Context(), o.queue, store.ClaimRequest{Max: 2, Lease: time.Hour})
				if err != nil || len(c.Messages) != 1 {
					return fmt.Sprint(c), err
				}
				return c.Messages[0].ID, nil
			},
			between: func(o otherClient) { o.send("b", 0) },
			answer:  "a",
		},
		{
			name:   "extend",
			before: func(o otherClient) { hold(o, "a"); hold(o, "b"); o.cancel("b") },
			call: func(o otherClient, s *Store) (string, error) {
				results, err := s.Extend(o.Context(), o.queue, []store.Extension{
					{Lease: held[o.Name()+"a"].Lease, For: time.Hour}, {Lease: "none", For: time.Hour}})
				return fmt.Sprint(len(results[0].Lost), results[0].Err, results[1].Err), err
			},
			between: func(o otherClient) { o.send("b", time.Hour) },
			answer:  "0 <nil> lease lost",
		},
		{
			name:   "conditional send",
			before: func(o otherClient) { o.open("1"); o.send("here", time.Hour) },
			call: func(o otherClient, s *Store) (string, error) {
				var msgs []store.Outgoing
				for _, id := range []string{"here", "new"} {
					msgs = append(msgs, store.Outgoing{Message: store.Message{ID: id}, Due: hour, If: isOpen})
				}
				results, err := s.Send(o.Context(), o.queue, msgs)
				return fmt.Sprint(results), err
			},
			between: func(o otherClient) { o.open(""); o.cancel("here"); o.cancel("new") },
			answer:  "[{true false false <nil> <nil>} {false false false <nil> <nil>}]",
		},
		{
			name:   "conditional ack",
			before: func(o otherClient) { o.open("1"); hold(o, "a") },
			call: func(o otherClient, s *Store) (string, error) {
				results, err := s.Settle(o.Context(), o.queue,
					[]store.Settlement{{Receipt: held[o.Name()+"a"], Action: store.Ack, If: isOpen}})
				return fmt.Sprint(results), err
			},
			between: func(o otherClient) { o.open(""); o.send("a", time.Hour) },
			answer:  "[{ <nil>}]",
		},
		{
			name:   "conditional bury",
			before: func(o otherClient) { o.open("1"); hold(o, "a") },
			call: func(o otherClient, s *Store) (string, error) {
				results, err := s.Settle(o.Context(), o.queue,
					[]store.Settlement{{Receipt: held[o.Name()+"a"], Action: store.Bury, If: isOpen}})
				return fmt.Sprint(results), err
			},
			between: func(o otherClient) { o.open(""); o.cancel("a") },
			answer:  "[{dead <nil>}]",
		},
		{
			name:   "ack with follow-ups",
			before: func(o otherClient) { hold(o, "a"); o.send("here", time.Hour) },
			call: func(o otherClient, s *Store) (string, error) {
				var then []store.FollowUp
				for _, id := range []string{"here", "new"} {
					m := store.Outgoing{Message: store.Message{ID: id}, Due: hour}
					then = append(then, store.FollowUp{Queue: o.queue, Message: m})
				}
				results, err := s.Settle(o.Context(), o.queue, []store.Settlement{
					{Receipt: store.Receipt{Lease: "none", ID: "x"}, Action: store.Ack, Then: then},
					{Receipt: held[o.Name()+"a"], Action: store.Ack, Then: then}})
				return fmt.Sprint(results), err
			},
			between: func(o otherClient) { o.cancel("here"); o.cancel("new") },
			answer:  "[{ lease lost} { <nil>}]",
		},
		{
			name: "ack", call: put(store.Ack), before: func(o otherClient) { hold(o, "a") },
			between: func(o otherClient) { o.send("a", time.Hour) },
			answer:  "[{ lease lost} { <nil>}]",
		},
	}...)
}

// eachMutation makes each mutation through a store that loses a reply or delays a request. left returns the state
// before the last attempt.
func eachMutation(t *testing.T, bad func(o otherClient, c mutation) (s *Store, left func() string)) {
	rdb := redistest.Shared(t).Client(t)
	all := mutations()
	for i := range 2 * len(all) {
		c, flow := all[i%len(all)], i >= len(all)
		t.Run(fmt.Sprintf("%s, flow %v", c.name, flow), func(t *testing.T) {
			o := otherClient{t, newStore(t, rdb), fmt.Sprintf("%s-%d", strings.SplitN(t.Name(), "/", 2)[0], i)}
			if flow {
				if err := o.s.SetFlow(t.Context(), o.queue, wideFlow, nil); err != nil {
					t.Fatal(err)
				}
			}
			c.before(o)
			s, left := bad(o, c)
			s.keys.of(o.queue).flow.Store(flow) // the first call that it makes is the one to repeat
			if answer, err := c.call(o, s); err != nil || answer != c.answer {
				t.Errorf("reply = %s, %v; want %s", answer, err, c.answer)
			}
			was := left()
			if is := o.state(); is != was || was == "" {
				t.Errorf("after the last attempt the queue holds\n%s\nwant\n%s", is, was)
			}
		})
	}
}

// A repeated call returns the result of the first attempt and changes nothing, although other clients have since sent,
// moved or claimed the same messages.
func TestRepeatedCallReturnsSameReplyAndChangesNothing(t *testing.T) {
	eachMutation(t, func(o otherClient, c mutation) (*Store, func() string) {
		var left string
		s := newStore(o.T, &loseFirstReply{UniversalClient: o.s.rdb, skip: c.reads, do: func() {
			c.between(o)
			left = o.state()
		}})
		s.preflightDone.Store(true)
		s.registered.Store(o.queue, true)
		return s, func() string { return left }
	})
}

// A first attempt that arrives late changes nothing. Its session has made a later request by then. The attempt must not
// replace the number of that request by its own: late attempts of other requests would then take effect.
func TestCallArrivingAfterItsRepetitionChangesNothing(t *testing.T) {
	eachMutation(t, func(o otherClient, c mutation) (*Store, func() string) {
		s, l := newDelayedStore(o.T, o.s, o.queue)
		l.skip = c.reads
		return s, func() string {
			c.between(o)
			left := o.state()
			sessions, session, later := "later:{"+o.queue+"}:sessions", s.sessions.name+":1", "1000"
			if err := s.rdb.HSet(o.Context(), sessions, session, later).Err(); err != nil {
				o.Fatal(err)
			}
			l.deliver(o.T)
			if last := s.rdb.HGet(o.Context(), sessions, session).Val(); last != later {
				o.Errorf("the last request of the session is %s after the late attempt, want %s", last, later)
			}
			return left
		}
	})
}
