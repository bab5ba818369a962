package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// A process that starts while the server is full, and knows neither its queues nor its scripts, can do all that an
// operator needs to make room.
func TestFullServerServesFreshProcess(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	ctx, queue := t.Context(), "full"
	s := newStore(t, rdb)
	for _, id := range []string{"acked", "buried", "conditional"} {
		send(t, s, queue, id, store.Due{})
	}
	held := claim(t, s, queue, 3, time.Minute)
	for _, id := range []string{"a", "b"} {
		send(t, s, queue, id, store.Due{})
	}
	send(t, s, queue, "scheduled", store.Due{Delay: time.Minute})
	send(t, s, "doomed", "m", store.Due{})
	known := newStore(t, rdb) // it has registered the queue of the follow-up, so only the script itself can refuse it
	if err := known.register(ctx, "doomed"); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	settle := func(s *Store, i int, action store.Action, condition *store.Condition) error {
		results, err := s.Settle(ctx, queue,
			[]store.Settlement{{Receipt: held.Messages[i].Receipt, Action: action, If: condition}})
		if err != nil {
			return err
		}
		return results[0].Err
	}
	for _, c := range []struct {
		name string
		do   func(s *Store) error
	}{
		{"report", func(s *Store) error {
			results, err := s.Report(ctx, []store.Report{{Queue: queue, Counts: map[store.EventKind]int64{"sent": 1}}})
			if err != nil {
				return err
			}
			return results[0].Err
		}},
		{"set limits of keys", func(s *Store) error { return s.SetFlow(ctx, queue, store.Flow{Fair: true}, nil) }},
		{"set limits of a key", func(s *Store) error {
			return s.SetKeyFlow(ctx, queue, "k", store.KeyOverride{Rate: &store.Rate{}})
		}},
		{"keys", func(s *Store) error {
			_, err := s.Keys(ctx, queue, store.KeysRequest{Limit: 1})
			return err
		}},
		{"remove limits", func(s *Store) error { return s.SetFlow(ctx, queue, store.Flow{}, nil) }},
		{"pause", func(s *Store) error { return s.SetPaused(ctx, queue, true) }},
		{"retain", func(s *Store) error { return s.SetDeadRetention(ctx, queue, store.Retention{MaxCount: 9}, nil) }},
		{"set properties", func(s *Store) error {
			return s.SetProperties(ctx, queue, map[string]string{"a": "1", "b": ""}, nil)
		}},
		{"properties", func(s *Store) error {
			all, err := s.Properties(ctx, queue)
			if err == nil && all["a"] != "1" {
				t.Errorf("properties are %v, want a to be 1", all)
			}
			return err
		}},
		{"resume", func(s *Store) error { return s.SetPaused(ctx, queue, false) }},
		{"extend", func(s *Store) error {
			results, err := s.Extend(ctx, queue,
				[]store.Extension{{Lease: held.Messages[0].Receipt.Lease, For: time.Minute}})
			if err != nil {
				return err
			}
			return results[0].Err
		}},
		{"ack with follow-ups", func(s *Store) error {
			then := []store.FollowUp{
				{Queue: "doomed", Message: store.Outgoing{Message: store.Message{ID: "follow-up"}}}}
			for _, s := range []*Store{s, known} {
				results, err := s.Settle(ctx, queue,
					[]store.Settlement{{Receipt: held.Messages[0].Receipt, Action: store.Ack, Then: then}})
				if err != nil {
					return err
				}
				if !errors.Is(results[0].Err, store.ErrFull) {
					t.Errorf("an ack with follow-ups returns %v, want ErrFull", results[0].Err)
				}
			}
			infos, err := s.Get(ctx, "doomed", []string{"follow-up"})
			if err == nil && infos[0] != nil {
				t.Errorf("the follow-up of a refused ack is %+v", infos[0])
			}
			return err
		}},
		{"ack", func(s *Store) error { return settle(s, 0, store.Ack, nil) }},
		{"conditional ack",
			func(s *Store) error { return settle(s, 2, store.Ack, &store.Condition{Property: "none"}) }},
		{"bury", func(s *Store) error { return settle(s, 1, store.Bury, nil) }},
		{"replay", func(s *Store) error {
			bulk, err := s.Replay(ctx, queue, store.Selection{State: store.StateDead}, store.Due{})
			if err == nil && bulk.Done != 1 {
				t.Errorf("replay replayed %d messages, want 1", bulk.Done)
			}
			return err
		}},
		{"claim", func(s *Store) error {
			c, err := s.Claim(ctx, queue, store.ClaimRequest{Max: 1, Lease: time.Minute})
			if err == nil && len(c.Messages) != 1 {
				t.Errorf("claim returned %d messages, want 1", len(c.Messages))
			}
			return err
		}},
		{"cancel", func(s *Store) error {
			results, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: []string{"b"}})
			if err != nil {
				return err
			}
			return results[0].Err
		}},
		{"reschedule", func(s *Store) error {
			errs, err := s.Reschedule(ctx, queue, []string{"scheduled"}, store.Due{})
			return errors.Join(append(errs, err)...)
		}},
		{"purge", func(s *Store) error {
			_, err := s.Purge(ctx, queue, store.Selection{})
			return err
		}},
		{"delete", func(s *Store) error { return s.Delete(ctx, "doomed") }},
		{"queues", func(s *Store) error {
			names, _, err := s.Queues(ctx, "")
			if err == nil && len(names) != 1 {
				t.Errorf("queues are %q, want only %q", names, queue)
			}
			return err
		}},
	} {
		if err := rdb.ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.do(newStore(t, rdb)); err != nil {
			t.Errorf("%s by a fresh process on a full server: %v", c.name, err)
		}
	}
	if err := newStore(t, rdb).SetPaused(ctx, "new", true); !errors.Is(err, store.ErrFull) {
		t.Errorf("pause of a queue that does not exist on a full server: %v, want ErrFull", err)
	}
	set := map[string]string{"a": "1"}
	if err := newStore(t, rdb).SetProperties(ctx, "new", set, nil); !errors.Is(err, store.ErrFull) {
		t.Errorf("properties of a queue that does not exist on a full server: %v, want ErrFull", err)
	}
}

