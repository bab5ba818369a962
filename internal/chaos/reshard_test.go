//go:build unix

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
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
	if err := rdb.Set(ctx, "later:{q}:0:due", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	audit(3, "a key of a former generation")
}
