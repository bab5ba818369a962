package diskstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// repeatedCalls are calls that change something. Before each, "ready" and "other" are ready, "held" is leased,
// "cancelled" was leased and is cancelled, and "dead" is dead.
var repeatedCalls = map[string]func(ctx context.Context, s *Store, held store.Receipt) (any, error){
	"send": func(ctx context.Context, s *Store, _ store.Receipt) (any, error) {
		return s.Send(ctx, "q", []store.Outgoing{plain("new"), plain("ready")})
	},
	"replace": func(ctx context.Context, s *Store, _ store.Receipt) (any, error) {
		m := plain("new")
		m.OnDuplicate.Mode = store.DuplicateReplace
		return s.Send(ctx, "q", []store.Outgoing{m})
	},
	"claim": func(ctx context.Context, s *Store, _ store.Receipt) (any, error) {
		return s.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
	},
	"ack": func(ctx context.Context, s *Store, held store.Receipt) (any, error) {
		return s.Settle(ctx, "q", []store.Settlement{{Receipt: held, Action: store.Ack,
			Then: []store.FollowUp{{Queue: "next", Message: plain("follow-up")}}}})
	},
	"nack": func(ctx context.Context, s *Store, held store.Receipt) (any, error) {
		return s.Settle(ctx, "q", []store.Settlement{{Receipt: held, Action: store.Nack, Reason: "no"}})
	},
	"extend": func(ctx context.Context, s *Store, held store.Receipt) (any, error) {
		return s.Extend(ctx, "q", []store.Extension{{Lease: held.Lease}})
	},
	"cancel": func(ctx context.Context, s *Store, _ store.Receipt) (any, error) {
		return s.Cancel(ctx, "q", store.CancelRequest{IDs: []string{"ready", "unknown"}})
	},
	"reschedule": func(ctx context.Context, s *Store, _ store.Receipt) (any, error) {
		return s.Reschedule(ctx, "q", []string{"ready", "held", "unknown"}, store.Due{Delay: time.Hour})
	},
	"restore": func(ctx context.Context, s *Store, _ store.Receipt) (any, error) {
		m := plain("new").Message
		return s.Restore(ctx, "q", []store.Info{{Message: m, State: store.StateReady, Due: s.clock.Now()}})
	},
	"remove": func(ctx context.Context, s *Store, _ store.Receipt) (any, error) {
		infos, err := s.Get(context.Background(), "q", []string{"ready"})
		if err != nil || infos[0] == nil {
			infos = []*store.Info{{Message: store.Message{ID: "ready"}}} // as the caller got it before
		}
		return s.Remove(ctx, "q", []store.Info{*infos[0]})
	},
	"replay": func(ctx context.Context, s *Store, _ store.Receipt) (any, error) {
		return s.Replay(ctx, "q", store.Selection{State: store.StateDead}, store.Due{})
	},
	"purge": func(ctx context.Context, s *Store, _ store.Receipt) (any, error) {
		return s.Purge(ctx, "q", store.Selection{State: store.StateReady})
	},
	"pause": func(ctx context.Context, s *Store, _ store.Receipt) (any, error) {
		return nil, s.SetPaused(ctx, "q", true)
	},
	"set properties": func(ctx context.Context, s *Store, _ store.Receipt) (any, error) {
		return nil, s.SetProperties(ctx, "q", map[string]string{"color": "red"})
	},
	"delete": func(ctx context.Context, s *Store, _ store.Receipt) (any, error) {
		return nil, s.Delete(ctx, "q")
	},
}

func plain(id string) store.Outgoing {
	return store.Outgoing{Message: store.Message{ID: id, Payload: []byte("payload of " + id)}}
}

// undo changes what the calls changed, so that a call that is executed again has another result.
func undo(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	if _, err := s.Cancel(ctx, "q", store.CancelRequest{IDs: []string{"new", "follow-up"}}); err != nil {
		t.Fatal(err)
	}
	send(t, s, "ready", "later")
	if err := s.SetPaused(ctx, "q", false); err != nil {
		t.Fatal(err)
	}
	if err := s.SetProperties(ctx, "q", map[string]string{"color": "blue"}); err != nil {
		t.Fatal(err)
	}
}

