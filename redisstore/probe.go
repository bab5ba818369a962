package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// probedTogether is the number of queues that one request asks about.
const probedTogether = 250

// Probe implements store.Prober. It asks for the format of each queue, too, because only a queue with a known one has
// its messages where this looks for them. The commands are a tenth of the work of the scripts that read messages, and
// travel together.
func (s *Store) Probe(ctx context.Context, queues, ids, groups []string) ([]bool, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	may := make([]bool, 0, len(queues))
	for len(queues) > 0 {
		n := min(probedTogether, len(queues))
		some, err := s.retry(ctx, func(ctx context.Context) (any, error) {
			return s.probe(ctx, queues[:n], ids, groups)
		})
		if err != nil {
			return nil, fmt.Errorf("look for ids and groups: %w", err)
		}
		may, queues = append(may, some.([]bool)...), queues[n:]
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
// does not look into a bucket that begins before from.
func (s *Store) Earliest(ctx context.Context, queues []string, dead bool, from time.Time) ([]store.Earliest, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if up := from.Truncate(time.Millisecond); up.Before(from) { // the store counts in whole milliseconds
		from = up.Add(time.Millisecond)
	}
	all := make([]store.Earliest, 0, len(queues))
	for part := range slices.Chunk(queues, probedTogether) {
		some, err := s.retry(ctx, func(ctx context.Context) (any, error) { return s.earliest(ctx, part, dead, from) })
		if err != nil {
			return nil, fmt.Errorf("look for the earliest messages: %w", err)
		}
		all = append(all, some.([]store.Earliest)...)
	}
	return all, nil
}

// earliestOf has the replies of Redis about the earliest messages of a queue.
type earliestOf struct {
	meta           *redis.SliceCmd  // its format, and how many messages are in buckets
	first, buckets *redis.ZSliceCmd // the first message that is in no bucket, and the start of the first bucket
}

func (s *Store) earliest(ctx context.Context, queues []string, dead bool, from time.Time) ([]store.Earliest, error) {
	set, least := "due", "-inf"
	if dead {
		set = "dead"
	}
	if !from.IsZero() {
		least = strconv.FormatInt(from.UnixMilli(), 10)
	}
	read := make([]earliestOf, len(queues))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, queue := range queues {
			key := func(name string) string { return s.keys.key(queue, name) }
			read[i] = earliestOf{meta: p.HMGet(ctx, key("meta"), "format", "packed_messages"),
				first: p.ZRangeByScoreWithScores(ctx, key(set), &redis.ZRangeBy{Min: least, Max: "+inf", Count: 1})}
			if !dead {
				read[i].buckets = p.ZRangeWithScores(ctx, key("bucket_starts"), 0, 0)
			}
		}
		return nil
	})
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, err
	}
	found := make([]store.Earliest, len(queues))
	for i := range read {
		found[i] = read[i].result(from)
	}
	return found, nil
}

func (e *earliestOf) result(from time.Time) (r store.Earliest) {
	meta, err := e.meta.Result()
	if err != nil || e.first.Err() != nil || !isPlain(meta[0]) {
		return r
	}
	r.Known = true
	note := func(at time.Time) {
		if !r.Any || at.Before(r.Time) {
			r.Any, r.Time = true, at
		}
	}
	for _, one := range e.first.Val() {
		note(time.UnixMilli(int64(one.Score)))
	}
	if packed, _ := meta[1].(string); e.buckets == nil || packed == "" || packed == "0" {
		return r
	}
	r.Known = e.buckets.Err() == nil
	for _, one := range e.buckets.Val() {
		if start := time.UnixMilli(int64(one.Score)); start.After(from) {
			note(start)
		} else {
			note(from)
		}
	}
	return r
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
