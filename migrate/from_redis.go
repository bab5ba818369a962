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
type fromIndex interface {
	count(ctx context.Context) (int64, error)
	// page returns up to n entries after the first skip, in order of due time.
	page(ctx context.Context, skip, n int64) ([]redis.Z, error)
	// remove removes a member in a pipeline.
	remove(ctx context.Context, p redis.Pipeliner, member string) *redis.IntCmd
}

// zsetIndex is a sorted set. Scores are times.
type zsetIndex struct {
	rdb redis.UniversalClient
	key string
}

func (x zsetIndex) count(ctx context.Context) (int64, error) {
	n, err := x.rdb.ZCard(ctx, x.key).Result()
	return n, sourceError(x.key, err)
}

func (x zsetIndex) page(ctx context.Context, skip, n int64) ([]redis.Z, error) {
	entries, err := x.rdb.ZRangeWithScores(ctx, x.key, skip, skip+n-1).Result()
	return entries, sourceError(x.key, err)
}

func (x zsetIndex) remove(ctx context.Context, p redis.Pipeliner, member string) *redis.IntCmd {
	return p.ZRem(ctx, x.key, member)
}

// listIndex is a list that producers push to the left of and consumers pop from the right of.
type listIndex struct {
	rdb redis.UniversalClient
	key string
}

func (x listIndex) count(ctx context.Context) (int64, error) {
	n, err := x.rdb.LLen(ctx, x.key).Result()
	return n, sourceError(x.key, err)
}

func (x listIndex) page(ctx context.Context, skip, n int64) ([]redis.Z, error) {
	members, err := x.rdb.LRange(ctx, x.key, -skip-n, -skip-1).Result()
	slices.Reverse(members)
	return entriesOf(members), sourceError(x.key, err)
}

func (x listIndex) remove(ctx context.Context, p redis.Pipeliner, member string) *redis.IntCmd {
	return p.LRem(ctx, x.key, -1, member) // from the right, where the page was
}

// setIndex is a set. It is read at once: the sets of sources are small.
type setIndex struct {
	rdb redis.UniversalClient
	key string
}

func (x setIndex) count(ctx context.Context) (int64, error) {
	n, err := x.rdb.SCard(ctx, x.key).Result()
	return n, sourceError(x.key, err)
}

func (x setIndex) page(ctx context.Context, skip, n int64) ([]redis.Z, error) {
	members, err := x.rdb.SMembers(ctx, x.key).Result()
	slices.Sort(members)
	members = members[min(skip, int64(len(members))):]
	return entriesOf(members[:min(n, int64(len(members)))]), sourceError(x.key, err)
}

func (x setIndex) remove(ctx context.Context, p redis.Pipeliner, member string) *redis.IntCmd {
	return p.SRem(ctx, x.key, member)
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

// removed counts the items that removals in a pipeline removed.
func removed(commands []*redis.IntCmd) (n int64) {
	for _, c := range commands {
		n += c.Val()
	}
	return n
}

// removeEntries removes items from their index, and calls also to remove the other keys of each.
func removeEntries(
	ctx context.Context, rdb redis.UniversalClient, part *fromPart, items []fromItem,
	also func(p redis.Pipeliner, item fromItem),
) (int64, error) {
	var commands []*redis.IntCmd
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, item := range items {
			commands = append(commands, part.index.remove(ctx, p, item.member))
			if also != nil {
				also(p, item)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		err = fmt.Errorf("source: remove the copied messages: %w: %w", store.ErrUnavailable, err)
	}
	return removed(commands), err
}
