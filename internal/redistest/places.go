package redistest

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Places reads a queue's keys past Later, in one transaction, and gives where each message is, by id: due, far, dead or lease.
// They agree when every message is in exactly one of due, the buckets of what is due far ahead, dead and the leases, what is
// there is a message, each lease has a deadline and each bucket a begin, and the other way round. What does not is told to
// wrong, with the message's id, or "-" where it is of none. See redisstore/keys.go, lua/_lease.lua and lua/_far.lua.
func Places(ctx context.Context, rdb redis.UniversalClient, queue string, wrong func(id, text string)) (map[string]string, error) {
	key := func(name string) string { return "later:{" + queue + "}:" + name }
	var msg, due, dead, expiry, begins *redis.StringSliceCmd
	var leases, far *redis.MapStringStringCmd
	_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		msg = p.HKeys(ctx, key("msg"))
		due = p.ZRange(ctx, key("due"), 0, -1)
		dead = p.ZRange(ctx, key("dead"), 0, -1)
		expiry = p.ZRange(ctx, key("expiry"), 0, -1)
		leases = p.HGetAll(ctx, key("lease"))
		far = p.HGetAll(ctx, key("far"))
		begins = p.ZRange(ctx, key("fars"), 0, -1)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the keys of %s: %w", queue, err)
	}

	places := map[string]string{}
	put := func(id, place string) {
		if before := places[id]; before != "" {
			wrong(id, fmt.Sprintf("is in %s and in %s", before, place))
		}
		places[id] = place
	}
	for _, id := range due.Val() {
		put(id, "due")
	}
	for _, id := range dead.Val() {
		put(id, "dead")
	}
	for _, text := range far.Val() {
		for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
			_, id, _ := strings.Cut(line, "\t")
			put(id, "far")
		}
	}
	for _, text := range leases.Val() {
		for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
			if id, _, _ := strings.Cut(line, "\t"); id != "" { // else it is a due time
				put(id, "lease")
			}
		}
	}
	pair(far.Val(), "bucket", begins.Val(), "begin", wrong)
	pair(leases.Val(), "lease", expiry.Val(), "deadline", wrong)

	living := map[string]bool{}
	for _, id := range msg.Val() {
		if places[id] == "" {
			wrong(id, "is in no state")
		}
		living[id] = true
	}
	for id, place := range places {
		if !living[id] {
			wrong(id, "is in "+place+" and has no message")
		}
	}
	return places, nil
}

// pair checks that each name is among both.
func pair(ones map[string]string, one string, others []string, other string, wrong func(id, text string)) {
	left := map[string]bool{}
	for _, name := range others {
		left[name] = true
	}
	for name := range ones {
		if !left[name] {
			wrong("-", fmt.Sprintf("%s %s has no %s", one, name, other))
		}
		delete(left, name)
	}
	for name := range left {
		wrong("-", fmt.Sprintf("%s %s is of no %s", other, name, one))
	}
}
