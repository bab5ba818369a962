package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// A check takes a sign for what it is, and checks sub-queues.
func TestCheckKnowsSignsAndSubQueues(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s, ctx := newStore(t, rdb), t.Context()
	send(t, s, "q", "x", store.Due{})
	a := subQueue(t, s, "q", "g1", "a")
	send(t, s, a, "y", store.Due{})
	if err := errors.Join(s.Rename(ctx, "q", "q{g1}", "sign", ""), s.Retire(ctx, "q{g0}a", "sign")); err != nil {
		t.Fatal(err)
	}
	check := func(repair bool) (texts []string) {
		if err := s.Check(ctx, store.CheckOptions{Repair: repair}, func(r store.CheckResult) {
			if r.Queue != "" {
				texts = append(texts, fmt.Sprint(r.Queue, " ", r.Severity, ": ", strings.Split(r.Text, ";")[0]))
			}
		}); err != nil {
			t.Fatal(err)
		}
		return texts
	}
	want := []string{"q ok: the queue has shards, which are checked by themselves",
		"q{g1} ok: 0 scheduled, 1 ready, 0 leased, 0 dead", "q{g1}a ok: 0 scheduled, 1 ready, 0 leased, 0 dead"}
	if got := check(false); !slices.Equal(got, want) {
		t.Errorf("the check reports %q", got)
	}
	if err := errors.Join(rdb.SRem(ctx, s.keys.registry(), "q").Err(),
		rdb.ZRem(ctx, s.keys.key(a, "due"), "y").Err()); err != nil {
		t.Fatal(err)
	}
	if got := check(true); len(got) != 5 {
		t.Errorf("the check reports %q", got)
	}
	if got := check(false); !slices.Equal(got, want) {
		t.Errorf("after a repair the check reports %q", got)
	}
	if err := rdb.Del(ctx, s.keys.key(a, "meta")).Err(); err != nil {
		t.Fatal(err)
	}
	if got := check(true); len(got) != 3 || !strings.Contains(got[2], "1 messages are in a shard that does not exist") {
		t.Errorf("the check reports %q", got)
	}
}
