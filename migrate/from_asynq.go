package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// AsynqConfig configures FromAsynq.
type AsynqConfig struct {
	FromConfig
	// Queues are the queues of asynq. Default: all.
	Queues []string
	// Queue is the queue to send to; Queues must then name one. Default: each queue keeps its name.
	Queue string
}

// FromAsynq copies the pending, scheduled, retry and archived tasks of github.com/hibiken/asynq. Stop its servers,
// schedulers and clients first.
//
// A task becomes a message with its payload and headers, its type in the header "kind", and its id, due time, retries,
// number of failures and last error. An archived task becomes a dead letter. A timeout of up to 24 hours becomes the
// message's; a deadline becomes its expiry: then a message that was never delivered is a dead letter.
//
// A task that holds a uniqueness lock has the lock's name as its id instead, which is TYPE:MD5 with the MD5 of the
// payload in hexadecimal digits, and its own in the header "asynq-id". A program that sends with such ids has the same
// uniqueness. The lock's TTL is not kept: an id is free when its message is done. An id that a store does not accept is
// replaced by its hash.
//
// Completed tasks are left in the source. So are active ones, which only Force passes over: without it they are
// ErrLeased, as are servers and schedulers that are alive. Tasks that wait in groups for their aggregation, which Later
// does not have, are ErrUnsupported, and are left in the source with Force.
//
// About repetitions and other errors see FromZSet. ErrNotFound is for a queue that asynq does not have.
func FromAsynq(
	ctx context.Context, to *later.Client, rdb redis.UniversalClient, cfg AsynqConfig,
) (FromResult, error) {
	if cfg.Queue != "" && len(cfg.Queues) != 1 {
		return FromResult{}, store.Invalid("a target queue is given for %d queues of asynq: give one of "+
			"them, or leave it out", len(cfg.Queues))
	}
	all, err := rdb.SMembers(ctx, asynqQueues).Result()
	if err != nil {
		return FromResult{}, sourceError(asynqQueues, err)
	}
	names := slices.Sorted(slices.Values(all))
	if len(cfg.Queues) > 0 {
		names = slices.Compact(slices.Sorted(slices.Values(cfg.Queues)))
	}
	if len(names) == 0 {
		return FromResult{}, fmt.Errorf("asynq has no queues in this database: %w", store.ErrNotFound)
	}
	sources := make([]fromSource, len(names))
	for i, name := range names {
		if !slices.Contains(all, name) {
			return FromResult{}, fmt.Errorf("asynq has no queue %q; it has %q: %w", name, all, store.ErrNotFound)
		}
		q := &asynqQueue{rdb: rdb, name: name, keys: asynqKeys(name)}
		sources[i] = q.source()
		if cfg.Queue != "" {
			sources[i].queue = cfg.Queue
		}
	}
	return migrateFrom(ctx, to, sources, cfg.FromConfig)
}

// The keys of asynq that are not of one queue.
const (
	asynqQueues     = "asynq:queues"
	asynqServers    = "asynq:servers"
	asynqSchedulers = "asynq:schedulers"
)

// asynqKeys returns the prefix of the keys of a queue.
func asynqKeys(queue string) string { return "asynq:{" + queue + "}:" }

// asynqQueue is a queue of asynq.
type asynqQueue struct {
	rdb  redis.UniversalClient
	name string
	keys string // prefix
}

func (q *asynqQueue) source() fromSource {
	part := func(state string, index fromIndex, set func(t *asynqTask, m *store.Info, at time.Time)) fromPart {
		return fromPart{state: state, index: index,
			load: func(ctx context.Context, entries []redis.Z) ([]fromItem, error) {
				return q.load(ctx, entries, set)
			}}
	}
	due := func(_ *asynqTask, m *store.Info, at time.Time) { m.Due = at }
	return fromSource{
		name:  q.name,
		queue: q.name,
		parts: []fromPart{
			part("pending", fromIndex{q.rdb, q.keys + "pending", asList}, due),
			part("scheduled", fromIndex{q.rdb, q.keys + "scheduled", asZSet}, due),
			part("retry", fromIndex{q.rdb, q.keys + "retry", asZSet}, due),
			part("archived", fromIndex{q.rdb, q.keys + "archived", asZSet}, archived),
		},
		left: []fromLeft{
			{"active", fromIndex{q.rdb, q.keys + "active", asList}.count},
			{"aggregating", q.aggregating},
			{"completed", fromIndex{q.rdb, q.keys + "completed", asZSet}.count},
		},
		inUse:  q.inUse,
		remove: q.remove,
	}
}

