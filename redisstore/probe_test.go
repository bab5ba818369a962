package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// TestProbeTellsWhereGetAndListFind compares with calls on each queue: of any format, with messages in any state.
func TestProbeTellsWhereGetAndListFind(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server.Client(t))
	testProbe(t, s, server.Client(t))
	cluster := redistest.StartCluster(t)
	testProbe(t, newStore(t, cluster.Client(t)), cluster.Client(t))
}

func testProbe(t *testing.T, s *Store, rdb redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	queues := []string{"none", "plain", "far", "leased", "dead", "limited", "signed", "newer", "broken", "torn"}
	want := []bool{true, false, true, true, true, true, true, true, true, true}
	send := func(queue string, due time.Duration) {
		t.Helper()
		m := store.Outgoing{Message: store.Message{ID: "id", Group: "group"}, Due: store.Due{Delay: due}}
		if queue == "plain" {
			m.ID, m.Group = "other", "others"
		}
		if _, err := s.Send(ctx, queue, []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetFlow(ctx, "limited", store.Flow{Concurrency: 1}, nil); err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"plain", "leased", "dead", "limited", "newer", "torn"} {
		send(queue, 0)
	}
	send("far", 100*24*time.Hour)
	for _, queue := range []string{"leased", "dead"} {
		claim, err := s.Claim(ctx, queue, store.ClaimRequest{Max: 1, Lease: time.Hour})
		if err != nil || len(claim.Messages) != 1 {
			t.Fatal(claim, err)
		}
		if queue == "dead" {
			_, err = s.Settle(ctx, queue, []store.Settlement{{Receipt: claim.Messages[0].Receipt, Action: store.Bury}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Retire(ctx, "signed", "text"); err != nil {
		t.Fatal(err)
	}
	setFormat(t, rdb, "newer", 99)
	for _, key := range [][2]string{{"broken", "meta"}, {"torn", "messages"}, {"torn", "groups"}} {
		if err := rdb.Set(ctx, s.keys.key(key[0], key[1]), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for what, probe := range map[string][2][]string{
		"id": {{"unknown", "id"}}, "group": {nil, {"unknown", "group"}}, "both": {{"id"}, {"unknown"}}} {
		may, err := s.Probe(ctx, queues, probe[0], probe[1])
		if err != nil || fmt.Sprint(may) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v; want %v", what, may, err, want)
		}
	}
	many := make([]string, 2*probedTogether+1)
	for i := range many {
		many[i] = "plain"
	}
	many[2*probedTogether] = "far"
	may, err := s.Probe(ctx, many, []string{"id"}, nil)
	if err != nil || len(may) != len(many) || may[0] || !may[len(may)-1] {
		t.Errorf("%d results, %v", len(may), err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Probe(gone, many, []string{"id"}, nil); err == nil {
		t.Error("a probe goes on without its caller")
	}
}

// TestEarliestTellsWhereAListBegins compares with lists of queues of any format, with messages in any state.
func TestEarliestTellsWhereAListBegins(t *testing.T) {
	server := redistest.Start(t)
	testEarliest(t, newStore(t, server.Client(t)), server.Client(t))
	cluster := redistest.StartCluster(t)
	testEarliest(t, newStore(t, cluster.Client(t)), cluster.Client(t))
}

func testEarliest(t *testing.T, s *Store, rdb redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	base := time.Now().Truncate(time.Second)
	queues := []string{"none", "plain", "leased", "dead", "limited", "newer", "broken", "torn"}
	knows := map[string]bool{"plain": true, "leased": true, "dead": true}
	if err := s.SetFlow(ctx, "limited", store.Flow{Concurrency: 1}, nil); err != nil {
		t.Fatal(err)
	}
	for _, queue := range queues[1:6] {
		for i, due := range []time.Duration{-time.Hour, time.Minute, 100 * 24 * time.Hour} { // the last is packed later
			m := store.Outgoing{Message: store.Message{ID: fmt.Sprint(i)}, Due: store.Due{At: base.Add(due)}}
			if _, err := s.Send(ctx, queue, []store.Outgoing{m}); err != nil {
				t.Fatal(err)
			}
		}
		if queue == "leased" || queue == "dead" {
			receipt := claim(t, s, queue, 1, time.Hour).Messages[0].Receipt
			if queue == "dead" {
				if _, err := s.Settle(ctx, queue, []store.Settlement{{Receipt: receipt, Action: store.Bury}}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	setFormat(t, rdb, "newer", 99)
	for _, key := range [][2]string{{"broken", "meta"}, {"torn", "due"}, {"torn", "dead"}} {
		if err := rdb.Set(ctx, s.keys.key(key[0], key[1]), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	first := func(queue string, state store.State, from time.Time) time.Time {
		t.Helper()
		page, err := s.List(ctx, queue, store.ListRequest{State: state, From: from, Limit: 1})
		if err != nil || len(page.Messages) == 0 {
			return time.Time{}
		}
		if state == store.StateDead {
			return page.Messages[0].DiedAt
		}
		return page.Messages[0].Due
	}
	for _, from := range []time.Time{{}, base.Add(-time.Hour), base.Add(1 - time.Hour), base, base.Add(time.Minute),
		base.Add(time.Hour), base.Add(1000 * 24 * time.Hour)} {
		for _, dead := range []bool{false, true} {
			got, err := s.Earliest(ctx, queues, slices.Repeat([]time.Time{from}, len(queues)), dead)
			if err != nil || len(got) != len(queues) {
				t.Fatal(got, err)
			}
			for i, queue := range queues {
				if got[i].Known != knows[queue] {
					t.Errorf("%s: known is %v", queue, got[i].Known)
				}
				if !got[i].Known {
					continue
				}
				want := first(queue, store.StateDead, from)
				if !dead {
					if want = first(queue, store.StateReady, from); want.IsZero() {
						want = first(queue, store.StateScheduled, from)
					}
				}
				packed := !dead && from.After(base.Add(time.Minute)) // the last message is in a bucket
				if got[i].Any == want.IsZero() && !packed || got[i].Any && !want.IsZero() &&
					(got[i].Time.After(want) || !packed && !got[i].Time.Equal(want)) {
					t.Errorf("%s from %v, dead %v: %+v, want %v", queue, from, dead, got[i], want)
				}
			}
		}
	}
	for _, from := range []time.Time{time.UnixMilli(1), base.Add(-time.Hour), base.Add(1), base.Add(time.Hour)} {
		for _, to := range []time.Time{from.Add(time.Second), base.Add(time.Minute), base.Add(time.Hour),
			base.AddDate(9, 0, 0)} {
			if !to.After(from) {
				continue
			}
			got, err := s.CountDue(ctx, queues, from, to)
			if err != nil || len(got) != len(queues) {
				t.Fatal(got, err)
			}
			for i, queue := range queues {
				want := int64(-1)
				if knows[queue] {
					counts, err := s.Histogram(ctx, queue, []time.Time{from, to})
					if err != nil {
						t.Fatal(err)
					}
					want = counts[0]
				}
				if got[i] != want {
					t.Errorf("%s from %v to %v: %d, want %d", queue, from, to, got[i], want)
				}
			}
		}
	}
	many := make([]string, 2*probedTogether+1)
	for i := range many {
		many[i] = "plain"
	}
	if got, err := s.CountDue(ctx, many, time.UnixMilli(1), base.AddDate(9, 0, 0)); err != nil || len(got) != len(many) ||
		got[len(many)-1] != 3 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := s.Earliest(ctx, many, make([]time.Time, len(many)), false); err != nil || len(got) != len(many) ||
		!got[len(many)-1].Any {
		t.Errorf("%d results, %v", len(got), err)
	}
}

// TestEarliestLooksIntoBuckets compares with lists from random times. Most messages are due within an hour, so they are
// in buckets of several classes.
func TestEarliestLooksIntoBuckets(t *testing.T) {
	s := newStore(t, redistest.Start(t).Client(t))
	random := rand.New(rand.NewPCG(0, 7))
	begin := time.Now().Add(2 * time.Hour).Truncate(time.Millisecond)
	crowd := begin.Add(10 * time.Minute)
	for i := range 25 {
		var msgs []store.Outgoing
		for range 100 {
			far := time.Hour
			if random.IntN(3) == 0 {
				far = 10 * 24 * time.Hour
			}
			due := begin.Add(time.Duration(random.Int64N(int64(far))))
			if i >= 5 { // messages of nearly one moment, in the narrowest buckets too
				due = crowd.Add(time.Duration(random.IntN(10)) * time.Millisecond)
			}
			msgs = append(msgs, store.Outgoing{Message: store.Message{ID: store.NewID()}, Due: store.Due{At: due}})
		}
		if _, err := s.Send(t.Context(), "q", msgs); err != nil {
			t.Fatal(err)
		}
	}
	earliest := func(from time.Time) store.Earliest {
		got, err := s.Earliest(t.Context(), []string{"q"}, []time.Time{from}, false)
		if err != nil || !got[0].Known {
			t.Fatal(got, err)
		}
		return got[0]
	}
	for n := range 200 {
		from := begin.Add(time.Duration(random.Int64N(int64(time.Hour))))
		if n%3 == 0 {
			from = crowd.Add(time.Duration(random.IntN(10)) * time.Millisecond)
		}
		if n%10 == 0 {
			from = begin.Add(time.Duration(random.Int64N(int64(11 * 24 * time.Hour))))
		}
		page, err := s.List(t.Context(), "q", store.ListRequest{State: store.StateScheduled, From: from, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		to := from.Add(time.Duration(1 + random.Int64N(int64(24*time.Hour))))
		if n%5 == 0 {
			to = from.Add(3 * time.Millisecond)
		}
		want, err := s.Histogram(t.Context(), "q", []time.Time{from, to})
		if n, e := s.CountDue(t.Context(), []string{"q"}, from, to); err != nil || e != nil || n[0] != want[0] {
			t.Errorf("from %v to %v: %v, %v, want %v, %v", from, to, n, e, want, err)
		}
		got := earliest(from)
		for at := from; got.Any && got.Time.After(at); got = earliest(at) {
			at = got.Time
		}
		if got.Any != (len(page.Messages) > 0) || got.Any && !got.Time.Equal(page.Messages[0].Due) {
			t.Errorf("from %v: %+v, want %+v", from, got, page.Messages)
		}
	}
}

// pausing is a hook that calls a function, if it has one, after some commands of a pipeline.
type pausing struct {
	after int
	call  func()
}

func (p *pausing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p *pausing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (p *pausing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if p.call == nil {
			return next(ctx, cmds)
		}
		some := min(p.after, len(cmds)-1)
		if err := next(ctx, cmds[:some]); err != nil {
			return err
		}
		p.call()
		return next(ctx, cmds[some:])
	}
}

// Redis reads a long pipeline in parts, and other clients in between. A message that is packed then is found.
func TestEarliestFindsMessagesThatArePackedOrPromoted(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	mover := newFrozenClock(t, rdb)
	ctx, due := t.Context(), time.Now().Add(2*time.Hour).Truncate(time.Millisecond)
	p, pausingClient := &pausing{}, server.Client(t)
	pausingClient.AddHook(p)
	s := newStore(t, pausingClient)
	if _, err := s.Earliest(ctx, nil, nil, false); err != nil { // it has looked at the server
		t.Fatal(err)
	}
	for n, from := range []time.Time{{}, due.Add(-time.Minute), due.Add(-time.Hour)} {
		for _, promotes := range []bool{false, true} {
			for p.after = 1; p.after < 5; p.after++ {
				queue := fmt.Sprintf("q%d-%v-%d", n, promotes, p.after)
				packed := func() bool { return rdb.HGet(ctx, s.keys.key(queue, "meta"), "packed_messages").Val() == "1" }
				near := 2*time.Hour - 10*time.Second // nearly due, so that it is not packed by a send
				send := func() {
					m := store.Outgoing{Message: store.Message{ID: "m"}, Due: store.Due{At: due}}
					if _, err := mover.Send(ctx, queue, []store.Outgoing{m}); err != nil {
						t.Fatal(err)
					}
				}
				if promotes {
					send()
					advance(rdb)(t, queue, near)
				} else {
					advance(rdb)(t, queue, near)
					send()
					advance(rdb)(t, queue, -near)
				}
				before := packed()
				p.call = func() {
					if !promotes {
						mover.pack(ctx, queue)
					} else if _, err := mover.Claim(ctx, queue, store.ClaimRequest{Max: 1, Lease: time.Minute}); err != nil {
						t.Fatal(err)
					}
				}
				got, err := s.Earliest(ctx, []string{queue}, []time.Time{from}, false)
				if err != nil || !got[0].Known || !got[0].Any || got[0].Time.After(due) {
					t.Errorf("%s: %+v, %v; want due at %v", queue, got, err, due)
				}
				if p.call = nil; before != promotes || packed() == promotes {
					t.Fatalf("%s: packed: %v, and then %v", queue, before, packed())
				}
			}
		}
	}
}
