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

// inPipelines calls f for parts of n queues, each with the numbers of its queues from one to another, exclusive. It
// returns the results of all in order.
func inPipelines[T any](
	ctx context.Context, s *Store, n int, f func(ctx context.Context, from, to int) ([]T, error),
) ([]T, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	all := make([]T, n)
	errs := make([]error, (n+probedTogether-1)/probedTogether)
	var pipelines sync.WaitGroup
	slots := make(chan struct{}, probesAtOnce)
	for i := range errs {
		slots <- struct{}{}
		pipelines.Go(func() {
			defer func() { <-slots }()
			from, to := i*probedTogether, min(n, (i+1)*probedTogether)
			some, err := s.retry(ctx, func(ctx context.Context) (any, error) { return f(ctx, from, to) })
			if errs[i] = err; err == nil {
				copy(all[from:], some.([]T))
			}
		})
	}
	pipelines.Wait()
	return all, cmp.Or(errs...)
}

// Probe implements store.Prober. It asks for the format of each queue, too, because only a queue with a known one has
// its messages where this looks for them. The commands are a tenth of the work of the scripts that read messages, and
// travel together.
func (s *Store) Probe(ctx context.Context, queues, ids, groups []string) ([]bool, error) {
	may, err := inPipelines(ctx, s, len(queues), func(ctx context.Context, from, to int) ([]bool, error) {
		return s.probe(ctx, queues[from:to], ids, groups)
	})
	if err != nil {
		return nil, fmt.Errorf("look for ids and groups: %w", err)
	}
	return may, nil
}

func (s *Store) probe(ctx context.Context, queues, ids, groups []string) ([]bool, error) {
	formats := make([]*redis.SliceCmd, len(queues))
	has := make([][]*redis.BoolCmd, len(queues))
	counts := make([][]*redis.IntCmd, len(queues))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, queue := range queues {
			formats[i] = p.HMGet(ctx, s.keys.key(queue, "meta"), "format")
			for _, id := range ids {
				has[i] = append(has[i], p.HExists(ctx, s.keys.key(queue, "messages"), id))
			}
			for _, group := range groups {
				number := groupNumber(group)
				counts[i] = append(counts[i], p.ZCount(ctx, s.keys.key(queue, "groups"), number, number))
			}
		}
		return nil
	})
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, err
	}
	may := make([]bool, len(queues))
	for i := range queues {
		format, known := "", false
		if values, err := formats[i].Result(); err == nil {
			format, known = values[0].(string)
		}
		may[i] = !known || !knownFormat(format)
		for _, cmd := range has[i] {
			may[i] = may[i] || cmd.Val() || cmd.Err() != nil
		}
		for _, cmd := range counts[i] {
			may[i] = may[i] || cmd.Val() > 0 || cmd.Err() != nil
		}
	}
	return may, nil
}

// Earliest implements store.Prober. It knows queues without limits, because their messages are in order of due time. It
// looks into the buckets that a time divides, and at the start of the first one after them.
func (s *Store) Earliest(
	ctx context.Context, queues []string, from []time.Time, dead bool,
) ([]store.Earliest, error) {
	all, err := inPipelines(ctx, s, len(queues), func(ctx context.Context, begin, end int) ([]store.Earliest, error) {
		return s.earliest(ctx, queues[begin:end], from[begin:end], dead)
	})
	if err != nil {
		return nil, fmt.Errorf("look for the earliest messages: %w", err)
	}
	return all, nil
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

func (s *Store) earliest(ctx context.Context, queues []string, from []time.Time, dead bool) ([]store.Earliest, error) {
	read := make([]earliestOf, len(queues))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, queue := range queues {
			read[i] = s.readEarliest(ctx, p, queue, from[i], dead)
		}
		return nil
	})
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, err
	}
	found := make([]store.Earliest, len(queues))
	for i := range read {
		found[i] = read[i].result()
	}
	return found, nil
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
	counts, err := inPipelines(ctx, s, len(queues), func(ctx context.Context, begin, end int) ([]int64, error) {
		return s.countDue(ctx, queues[begin:end], d)
	})
	if err != nil {
		return nil, fmt.Errorf("count the due messages of queues: %w", err)
	}
	return counts, nil
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

func (s *Store) countDue(ctx context.Context, queues []string, d *dueCounter) ([]int64, error) {
	read := make([]dueReplies, len(queues))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, queue := range queues {
			key := func(name string) string { return s.keys.key(queue, name) }
			read[i] = dueReplies{meta: p.HMGet(ctx, key("meta"), "format", "packed_messages"),
				blocks: p.HMGet(ctx, key("bucket_counts"), d.blocks...), buckets: p.HMGet(ctx, key("buckets"), d.buckets...),
				due: p.ZCount(ctx, key("due"), strconv.FormatInt(d.from, 10), fmt.Sprintf("(%d", d.to))}
		}
		return nil
	})
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, err
	}
	counts := make([]int64, len(queues))
	for i := range read {
		counts[i] = d.count(&read[i])
	}
	return counts, nil
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
