package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// fromIndex is a key of a source that lists messages.
type fromIndex struct {
	rdb redis.UniversalClient
	key string
	*indexKind
}

// indexKind is a type of a key, with its commands. The lists are in order of due time.
type indexKind struct {
	size   func(rdb redis.Cmdable, ctx context.Context, key string) *redis.IntCmd
	list   func(ctx context.Context, rdb redis.Cmdable, key string, skip, n int64) ([]redis.Z, error)
	remove func(p redis.Pipeliner, ctx context.Context, key string, members ...any) *redis.IntCmd
}

var (
	// asZSet is a sorted set. Scores are times.
	asZSet = &indexKind{redis.Cmdable.ZCard,
		func(ctx context.Context, rdb redis.Cmdable, key string, skip, n int64) ([]redis.Z, error) {
			return rdb.ZRangeWithScores(ctx, key, skip, skip+n-1).Result()
		}, redis.Pipeliner.ZRem}
	// asList is a list that producers push to the left of and consumers pop from the right of.
	asList = &indexKind{redis.Cmdable.LLen,
		func(ctx context.Context, rdb redis.Cmdable, key string, skip, n int64) ([]redis.Z, error) {
			members, err := rdb.LRange(ctx, key, -skip-n, -skip-1).Result()
			slices.Reverse(members)
			return entriesOf(members), err
		},
		func(p redis.Pipeliner, ctx context.Context, key string, members ...any) *redis.IntCmd {
			return p.LRem(ctx, key, -1, members[0]) // from the right, where the page was
		}}
	// asSet is a set. It is read at once: the sets of sources are small.
	asSet = &indexKind{redis.Cmdable.SCard,
		func(ctx context.Context, rdb redis.Cmdable, key string, skip, n int64) ([]redis.Z, error) {
			members, err := rdb.SMembers(ctx, key).Result()
			slices.Sort(members)
			members = members[min(skip, int64(len(members))):]
			return entriesOf(members[:min(n, int64(len(members)))]), err
		}, redis.Pipeliner.SRem}
)

func (x fromIndex) count(ctx context.Context) (int64, error) {
	n, err := x.size(x.rdb, ctx, x.key).Result()
	return n, sourceError(x.key, err)
}

// page returns up to n entries after the first skip.
func (x fromIndex) page(ctx context.Context, skip, n int64) ([]redis.Z, error) {
	entries, err := x.list(ctx, x.rdb, x.key, skip, n)
	return entries, sourceError(x.key, err)
}

// entriesOf returns members without scores as entries.
func entriesOf(members []string) []redis.Z {
	entries := make([]redis.Z, len(members))
	for i, member := range members {
		entries[i].Member = member
	}
	return entries
}

// memberOf returns the member of an entry.
func memberOf(entry redis.Z) string {
	member, _ := entry.Member.(string)
	return member
}

// sourceError adds to an error of Redis which key it is about, and its kind.
func sourceError(key string, err error) error {
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		return nil
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return store.Invalid("key %q of the source has another type than expected: is the name right, and is it "+
			"a queue of this kind?", key)
	}
	return fmt.Errorf("source: key %q: %w: %w", key, store.ErrUnavailable, err)
}

// removeEntries removes items from their index, and calls also to remove the other keys of each.
func removeEntries(
	ctx context.Context, rdb redis.UniversalClient, part *fromPart, items []fromItem,
	also func(p redis.Pipeliner, item fromItem),
) (removed int64, err error) {
	var removals []*redis.IntCmd
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, item := range items {
			removals = append(removals, part.index.remove(p, ctx, part.index.key, item.member))
			if also != nil {
				also(p, item)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		err = fmt.Errorf("source: remove the copied messages: %w: %w", store.ErrUnavailable, err)
	}
	for _, r := range removals {
		removed += r.Val()
	}
	return removed, err
}