// archived makes a message a dead letter that died at a time.
func archived(t *asynqTask, m *store.Info, at time.Time) {
	m.State, m.DeadReason, m.Due, m.DiedAt = store.StateDead, store.DeadBuried, at, at
	if t.lastFailedAt > 0 && t.lastFailedAt == at.Unix() { // by its last failure, which asynq does not count
		m.DeadReason = store.DeadFailed
		m.Attempts = min(m.Attempts+1, store.MaxAttempts)
		m.Delivered = true
	}
	m.LastError = cmp.Or(m.LastError, "archived in asynq")
}

// aggregating counts the tasks that wait in groups.
func (q *asynqQueue) aggregating(ctx context.Context) (n int64, err error) {
	groups, err := q.rdb.SMembers(ctx, q.keys+"groups").Result()
	if err != nil {
		return 0, sourceError(q.keys+"groups", err)
	}
	keys := make([]string, 0, len(groups))
	for _, group := range groups {
		keys = append(keys, q.keys+"g:"+group)
	}
	sets, err := q.rdb.ZRange(ctx, q.keys+"aggregation_sets", 0, -1).Result()
	if err != nil {
		return 0, sourceError(q.keys+"aggregation_sets", err)
	}
	for _, key := range append(keys, sets...) {
		more, err := fromIndex{q.rdb, key, asZSet}.count(ctx)
		if err != nil {
			return 0, err
		}
		n += more
	}
	return n, nil
}

// inUse returns an error if a server or a scheduler is alive, if tasks are active, or if some wait in groups.
func (q *asynqQueue) inUse(ctx context.Context) error {
	now, err := q.rdb.Time(ctx).Result()
	if err != nil {
		return sourceError(asynqServers, err)
	}
	alive := &redis.ZRangeBy{Min: strconv.FormatInt(now.Unix(), 10), Max: "+inf"}
	servers, err := q.rdb.ZRangeByScore(ctx, asynqServers, alive).Result()
	if err != nil {
		return sourceError(asynqServers, err)
	}
	for _, key := range servers {
		info, err := q.rdb.Get(ctx, key).Bytes()
		if errors.Is(err, redis.Nil) {
			continue // it has ended
		}
		if err != nil {
			return sourceError(key, err)
		}
		if slices.Contains(asynqServerQueues(info), q.name) {
			return inUse("the asynq server %s handles queue %q: stop it and migrate again", asynqProcess(key), q.name)
		}
	}
	schedulers, err := q.rdb.ZRangeByScore(ctx, asynqSchedulers, alive).Result()
	if err != nil {
		return sourceError(asynqSchedulers, err)
	}
	if len(schedulers) > 0 {
		return inUse("the asynq scheduler %s enqueues tasks: stop it and migrate again", asynqProcess(schedulers[0]))
	}
	active, err := fromIndex{q.rdb, q.keys + "active", asList}.count(ctx)
	if err != nil {
		return err
	}
	if active > 0 {
		return inUse("queue %q has %d active tasks: wait until its servers have finished them, or have a "+
			"server recover the tasks of a server that died, and migrate again", q.name, active)
	}
	waiting, err := q.aggregating(ctx)
	if err == nil && waiting > 0 {
		err = fmt.Errorf("queue %q has %d tasks that wait in groups for their aggregation, which Later does not "+
			"have: let asynq handle them first; or force it, which leaves them in the source: %w", q.name, waiting,
			store.ErrUnsupported)
	}
	return err
}

