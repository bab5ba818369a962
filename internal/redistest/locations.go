package redistest

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Locations reads a queue's keys directly, in one transaction, and returns the location of each message by id: due,
// bucket, dead or lease. It calls mismatch for each inconsistency, with the message's id or "-" if it concerns no
// message. The keys are consistent when
//
//   - every message is in exactly one of the due index, the buckets, the dead index and the leases,
//   - every id in these has a message,
//   - every lease has a deadline and every deadline a lease, and
//   - every bucket has a start and every start a bucket.
//
// See redisstore/keys.go, lua/_lease.lua and lua/_buckets.lua.
func Locations(
	ctx context.Context, rdb redis.UniversalClient, queue string, mismatch func(id, text string),
) (map[string]string, error) {
	return LocationsAt(ctx, rdb, Prefix(queue), mismatch)
}

// Prefix returns the prefix of the keys of a queue.
func Prefix(queue string) string { return "later:{" + queue + "}:" }

// LocationsAt is Locations for the queue whose keys have a prefix.
func LocationsAt(
	ctx context.Context, rdb redis.UniversalClient, prefix string, mismatch func(id, text string),
) (map[string]string, error) {
	key := func(name string) string { return prefix + name }
	var messages, due, dead, deadlines, starts *redis.StringSliceCmd
	var leases, buckets *redis.MapStringStringCmd
	_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		messages = p.HKeys(ctx, key("messages"))
		due = p.ZRange(ctx, key("due"), 0, -1)
		dead = p.ZRange(ctx, key("dead"), 0, -1)
		deadlines = p.ZRange(ctx, key("lease_deadlines"), 0, -1)
		leases = p.HGetAll(ctx, key("leases"))
		buckets = p.HGetAll(ctx, key("buckets"))
		starts = p.ZRange(ctx, key("bucket_starts"), 0, -1)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the keys of %s: %w", prefix, err)
	}

	locations := map[string]string{}
	put := func(id, location string) {
		if before := locations[id]; before != "" {
			mismatch(id, fmt.Sprintf("is in both %s and %s", before, location))
		}
		locations[id] = location
	}
	for _, id := range due.Val() {
		put(id, "due")
	}
	for _, id := range dead.Val() {
		put(id, "dead")
	}
	for _, text := range buckets.Val() {
		for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
			_, id, _ := strings.Cut(line, "\t")
			put(id, "bucket")
		}
	}
	for _, text := range leases.Val() {
		for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
			if id, _, _ := strings.Cut(line, "\t"); id != "" { // otherwise it is a due time
				put(id, "lease")
			}
		}
	}
	pair(buckets.Val(), "bucket", starts.Val(), "start", mismatch)
	pair(leases.Val(), "lease", deadlines.Val(), "deadline", mismatch)

	live := map[string]bool{}
	for _, id := range messages.Val() {
		if locations[id] == "" {
			mismatch(id, "has no location")
		}
		live[id] = true
	}
	for id, location := range locations {
		if !live[id] {
			mismatch(id, "is in "+location+" but has no message")
		}
	}
	return locations, nil
}

// pair checks that each name in ones is also in others, and vice versa.
func pair(ones map[string]string, one string, others []string, other string, mismatch func(id, text string)) {
	left := map[string]bool{}
	for _, name := range others {
		left[name] = true
	}
	for name := range ones {
		if !left[name] {
			mismatch("-", fmt.Sprintf("%s %s has no %s", one, name, other))
		}
		delete(left, name)
	}
	for name := range left {
		mismatch("-", fmt.Sprintf("%s %s has no %s", other, name, one))
	}
}
