package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// outOfMemory is the error of a server that is full.
type outOfMemory struct{}

func (outOfMemory) Error() string { return "OOM command not allowed when used memory > 'maxmemory'" }
func (outOfMemory) RedisError()   {}

// fullAfter refuses script calls as a server without memory does, after some.
type fullAfter struct {
	redis.UniversalClient
	calls int
}

func (f *fullAfter) Process(ctx context.Context, cmd redis.Cmder) error {
	if cmd.Args()[0] == "evalsha" {
		if f.calls--; f.calls < 0 {
			cmd.SetErr(outOfMemory{})
			return outOfMemory{}
		}
	}
	return f.UniversalClient.Process(ctx, cmd)
}

func farAhead(n int) []store.Outgoing {
	msgs := make([]store.Outgoing, n)
	for i := range msgs {
		msgs[i] = store.Outgoing{Message: store.Message{ID: fmt.Sprintf("m%03d", i)},
			Due: store.Due{Delay: 48 * time.Hour}}
	}
	return msgs
}

// A send of much work is several calls, with the results of one.
func TestLongSendIsMadeInParts(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	msgs := farAhead(store.MaxBatch)
	last := &msgs[store.MaxBatch-1]
	last.ID = msgs[0].ID // which the first call sends
	s := newStore(t, rdb)
	send(t, s, "parts-send", msgs[400].ID, store.Due{})
	counted := &largestCall{UniversalClient: rdb}
	s = newStore(t, counted)
	ctx := store.WithRequest(t.Context(), store.Request{Session: "s", Number: 1})
	for attempt := range 2 { // the second is a repetition through the server
		counted.calls = 0
		results, err := s.Send(ctx, "parts-send", msgs)
		if err != nil || counted.calls < 2 {
			t.Fatalf("attempt %d: %d calls, %v", attempt, counted.calls, err)
		}
		for i, r := range results {
			if want := i == 400 || i == store.MaxBatch-1; r.Duplicate != want || r.Err != nil {
				t.Errorf("attempt %d: message %d has %+v", attempt, i, r)
			}
		}
	}
	if st, err := s.Stats(t.Context(), "parts-send"); err != nil || st.Scheduled+st.Ready != store.MaxBatch-1 {
		t.Errorf("%+v, %v", st, err)
	}
}

// If a later call fails, the messages of the earlier ones are sent, and say so.
func TestSendThatFailsInALaterPart(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	send(t, s, "parts-full", "first", store.Due{})
	full := newStore(t, &fullAfter{rdb, 1})
	full.preflightDone.Store(true)
	full.registered.Store("parts-full", true)
	results, err := full.Send(t.Context(), "parts-full", farAhead(store.MaxBatch))
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for i, r := range results {
		if r.Err == nil {
			sent++
		} else if !errors.Is(r.Err, store.ErrFull) || r.Added() || i == 0 {
			t.Errorf("message %d has %+v", i, r)
		}
	}
	if err := store.SendError(results); !errors.Is(err, store.ErrFull) || results[sent-1].Err != nil {
		t.Errorf("SendError = %v; %d have none", err, sent)
	}
	if st, err := s.Stats(t.Context(), "parts-full"); err != nil || st.Scheduled != int64(sent) {
		t.Errorf("%d are sent: %+v, %v", sent, st, err)
	}
	infos := make([]store.Info, store.MaxBatch)
	for i, m := range farAhead(store.MaxBatch) {
		infos[i] = store.Info{Message: m.Message, State: store.StateScheduled, Due: time.Now().Add(48 * time.Hour)}
	}
	full = newStore(t, &fullAfter{rdb, 1})
	full.preflightDone.Store(true)
	full.registered.Store("parts-full", true)
	if _, err := full.Restore(t.Context(), "parts-full", infos); !errors.Is(err, store.ErrFull) {
		t.Errorf("Restore = %v", err)
	}
}

// Claims stay in order when they leave overdue buckets for the next.
func TestClaimOfManyOverdueBucketsIsInOrder(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	constants := maps.Clone(luaConstants)
	constants["MAX_PROMOTED"], constants["BUCKET_BYTES"], constants["CHUNK_BYTES"] = "10", "60", "100"
	s := newWith(t, loadScripts(frozenClock, constants), rdb)
	msgs := farAhead(store.MaxBatch)
	for i := range msgs {
		msgs[i].Due = store.Due{At: time.Now().Add(48*time.Hour + time.Duration(i*7919%500)*100*time.Millisecond)}
	}
	if _, err := s.Send(t.Context(), "parts-claim", msgs); err != nil {
		t.Fatal(err)
	}
	advance(rdb)(t, "parts-claim", 72*time.Hour)
	claims, last := 0, time.Time{}
	for claimed := 0; claimed < len(msgs); claims++ {
		c := claim(t, s, "parts-claim", store.MaxBatch, time.Minute)
		if claimed += len(c.Messages); claimed < len(msgs) && !c.More {
			t.Fatalf("%d messages are claimed and no more", claimed)
		}
		for _, m := range c.Messages {
			if m.Due.Before(last) {
				t.Errorf("a message due at %v comes after one at %v", m.Due, last)
			}
			last = m.Due
		}
	}
	if claims < 5 {
		t.Errorf("%d claims promoted all", claims)
	}
}
