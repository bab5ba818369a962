package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// audit reads a queue's keys past Later, in one transaction, and checks that they agree: every message is in
// exactly one of due, dead and the leases, what is there is a message, and each lease has a deadline. It gives
// where each message is, by id. See redisstore/keys.go and lua/_lease.lua.
func audit(t *testing.T, rdb redis.UniversalClient, queue string) map[string]string {
	t.Helper()
	ctx := bounded(t)
	key := func(name string) string { return "later:{" + queue + "}:" + name }
	var msg, due, dead, expiry *redis.StringSliceCmd
	var leases *redis.MapStringStringCmd
	_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		msg = p.HKeys(ctx, key("msg"))
		due = p.ZRange(ctx, key("due"), 0, -1)
		dead = p.ZRange(ctx, key("dead"), 0, -1)
		expiry = p.ZRange(ctx, key("expiry"), 0, -1)
		leases = p.HGetAll(ctx, key("lease"))
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
