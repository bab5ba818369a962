package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// DelayQueueConfig configures FromDelayQueue.
type DelayQueueConfig struct {
	FromConfig
	// Queue is the queue to send to. Default: the name of the source's queue.
	Queue string
	// Prefix is the argument of UseCustomPrefix. Default: dp.
	Prefix string
}

const (
	delayqueuePrefix = "dp"
	// delayqueueFailed is the last error of a message if delayqueue knows only that it failed.
	delayqueueFailed = "failed in delayqueue, which keeps no reason"
)

// FromDelayQueue copies the messages of a queue of github.com/hdt3213/delayqueue. Stop its consumers and producers
// first. Keys with and without a hash tag (UseHashTagKey, NewQueueOnCluster) are both found.
//
// Ids, payloads and due times are kept, and so are retries: a message that was never delivered has one attempt more
// than its retry count. A message that waits for a retry has one failed attempt, since the source does not know how
// many it had, and as many further ones as the source would make. The rest of a message's TTL becomes its expiry: it is
// not deleted then, but becomes a dead letter. A message that is out of retries and not yet deleted becomes a dead
// letter. Entries of messages that the source has deleted, because their TTL had passed, are counted as lost.
//
// Messages in progress belong to a consumer that runs, or that died without another one: FromDelayQueue returns
// ErrLeased for them, and copies them as failed once with Force.
//
// About repetitions and errors see FromZSet.
func FromDelayQueue(
	ctx context.Context, to *later.Client, rdb redis.UniversalClient, name string, cfg DelayQueueConfig,
) (FromResult, error) {
	if name == "" {
		return FromResult{}, store.Invalid("name of the source's queue is empty: give the one that NewQueue was given")
	}
	cfg.Queue, cfg.Prefix = cmp.Or(cfg.Queue, name), cmp.Or(cfg.Prefix, delayqueuePrefix)
	var sources []fromSource
	for _, tagged := range []bool{false, true} {
		d := newDelayqueue(rdb, cfg, name, tagged)
		found, err := d.exists(ctx)
		if err != nil {
			return FromResult{}, err
		}
		if found {
			sources = append(sources, d.source(cfg.Queue))
		}
	}
	if len(sources) == 0 {
		return FromResult{}, fmt.Errorf("queue %q of delayqueue, with keys that begin with %s:%s or {%s:%s}: %w", name,
			cfg.Prefix, name, cfg.Prefix, name, store.ErrNotFound)
	}
	return migrateFrom(ctx, to, sources, cfg.FromConfig)
}

// delayqueue is a queue of delayqueue.
type delayqueue struct {
	rdb      redis.UniversalClient
	keys     string // prefix of all keys but keys of messages
	messages string // prefix of the keys of messages
}

func newDelayqueue(rdb redis.UniversalClient, cfg DelayQueueConfig, name string, tagged bool) *delayqueue {
	keys := cfg.Prefix + ":" + name
	messages := delayqueuePrefix + ":" + name // v1 uses the custom prefix everywhere but here
	if tagged {
		keys, messages = "{"+keys+"}", "{"+messages+"}"
	}
	return &delayqueue{rdb, keys, messages + ":msg:"}
}

// The keys of the states, after the prefix.
const (
	delayqueuePending = ":pending"
	delayqueueReady   = ":ready"
	delayqueueRetry   = ":retry"
	delayqueueUnack   = ":unack"
	delayqueueGarbage = ":garbage"
	delayqueueCounts  = ":retry:cnt"
)

func (d *delayqueue) exists(ctx context.Context) (bool, error) {
	for _, state := range []string{
		delayqueuePending, delayqueueReady, delayqueueRetry, delayqueueUnack, delayqueueGarbage, delayqueueCounts,
	} {
		n, err := d.rdb.Exists(ctx, d.keys+state).Result()
		if err != nil || n > 0 {
			return n > 0, sourceError(d.keys+state, err)
		}
	}
	return false, nil
}

