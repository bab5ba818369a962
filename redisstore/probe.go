package redisstore

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// probedTogether is the number of queues that one pipeline asks about, and probesAtOnce the number of pipelines at the
// same time: Redis works on one while the client reads and writes others.
const (
	probedTogether = 100
	probesAtOnce   = 4
)

// inPipelines asks about n queues in pipelines of several. ask adds the commands about the queue with a number to a
// pipeline, and result evaluates their replies. It returns the results of all in order. Errors begin with the task.
func inPipelines[A, T any](ctx context.Context, s *Store, n int, task string,
	ask func(ctx context.Context, p redis.Pipeliner, i int) A, result func(asked *A) T) ([]T, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	all := make([]T, n)
	errs := make([]error, (n+probedTogether-1)/probedTogether)
	var pipelines sync.WaitGroup
	slots := make(chan struct{}, probesAtOnce)
	for k := range errs {
		slots <- struct{}{}
		pipelines.Go(func() {
			defer func() { <-slots }()
			from, to := k*probedTogether, min(n, (k+1)*probedTogether)
			_, errs[k] = s.retry(ctx, func(ctx context.Context) (any, error) {
				asked := make([]A, to-from)
				_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
					for i := range asked {
						asked[i] = ask(ctx, p, from+i)
					}
					return nil
				})
				if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") { // of one queue, whose result says so
					return nil, err
				}
				for i := range asked {
					all[from+i] = result(&asked[i])
				}
				return nil, nil
			})
		})
	}
	pipelines.Wait()
	if err := cmp.Or(errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", task, err)
	}
	return all, nil
}

// Probe implements store.Prober. It asks for the format of each queue, too, because only a queue with a known one has
// its messages where this looks for them. The commands are a tenth of the work of the scripts that read messages, and
// travel together.
func (s *Store) Probe(ctx context.Context, queues, ids, groups []string) ([]bool, error) {
	return inPipelines(ctx, s, len(queues), "look for ids and groups",
		func(ctx context.Context, p redis.Pipeliner, i int) (r probed) {
			r.format = p.HMGet(ctx, s.keys.key(queues[i], "meta"), "format")
			for _, id := range ids {
				r.has = append(r.has, p.HExists(ctx, s.keys.key(queues[i], "messages"), id))
			}
			for _, group := range groups {
				number := groupNumber(group)
				r.counts = append(r.counts, p.ZCount(ctx, s.keys.key(queues[i], "groups"), number, number))
			}
			return r
		}, (*probed).may)
}

// probed has the replies of Redis about the ids and groups of a queue.
type probed struct {
	format *redis.SliceCmd
	has    []*redis.BoolCmd // for each id
	counts []*redis.IntCmd  // for each group
}

// may reports whether the queue may have one of them.
func (r *probed) may() bool {
	format, known := "", false
	if values, err := r.format.Result(); err == nil {
		format, known = values[0].(string)
	}
	may := !known || !knownFormat(format)
	for _, cmd := range r.has {
		may = may || cmd.Val() || cmd.Err() != nil
	}
	for _, cmd := range r.counts {
		may = may || cmd.Val() > 0 || cmd.Err() != nil
	}
	return may
}

// Earliest implements store.Prober. It knows queues without limits, because their messages are in order of due time. It
// looks into the buckets that a time divides, and at the start of the first one after them.
func (s *Store) Earliest(
	ctx context.Context, queues []string, from []time.Time, dead bool,
) ([]store.Earliest, error) {
	return inPipelines(ctx, s, len(queues), "look for the earliest messages",
		func(ctx context.Context, p redis.Pipeliner, i int) earliestOf {
			return s.readEarliest(ctx, p, queues[i], from[i], dead)
		}, (*earliestOf).result)
}

// earliestOf has the replies of Redis about the earliest messages of a queue.
type earliestOf struct {
	from   int64            // in ms; 0 for all times
	first  *redis.ZSliceCmd // the first message that is in no bucket
	meta   *redis.SliceCmd  // its format, and how many messages are in buckets
	around *redis.SliceCmd  // the buckets that begin at from at the latest, and end after it; nil without from
	starts *redis.ZSliceCmd // the start of the first bucket that begins after from; nil for dead messages
	last   *redis.ZSliceCmd // as first, after a bucket may have been emptied; nil for dead messages
}

// readEarliest adds the commands about a queue to a pipeline. Messages can be packed or promoted between two of them,
// so it reads the messages that are in no bucket before and after the buckets.
func (s *Store) readEarliest(
	ctx context.Context, p redis.Pipeliner, queue string, from time.Time, dead bool,
) (e earliestOf) {
	key := func(name string) string { return s.keys.key(queue, name) }
	set, all := "due", redis.ZRangeBy{Min: "-inf", Max: "+inf", Count: 1}
	if dead {
		set = "dead"
	}
	if !from.IsZero() {
		e.from = from.Add(time.Millisecond - 1).UnixMilli() // the store counts in whole milliseconds
		all.Min = strconv.FormatInt(e.from, 10)
	}
	e.first = p.ZRangeByScoreWithScores(ctx, key(set), &all)
	e.meta = p.HMGet(ctx, key("meta"), "format", "packed_messages")
	if dead {
		return e
	}
	after := all
	if e.from > 0 {
		after.Min = "(" + all.Min
		e.around = p.HMGet(ctx, key("buckets"), bucketsAt(e.from)...)
	}
	e.starts = p.ZRangeByScoreWithScores(ctx, key("bucket_starts"), &after)
	e.last = p.ZRangeByScoreWithScores(ctx, key(set), &all)
	return e
}