// asynqProcess returns the host, process and id of a server or scheduler, by its key.
func asynqProcess(key string) string {
	_, process, _ := strings.Cut(key, "{")
	return strings.TrimSuffix(process, "}")
}

// asynqServerQueues returns the queues of a server, from the ServerInfo of asynq.proto that it stores.
func asynqServerQueues(info []byte) (queues []string) {
	eachField(info, func(number protowire.Number, _ uint64, entry []byte) error {
		if number != 5 {
			return nil
		}
		return eachField(entry, func(number protowire.Number, _ uint64, text []byte) error {
			if number == 1 {
				queues = append(queues, string(text))
			}
			return nil
		})
	})
	return queues
}

// load reads the tasks of ids. set sets the fields that depend on their state; at is the score of the entry, or when
// the task became pending.
func (q *asynqQueue) load(
	ctx context.Context, entries []redis.Z, set func(t *asynqTask, m *store.Info, at time.Time),
) ([]fromItem, error) {
	tasks := make([]*redis.SliceCmd, len(entries))
	now, err := q.rdb.Time(ctx).Result()
	if err == nil {
		_, err = q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, entry := range entries {
				tasks[i] = p.HMGet(ctx, q.keys+"t:"+memberOf(entry), "msg", "pending_since", "unique_key")
			}
			return nil
		})
	}
	if err != nil {
		return nil, sourceError(q.keys+"t:", err)
	}
	locks, err := q.locks(ctx, tasks)
	if err != nil {
		return nil, err
	}
	items := make([]fromItem, len(entries))
	for i, entry := range entries {
		items[i].member = memberOf(entry)
		fields := tasks[i].Val()
		data, ok := fields[0].(string)
		if !ok {
			continue
		}
		t, err := decodeAsynqTask([]byte(data))
		if err != nil {
			items[i].err = store.Invalid("%v", err)
			continue
		}
		t.queue = cmp.Or(t.queue, q.name)
		at := time.Unix(int64(entry.Score), 0)
		if entry.Score == 0 {
			at = now
			if ns, err := strconv.ParseInt(fmt.Sprint(fields[1]), 10, 64); err == nil {
				at = time.Unix(0, ns)
			}
		}
		items[i].info, items[i].aliases = t.info(locks[i])
		set(t, items[i].info, time.UnixMilli(at.UnixMilli()))
	}
	return items, nil
}

// locks reports which of the tasks hold their uniqueness lock.
func (q *asynqQueue) locks(ctx context.Context, tasks []*redis.SliceCmd) ([]bool, error) {
	held := make([]bool, len(tasks))
	holders := make([]*redis.StringCmd, len(tasks))
	_, err := q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, task := range tasks {
			if key, ok := task.Val()[2].(string); ok && strings.HasPrefix(key, q.keys) {
				holders[i] = p.Get(ctx, key)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, sourceError(q.keys+"unique:", err)
	}
	for i, holder := range holders {
		if holder == nil {
			continue
		}
		id := strings.TrimPrefix(tasks[i].Args()[1].(string), q.keys+"t:")
		held[i] = holder.Val() == id
	}
	return held, nil
}

// unlock removes a uniqueness lock that a task still holds.
var unlock = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	return redis.call('DEL', KEYS[1])
end
return 0`)

// remove removes tasks and the locks that they hold.
func (q *asynqQueue) remove(ctx context.Context, part *fromPart, items []fromItem) (int64, error) {
	for _, item := range items {
		if item.info == nil || len(item.aliases) == 0 { // it is not unique
			continue
		}
		key, err := q.rdb.HGet(ctx, q.keys+"t:"+item.member, "unique_key").Result()
		if err == nil && strings.HasPrefix(key, q.keys) {
			err = unlock.Run(ctx, q.rdb, []string{key}, item.member).Err()
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, sourceError(q.keys+"unique:", err)
		}
	}
	return removeEntries(ctx, q.rdb, part, items, func(p redis.Pipeliner, item fromItem) {
		p.Del(ctx, q.keys+"t:"+item.member)
	})
}