func (d *delayqueue) source(queue string) fromSource {
	part := func(state string, index fromIndex, set func(m *store.Info, entry redis.Z, left int)) fromPart {
		return fromPart{state: state, index: index,
			load: func(ctx context.Context, entries []redis.Z) ([]fromItem, error) {
				return d.load(ctx, entries, set)
			}}
	}
	failed := func(m *store.Info, _ redis.Z, left int) {
		m.Attempts, m.Delivered, m.LastError = 1, true, delayqueueFailed
		m.MaxAttempts = attemptsOf(left + 2) // the failed one, and the one that is to come
	}
	unack := fromIndex{d.rdb, d.keys + delayqueueUnack, asZSet}
	return fromSource{
		name:  d.keys,
		queue: queue,
		parts: []fromPart{
			part("pending", fromIndex{d.rdb, d.keys + delayqueuePending, asZSet}, func(m *store.Info, entry redis.Z, left int) {
				m.Due, _ = dueOf(entry.Score, time.Second)
				m.MaxAttempts = attemptsOf(left + 1)
			}),
			part("ready", fromIndex{d.rdb, d.keys + delayqueueReady, asList}, func(m *store.Info, _ redis.Z, left int) {
				m.MaxAttempts = attemptsOf(left + 1)
			}),
			part("retry", fromIndex{d.rdb, d.keys + delayqueueRetry, asList}, failed),
			part("unack", unack, func(m *store.Info, entry redis.Z, left int) {
				// The attempt in progress counts as failed. Its retry is counted when the source ends it.
				failed(m, entry, left-1)
				if left < 1 {
					m.MaxAttempts = 2 // it was not seen to fail, so it is delivered once more
				}
			}),
			part("garbage", fromIndex{d.rdb, d.keys + delayqueueGarbage, asSet}, func(m *store.Info, _ redis.Z, _ int) {
				m.Attempts, m.MaxAttempts, m.Delivered, m.LastError = 1, 1, true, delayqueueFailed
				m.State, m.DeadReason, m.DiedAt = store.StateDead, store.DeadFailed, m.Due
			}),
		},
		inUse: func(ctx context.Context) error {
			n, err := unack.count(ctx)
			if err == nil && n > 0 {
				err = inUse("%d messages of %q are in progress: stop its consumers, and let one finish the rest, "+
					"and migrate again", n, d.keys)
			}
			return err
		},
		remove: d.remove,
	}
}

// attemptsOf limits a number of attempts to the maximum of a store.
func attemptsOf(n int) int { return min(max(n, 1), store.MaxAttempts) }

// load reads the messages of ids. set sets the fields that depend on their state; left is the number of retries left.
func (d *delayqueue) load(
	ctx context.Context, entries []redis.Z, set func(m *store.Info, entry redis.Z, left int),
) ([]fromItem, error) {
	payloads := make([]*redis.StringCmd, len(entries))
	ttls := make([]*redis.DurationCmd, len(entries))
	retries := make([]*redis.StringCmd, len(entries))
	var now *redis.TimeCmd
	_, err := d.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		now = p.Time(ctx)
		for i, entry := range entries {
			id := memberOf(entry)
			payloads[i] = p.Get(ctx, d.messages+id)
			ttls[i] = p.PTTL(ctx, d.messages+id)
			retries[i] = p.HGet(ctx, d.keys+delayqueueCounts, id)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, sourceError(d.keys, err)
	}
	items := make([]fromItem, len(entries))
	for i, entry := range entries {
		items[i].member = memberOf(entry)
		payload, err := payloads[i].Bytes()
		if errors.Is(err, redis.Nil) {
			continue // deleted when its TTL had passed
		}
		if err != nil {
			return nil, sourceError(d.messages+items[i].member, err)
		}
		left, _ := strconv.Atoi(retries[i].Val()) // without a number there is no retry
		m := &store.Info{
			Message: store.Message{ID: items[i].member, Payload: payload},
			State:   store.StateScheduled,
			Due:     time.UnixMilli(now.Val().UnixMilli()),
		}
		if ttl := ttls[i].Val(); ttl > 0 {
			m.ExpireAt = time.UnixMilli(now.Val().Add(ttl).UnixMilli())
		}
		set(m, entry, left)
		items[i].info = m
	}
	return items, nil
}

// remove removes messages: first from their index, so that an interruption leaves keys that the source deletes by
// itself.
func (d *delayqueue) remove(ctx context.Context, part *fromPart, items []fromItem) (int64, error) {
	return removeEntries(ctx, d.rdb, part, items, func(p redis.Pipeliner, item fromItem) {
		p.HDel(ctx, d.keys+delayqueueCounts, item.member)
		p.Del(ctx, d.messages+item.member)
	})
}