func (e *earliestOf) result() (r store.Earliest) {
	meta, err := e.meta.Result()
	if err != nil || !isPlain(meta[0]) {
		return r
	}
	r.Known = true
	note := func(ms int64) {
		if at := time.UnixMilli(ms); !r.Any || at.Before(r.Time) {
			r.Any, r.Time = true, at
		}
	}
	noteFirst := func(found *redis.ZSliceCmd) {
		r.Known = r.Known && found.Err() == nil
		for _, one := range found.Val() {
			note(int64(one.Score))
		}
	}
	if noteFirst(e.first); e.starts == nil {
		return r
	}
	noteFirst(e.last)
	if packed, _ := meta[1].(string); packed == "" || packed == "0" {
		return r
	}
	if noteFirst(e.starts); e.around == nil {
		return r
	}
	r.Known = r.Known && e.around.Err() == nil
	for class, bucket := range e.around.Val() {
		text, _ := bucket.(string)
		width := bucketWidth(class)
		start := e.from - e.from%width
		for offset := range offsets(text) {
			if start+offset >= e.from {
				note(start + offset)
			}
		}
	}
	return r
}

// CountDue implements store.Prober. It knows queues without limits. It reads the blocks and buckets that may have
// counts up to the two times, which are more than a histogram of a queue reads, but with commands in place of a script.
func (s *Store) CountDue(ctx context.Context, queues []string, from, to time.Time) ([]int64, error) {
	d := newDueCounter(store.BoundMillis([]time.Time{from, to}))
	return inPipelines(ctx, s, len(queues), "count the due messages of queues",
		func(ctx context.Context, p redis.Pipeliner, i int) dueReplies {
			key := func(name string) string { return s.keys.key(queues[i], name) }
			return dueReplies{meta: p.HMGet(ctx, key("meta"), "format", "packed_messages"),
				blocks: p.HMGet(ctx, key("bucket_counts"), d.blocks...), buckets: p.HMGet(ctx, key("buckets"), d.buckets...),
				due: p.ZCount(ctx, key("due"), strconv.FormatInt(d.from, 10), fmt.Sprintf("(%d", d.to))}
		}, d.count)
}

// dueCounter counts the messages between two times.
type dueCounter struct {
	from, to        int64 // in ms, to is exclusive
	blocks, buckets []string
}

func newDueCounter(bounds []int64) *dueCounter {
	d := &dueCounter{from: bounds[0], to: bounds[1]}
	for _, ms := range bounds {
		d.blocks = append(d.blocks, blocksAt(ms)...)
		d.buckets = append(d.buckets, bucketsAt(ms)...)
		for start := ms - ms%narrowestCell; start < ms; start++ {
			d.buckets = append(d.buckets, bucketsAt(start)[bucketClasses-narrowClasses:]...)
		}
	}
	d.blocks, d.buckets = sortedSet(d.blocks), sortedSet(d.buckets)
	return d
}

func sortedSet(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

// dueReplies has the replies of Redis about a queue.
type dueReplies struct {
	meta, blocks, buckets *redis.SliceCmd
	due                   *redis.IntCmd // messages that are in no bucket
}

// count returns the number of messages of a queue, or -1 if that is not known.
func (d *dueCounter) count(r *dueReplies) int64 {
	meta, err := r.meta.Result()
	if err != nil || r.due.Err() != nil || r.blocks.Err() != nil || r.buckets.Err() != nil || !isPlain(meta[0]) {
		return -1
	}
	n := r.due.Val()
	if packed, _ := meta[1].(string); packed == "" || packed == "0" {
		return n
	}
	p := emptyPackedCounts(widestBucket)
	add := func(names []string, texts []any) {
		for i, text := range texts {
			if text, ok := text.(string); ok {
				_ = p.add(names[i], text) // these names are valid
			}
		}
	}
	add(d.blocks, r.blocks.Val())
	add(d.buckets, r.buckets.Val())
	return n + max(0, p.before(d.to)-p.before(d.from))
}

// isPlain reports whether a queue has the format of a queue without limits.
func isPlain(format any) bool {
	return format == strconv.Itoa(layoutFormat) || format == strconv.Itoa(previousFormat)
}

// groupNumber returns the number of a group, as group_number of lua/_groups.lua does.
func groupNumber(name string) string {
	sum := sha1.Sum([]byte(name))
	return fmt.Sprint(binary.BigEndian.Uint64(sum[:8]) >> 16)
}
