package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"fmt"

	"github.com/redis/go-redis/v9"
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

// groupNumber returns the number of a group, as group_number of lua/_groups.lua does.
func groupNumber(name string) string {
	sum := sha1.Sum([]byte(name))
	return fmt.Sprint(binary.BigEndian.Uint64(sum[:8]) >> 16)
}
