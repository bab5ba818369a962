package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
)

// A claim in the common case lists its process as claim.lua does, whichever processes wait and whatever comes next.
func TestSmallClaimListsItsProcessLikeAnyOther(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	soon, none := 100*time.Millisecond, func(*commonQueue) {}
	next := func(delay time.Duration) func(x *commonQueue) {
		return func(x *commonQueue) { x.add("next", delay) }
	}
	tests := 0
	for coming, before := range map[string]func(x *commonQueue){
		"nothing": none, "a message": next(soon), "a later message": next(time.Hour), "a lease": heldOf(1, 1),
		"a lease and a message": also(heldOf(1, 1), next(soon)),
		"a bucket":              func(x *commonQueue) { x.add("far", 2*time.Hour) },
	} {
		for _, listed := range [][]float64{nil, {idle}, {50}, {500}, {-3000}, {50, 500}, {50, idle}, {500, idle}} {
			for own := range 3 { // own process: not listed, the first, or the second
				var got []string
				for _, name := range []string{"claim_few", "claim"} {
					tests++
					x := &commonQueue{T: t, s: newFrozenClock(t, rdb, Prefix(fmt.Sprintf("%s%d:", name, tests))), rdb: rdb}
					x.ok(rdb.Set(t.Context(), x.key("clock"), int64(1_900_000_000_000_003), 0).Err())
					x.add("ready", 0)
					before(x)
					x.lists(listed...)
					process := "none"
					if own > 0 {
						process = fmt.Sprint(x.s.keys.prefix, "process", own-1)
					}
					c := x.s.newCall(name, commonName, 7)
					if name == "claim_few" {
						keys := x.s.keys.of(commonName).common[claimFew].keys
						c.args = append([]any{"evalsha", "", len(keys)}, keys...)
						c.add(60_000, "lease", 10, process)
					} else {
						c.add("session", 1, "0", 10, 60_000, "lease", process)
					}
					reply, err := x.s.execute(t.Context(), x.s.scripts[name], c.args)
					x.ok(err)
					list, _ := reply.([]any)
					if len(list) < 5 {
						t.Fatalf("%s before %s = %v", name, coming, reply)
					}
					wake := fmt.Sprint(rdb.ZRangeWithScores(t.Context(), x.key("wake"), 0, -1).Val())
					got = append(got, strings.ReplaceAll(fmt.Sprint(list[:5], wake), x.s.keys.prefix, ""))
					x.ok(x.s.Close())
				}
				if got[0] != got[1] {
					t.Errorf("before %s, listed %v, own %d:\n%s\nand\n%s", coming, listed, own, got[0], got[1])
				}
			}
		}
	}
}
