//go:build unix

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
)

func TestCheckerFindsGetsThatMissAMessage(t *testing.T) {
	const (
		far  = "s 1000000 m m +14400000 f\nS 1000100 m ok\n"
		miss = "H 1000400 m 1000300\n"
	)
	for name, c := range map[string]struct {
		journal string
		want    string // the kind of a violation
	}{
		"found":                       {far, ""},
		"missed":                      {far + miss, "lost"},
		"missed while it was sent":    {far + "H 1000090 m 1000080\n", ""},
		"missed after its cancel":     {far + "k 1000150 m\nK 1000160 m scheduled\n" + miss, ""},
		"missed before its cancel":    {far + miss + "k 1000450 m\nK 1000460 m scheduled\n", "lost"},
		"missed after its reschedule": {far + "m 1000350 m +10\nM 1000360 m ok\n" + miss, ""},
		"missed when it may be undue": {"s 1000000 m m +10 -\nS 1000100 m ok\n" + miss, ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "actor"+journalSuffix), []byte(c.journal), 0o600); err != nil {
			t.Fatal(err)
		}
		r := &run{dir: dir, result: &Result{}}
		left := map[string]*later.Info{}
		if !strings.Contains(c.journal, "\nk ") {
			left["m"] = &later.Info{State: later.StateScheduled, Due: time.UnixMicro(1000000).Add(4 * time.Hour)}
		}
		if err := r.verify(left); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, v := range r.result.Violations {
			got += v.Kind
		}
		if got != c.want {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}

func TestAuditFindsWhatIsInAWrongSubQueue(t *testing.T) {
	server, err := redistest.Run()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Remove()
	ctx := t.Context()
	client, err := openClient(ctx, server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	rdb := redis.NewClient(server.Options())
	defer rdb.Close()
	over := client.Store()
	shard.Hurry(over, "test", 0, time.Second)
	r := &run{client: client, queues: []string{"q"}, result: &Result{}}
	audit := func(want int, when string) {
		t.Helper()
		r.result = &Result{}
		if err := r.auditShards(ctx, rdb); err != nil {
			t.Fatal(err)
		}
		if got := r.result.Violated; got != want {
			t.Errorf("%s: %d violations, want %d: %v", when, got, want, r.result.Violations)
		}
	}
	for i := range 20 {
		if _, err := client.Queue("q").Send(ctx, nil, later.WithID(fmt.Sprint(i)), later.In(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	audit(0, "one shard")
	for _, n := range []int{3, 2} {
		if err := store.SetShards(ctx, over, "q", n); err != nil {
			t.Fatal(err)
		}
		if err := awaitShards(ctx, r); err != nil {
			t.Fatal(err)
		}
		audit(0, fmt.Sprint(n, " shards"))
	}
	names, err := shard.Names(ctx, over, "q")
	if err != nil {
		t.Fatal(err)
	}
	wrong := names[1-shard.Of(store.Slot("7"), 2)]
	msg := store.Outgoing{Message: store.Message{ID: "7"}, Due: store.Due{Delay: time.Hour}}
	engine := over.(interface{ Unwrap() store.Store }).Unwrap()
	if _, err := engine.Send(ctx, wrong, []store.Outgoing{msg}); err != nil {
		t.Fatal(err)
	}
	audit(2, "in two sub-queues, one of them wrong")
	const key = "k"
	if err := client.Queue("q").SetFlow(ctx, later.Flow{Fair: true}); err != nil {
		t.Fatal(err)
	}
	home := shard.Of(store.KeySlot(key), 2)
	for i, name := range []string{names[home], names[1-home]} {
		if err := engine.SetKeyFlow(ctx, name, key, store.KeyOverride{Rate: &store.Rate{}}); err != nil {
			t.Fatal(err)
		}
		audit(2+i, fmt.Sprintf("a key in %d sub-queues", i+1))
	}
	if err := rdb.Set(ctx, "later:{q}:0:due", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	audit(4, "a key of a former generation")
}

// TestCheckerFindsBrokenLimitsOfShards has histories of queues with several shards: their limits and the order of their
// keys count as in others, and turns and waits do not.
func TestCheckerFindsBrokenLimitsOfShards(t *testing.T) {
	var j orderJournal
	fair := j.set(-1100, -1099, store.Flow{Fair: true})
	three := j.set(-2, -1, store.Flow{Concurrency: 3})
	hundred := store.Rate{N: 100, Per: time.Second, Burst: 3}
	rate := j.set(-2, -1, store.Flow{Rate: hundred})
	ofKey := j.set(-2, -1, store.Flow{Key: store.KeyFlow{Concurrency: 2}})
	fifty := store.Rate{N: 50, Per: time.Second, Burst: 2}
	slower := rate + j.claim(0, "a", 3) + j.set(1, 1.5, store.Flow{Rate: fifty})
	same := rate + j.claim(0, "a", 3) + j.set(1, 1.5, store.Flow{Rate: hundred, Concurrency: 9})
	slowerKey := j.set(-2, -1, store.Flow{Key: store.KeyFlow{Rate: hundred}}) + j.keyed(0, "a", "k", "k", "k") +
		j.set(1, 1.5, store.Flow{Key: store.KeyFlow{Rate: fifty}})
	order := j.ordered(store.OrderHalt) + j.send(0, "a", "+0") + j.send(1, "b", "+0")
	turns := fair
	for i := range 6 {
		lease := fmt.Sprint("o", i)
		turns += j.keyed(float64(i), lease, "l") + j.ack(float64(i)+0.5, lease, 0)
	}
	turns += j.sentKeyed("b0", "k") + j.keyed(100, "b", "k") + j.ack(101, "b", 0)
	late := j.sent("b0") + j.claim(6000, "b", 1) + j.ack(6001, "b", 0)
	for name, c := range map[string]struct{ journal, want, one string }{
		"in order":                  {order + j.once(2, "a", 0, 20) + j.once(3, "b", 1, 30), "", ""},
		"another message overtakes": {order + j.once(2, "b", 1, 20) + j.once(3, "a", 0, 30), "order", "order"},
		"a key that is held": {
			order + j.start(2, "a", 1, 0, 20) + j.settle(2.5, "a", 1, "nack") + j.once(3, "b", 1, 30) +
				j.start(4, "a", 2, 0, 40) + j.settle(5, "a", 2, "ack"), "held", "held",
		},
		"fences of another shard shrink": {order + j.once(2, "a", 0, 20) + j.once(3, "b", 1, 19), "fence", "fence"},
		"as many as allowed":             {three + j.claim(0, "a", 2) + j.claim(1, "b", 1), "", ""},
		"too many of all shards":         {three + j.claim(0, "a", 2) + j.claim(1, "b", 2), "concurrency", "concurrency"},
		"a burst of all shards":          {rate + j.claim(0, "a", 2) + j.claim(1, "b", 1), "", ""},
		"too many starts of all shards":  {rate + j.claim(0, "a", 2) + j.claim(1, "b", 2), "rate", "rate"},
		"too many of a key in two shards": {
			ofKey + j.keyed(0, "a", "k", "k") + j.keyed(1, "b", "k"), "concurrency", "concurrency",
		},
		"a share of a lower limit": {
			three + j.claim(0, "a", 2) + j.set(1, 1.5, store.Flow{Concurrency: 2}) + j.claim(2, "b", 1), "", "concurrency",
		},
		"too many after a lower limit": {
			three + j.claim(0, "a", 2) + j.set(1, 1.5, store.Flow{Concurrency: 2}) + j.claim(2, "b", 2), "concurrency",
			"concurrency",
		},
		"too many when those from before are done": {
			three + j.claim(0, "a", 1) + j.ack(0.5, "a", 0) + j.set(1, 1.5, store.Flow{Concurrency: 2}) + j.claim(2, "b", 3),
			"concurrency", "concurrency",
		},
		"a burst of a changed rate":              {slower + j.claim(2, "b", 2), "", "rate"},
		"more than that":                         {slower + j.claim(2, "b", 3), "rate", "rate"},
		"a burst of the same rate":               {same + j.claim(2, "b", 2), "rate", "rate"},
		"a burst of a key, changed rate":         {slowerKey + j.keyed(2, "b", "k", "k"), "rate", "rate"},
		"a key of another shard has more starts": {turns, "", "turn"},
		"a message of another shard waits": {
			three + j.claim(0, "a", 2) + j.ack(1, "a", 0) + late, "", "waited",
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantViolationsOf(t, &run{sharded: true}, history{"actor": c.journal}, nil, c.want)
			wantViolationsOf(t, &run{}, history{"actor": c.journal}, nil, c.one)
		})
	}
}

// TestLimitsCountUntilWritesAreUndone has too many starts before a failover, and after it.
func TestLimitsCountUntilWritesAreUndone(t *testing.T) {
	var j flowJournal
	for name, c := range map[string]struct {
		flow store.Flow
		want string
	}{
		"concurrency": {store.Flow{Concurrency: 3}, "concurrency"},
		"rate":        {store.Flow{Rate: store.Rate{N: 100, Per: time.Second, Burst: 3}}, "rate"},
		"of a key":    {store.Flow{Key: store.KeyFlow{Concurrency: 3}}, "concurrency"},
	} {
		t.Run(name, func(t *testing.T) {
			journal := j.set(-2, -1, c.flow) + j.keyed(0, "a", "k", "k") + j.keyed(1, "b", "k", "k")
			for from, want := range map[float64]string{0.5: "", 1: "", 1.5: c.want} {
				r := &run{windows: []window{{from: int64(j.at(5000)), to: int64(j.at(5001))},
					{from: int64(j.at(from)), to: int64(j.at(from + 1))}}}
				wantViolationsOf(t, r, history{"actor": journal}, nil, want)
			}
		})
	}
}

// TestLimitsOfShardsAreLargeEnough checks the limits of the reshard faults.
func TestLimitsOfShardsAreLargeEnough(t *testing.T) {
	for i, sets := range shardedLimits {
		if i == len(shardedLimits)-1 && sets[halts].Key.Order != store.OrderHalt {
			t.Errorf("no key of queue %d halts: %+v", i, sets[halts])
		}
		for _, f := range sets {
			least := []int{f.Concurrency, f.Rate.N, f.Normal().Rate.Burst}
			if slices.ContainsFunc(least, func(n int) bool { return n > 0 && n < maxShards }) || f.Check() != nil {
				t.Errorf("queue %d cannot have %d shards with %+v", i, maxShards, f)
			}
		}
	}
}