// refuseRepetition loses the first reply and refuses the second attempt.
type refuseRepetition struct {
	redis.UniversalClient
	refusal error
	calls   int
}

func (r *refuseRepetition) Process(ctx context.Context, cmd redis.Cmder) error {
	r.calls++
	if r.calls > 1 {
		cmd.SetErr(r.refusal)
		return r.refusal
	}
	if err := r.UniversalClient.Process(ctx, cmd); err != nil {
		return err
	}
	return errLostReply
}

// ErrFull and ErrClosed state that nothing was done, which is wrong if only the repetition was refused.
func TestRefusedRepetitionReportsUnknownOutcome(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	creator := newStore(t, rdb)
	send(t, creator, "q", "first", store.Due{})
	send(t, creator, "q", "second", store.Due{}) // loads the script of a lone message
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	full := rdb.Set(t.Context(), "k", "v", 0).Err()
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	for _, refusal := range []error{full, redis.ErrClosed} {
		s := newStore(t, &refuseRepetition{UniversalClient: rdb, refusal: refusal})
		s.preflightDone.Store(true)
		s.registered.Store("q", true)
		_, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: refusal.Error()}}})
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrClosed) {
			t.Errorf("send repeated into %v returned %v, want ErrUnavailable", refusal, err)
		}
		infos, err := newStore(t, rdb).Get(t.Context(), "q", []string{refusal.Error()})
		if err != nil || infos[0] == nil {
			t.Errorf("the message was not sent: %v, %v; the test proves nothing", infos, err)
		}
	}
}
