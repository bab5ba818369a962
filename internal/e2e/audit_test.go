package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// audit reads a queue's keys past Later, in one transaction, and checks that they agree: every message is in
// exactly one of due, the buckets of what is due far ahead, dead and the leases, what is there is a message, each lease
// has a deadline and each bucket a bound. It gives where each message is, by id. See redisstore/keys.go, lua/_lease.lua
// and lua/_far.lua.
func audit(t *testing.T, rdb redis.UniversalClient, queue string) map[string]string {
	t.Helper()
	ctx := bounded(t)
	key := func(name string) string { return "later:{" + queue + "}:" + name }
	var msg, due, dead, expiry, bounds *redis.StringSliceCmd
	var leases, far *redis.MapStringStringCmd
	_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		msg = p.HKeys(ctx, key("msg"))
		due = p.ZRange(ctx, key("due"), 0, -1)
		dead = p.ZRange(ctx, key("dead"), 0, -1)
		expiry = p.ZRange(ctx, key("expiry"), 0, -1)
		leases = p.HGetAll(ctx, key("lease"))
		far = p.HGetAll(ctx, key("far"))
		bounds = p.ZRange(ctx, key("fars"), 0, -1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	places := map[string]string{}
	put := func(id, place string) {
		if before, taken := places[id]; taken {
			t.Errorf("message %s is in %s and in %s", id, before, place)
		}
		places[id] = place
	}
	for _, id := range due.Val() {
		put(id, "due")
	}
	for _, id := range dead.Val() {
		put(id, "dead")
	}
	for bucket, text := range far.Val() {
		if !slices.Contains(bounds.Val(), bucket) {
			t.Errorf("bucket %s has no bound", bucket)
		}
		for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
			_, id, _ := strings.Cut(line, "\t")
			put(id, "far")
		}
	}
	if len(bounds.Val()) != len(far.Val()) {
		t.Errorf("%d bounds and %d buckets", len(bounds.Val()), len(far.Val()))
	}
	for lease, text := range leases.Val() {
		if !slices.Contains(expiry.Val(), lease) {
			t.Errorf("lease %s has no deadline", lease)
		}
		for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
			if id, _, _ := strings.Cut(line, "\t"); id != "" { // else it is a due time
				put(id, "lease")
			}
		}
	}
	if len(expiry.Val()) != len(leases.Val()) {
		t.Errorf("%d leases have a deadline; want %d", len(expiry.Val()), len(leases.Val()))
	}

	for _, id := range msg.Val() {
		if places[id] == "" {
			t.Errorf("message %s is nowhere", id)
		}
	}
	if len(msg.Val()) != len(places) {
		t.Errorf("%d messages are in a place; want %d", len(places), len(msg.Val()))
	}
	return places
}
