//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
)

// addReshard adds the record of a change of the number of shards.
func (ck *checker) addReshard(x record) {
	if x.field(2) == outcomeOK {
		ck.changes++
	}
}

// checkFound checks that a get finds a message that is due long after the run from its send until a call that may
// remove it or make it due.
func (ck *checker) checkFound(m *message, violate violator) {
	for _, get := range m.misses {
		if !m.waitsDuring(get) {
			continue
		}
		violate("lost", "a get of %s did not find it", get.actor)
	}
}

// waitsDuring reports whether a message that is due long after the run was certainly there during a call.
func (m *message) waitsDuring(c call) bool {
	begins := func(other *call) bool { return other.at < c.ret }
	sent := slices.ContainsFunc(m.sends, func(s *send) bool {
		return s.has(flagFar) && s.acknowledged() && s.ret <= c.at
	})
	return sent && !slices.ContainsFunc(m.cancels, begins) &&
		!slices.ContainsFunc(m.reschedules, func(s *send) bool { return begins(&s.call) })
}

// auditShards checks the sub-queues of all queues: each has its share of the limits, each id is in the one where it
// belongs and in no other, no message is on its way, each message is in one location, and nothing of a former
// generation is left.
func (r *run) auditShards(ctx context.Context, rdb redis.UniversalClient) error {
	current := map[string]bool{} // prefixes of keys
	for _, queue := range r.queues {
		if err := shard.CheckShares(ctx, r.client.Store(), queue); err != nil {
			r.result.violate("limits", "-", "%v", err)
		}
		names, err := shard.Names(ctx, r.client.Store(), queue)
		if err != nil {
			return err
		}
		at := map[string]string{}
		for i, name := range names {
			prefix := subQueuePrefix(name)
			current[prefix] = true
			found, err := r.locations(ctx, rdb, name, prefix)
			if err != nil {
				return err
			}
			ids, keys, err := r.knownIn(ctx, name)
			if moved, ok := errors.AsType[*store.Moved](err); ok {
				sign, err := shard.Directory(ctx, r.client.Store(), queue)
				r.result.violate("location", "-", "sub-queue %s does not exist, its sign is %q: the directory says %s, %v",
					name, moved.Sign, sign, err)
				continue
			}
			if err != nil {
				return fmt.Errorf("read sub-queue %s: %w", name, err)
			}
			for _, key := range keys {
				if home := shard.Of(store.KeySlot(key), len(names)); len(names) > 1 && home != i {
					r.result.violate("location", "-", "%s, shard %d, knows key %q, which belongs in shard %d", name, i, key,
						home)
				}
			}
			for id := range found {
				ids[id] = true
			}
			for id := range ids {
				if other := at[id]; other != "" {
					r.result.violate("location", id, "is in %s and in %s", other, name)
				}
				at[id] = name
				if home := shard.Of(store.Slot(id), len(names)); len(names) > 1 && home != i {
					r.result.violate("location", id, "is in %s, shard %d; it belongs in shard %d", name, i, home)
				}
			}
		}
	}
	return r.checkFormer(ctx, rdb, current)
}

// knownIn returns the ids that a sub-queue knows: of its messages, within their dedup windows and of sends with a key.
// It also returns the keys of which it knows more than messages. It checks that nothing is on its way.
func (r *run) knownIn(ctx context.Context, name string) (known map[string]bool, keys []string, err error) {
	engine := r.client.Store().(interface{ Unwrap() store.Store }).Unwrap().(shard.Engine)
	if _, _, _, ok := store.CutSubQueue(name); ok {
		parcel, err := engine.Outbox(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		if parcel != nil {
			r.result.violate("outbox", "-", "%s has parcel %d to %s", name, parcel.Number, parcel.To)
		}
	}
	known = map[string]bool{}
	for cursor := ""; ; {
		page, err := engine.Scan(ctx, name, cursor)
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, page.Keys...)
		for _, id := range page.IDs {
			known[id] = true
		}
		for _, o := range page.Once {
			known[o.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			return known, keys, nil
		}
	}
}

// subQueuePrefix returns the prefix of the keys of a sub-queue, or of a queue without shards.
func subQueuePrefix(name string) string {
	queue, generation, salt, ok := store.CutSubQueue(name)
	tag := queue
	if ok && salt != "" {
		tag += "{" + salt
	}
	prefix := "later:{" + tag + "}:"
	if ok {
		prefix += generation + ":"
	}
	return prefix
}

// signKeys are what a name that has a sign may keep: the sign, its property and processes that have waited.
var signKeys = []string{"meta", "properties", "wake"}

// checkFormer checks that all keys belong to signs or to sub-queues that exist.
func (r *run) checkFormer(ctx context.Context, rdb redis.UniversalClient, current map[string]bool) error {
	scan := func(ctx context.Context, rdb redis.Cmdable) error {
		keys := rdb.Scan(ctx, 0, "later:{*", 1000).Iterator()
		for keys.Next(ctx) {
			key := keys.Val()
			cut := strings.LastIndexByte(key, ':') + 1
			of := slices.ContainsFunc(r.queues, func(queue string) bool {
				return strings.HasPrefix(key, "later:{"+queue+"}") || strings.HasPrefix(key, "later:{"+queue+"{")
			})
			if !of || current[key[:cut]] {
				continue
			}
			if key[cut:] == "meta" && rdb.HGet(ctx, key, "format").Val() != "sign" ||
				!slices.Contains(signKeys, key[cut:]) {
				r.result.violate("location", "-", "key %s is left of a sub-queue that has another name", key)
			}
		}
		return keys.Err()
	}
	if c, ok := rdb.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error { return scan(ctx, rdb) })
	}
	if err := scan(ctx, rdb); err != nil {
		return fmt.Errorf("list keys: %w", err)
	}
	return nil
}

// sentOnce reports whether the message has a store.Once.
func (m *message) sentOnce() bool { return len(m.sends) > 0 && m.sends[0].has(flagOnce) }