func openIn(t *testing.T, fs vfs.FS, clock Clock) *Store {
	t.Helper()
	s, err := Open("later", WithClock(clock), withFS(fs))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// prepare fills a queue and returns the receipt of the leased message.
func prepare(t *testing.T, s *Store) store.Receipt {
	t.Helper()
	send(t, s, "dead", "held", "cancelled")
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 3, Lease: time.Hour})
	if err != nil || len(c.Messages) != 3 {
		t.Fatal(c, err)
	}
	var held store.Receipt
	for _, m := range c.Messages {
		switch m.ID {
		case "held":
			held = m.Receipt
		case "dead":
			if _, err := s.Settle(t.Context(), "q", []store.Settlement{{Receipt: m.Receipt, Action: store.Bury}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: []string{"cancelled"}}); err != nil {
		t.Fatal(err)
	}
	send(t, s, "ready", "other")
	return held
}

// everything returns all that a store reports of its queues.
func everything(t *testing.T, s *Store) string {
	t.Helper()
	text := ""
	for _, q := range []string{"q", "next"} {
		stats, err := s.Stats(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		properties, err := s.Properties(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("%s: %+v %v %v\n", q, stats, properties, live(t, s, q))
	}
	return text
}

// undone are the calls whose effect undo has undone, so that they have one again.
var undone = map[string]bool{"send": true, "claim": true, "cancel": true, "restore": true, "purge": true, "pause": true,
	"set properties": true, "delete": true}

func TestARequestIsExecutedOnceAlsoAfterAKill(t *testing.T) {
	for name, call := range repeatedCalls {
		t.Run(name, func(t *testing.T) {
			fs, clock := vfs.NewCrashableMem(), newManualClock()
			s := openIn(t, fs, clock)
			held := prepare(t, s)
			ctx := store.WithRequest(t.Context(), store.Request{Session: "s:1", Number: 7})
			first, err := call(ctx, s, held)
			if err != nil {
				t.Fatal(err)
			}
			killed := openIn(t, same(fs), clock)
			for _, s := range []*Store{s, killed} {
				defer s.Close()
				undo(t, s)
				before := everything(t, s)
				again, err := call(ctx, s, held)
				if err != nil || !reflect.DeepEqual(inUTC(again), inUTC(first)) {
					t.Errorf("first %+v, again %+v, %v", first, again, err)
				}
				if after := everything(t, s); after != before {
					t.Errorf("the repetition changed\n%sto\n%s", before, after)
				}
				wantSound(t, s)
			}
			earlier := store.WithRequest(t.Context(), store.Request{Session: "s:1", Number: 6})
			if _, err := call(earlier, killed, held); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("an earlier request returns %v", err)
			}
			before := everything(t, killed)
			next := store.WithRequest(t.Context(), store.Request{Session: "s:1", Number: 8})
			if _, err := call(next, killed, held); err != nil {
				t.Error(err)
			}
			if undone[name] && everything(t, killed) == before {
				t.Errorf("the next request was not executed")
			}
		})
	}
}

// inUTC returns a result with comparable times.
func inUTC(result any) any {
	if c, ok := result.(store.Claim); ok {
		c.Now, c.Deadline = c.Now.UTC(), c.Deadline.UTC()
		for i := range c.Messages {
			c.Messages[i].Due = c.Messages[i].Due.UTC()
		}
		return c
	}
	if b, ok := result.(store.Bulk); ok {
		b.Before = b.Before.UTC()
		return b
	}
	if extended, ok := result.([]store.ExtendResult); ok {
		for i := range extended {
			extended[i].Deadline = extended[i].Deadline.UTC()
		}
	}
	return result
}

func TestRequestsAreForgottenTwoAtATime(t *testing.T) {
	fs, clock := vfs.NewCrashableMem(), newManualClock()
	s := openIn(t, fs, clock)
	call := func(session string) {
		ctx := store.WithRequest(t.Context(), store.Request{Session: session, Number: 1})
		if err := s.SetPaused(ctx, "q", false); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		call(fmt.Sprint(i))
	}
	clock.Advance(rememberRequests + time.Millisecond)
	for i, want := range []int{4, 3, 3, 4} {
		call(fmt.Sprint("new ", i))
		if got := s.requests.byTime.Len(); got != want {
			t.Errorf("after %d calls %d are remembered, want %d", i+1, got, want)
		}
	}
	wantSound(t, s)
	s.Close()
	s = openIn(t, fs, clock)
	defer s.Close()
	if got := s.requests.byTime.Len(); got != 4 {
		t.Errorf("after opening it again %d are remembered, want 4", got)
	}
}
