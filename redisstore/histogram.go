package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// maxHistogramParts is the largest number of parts that a call is asked for. Most calls count fewer.
const maxHistogramParts = 250

// Histogram implements store.Store. It makes calls of about a millisecond. Each counts some of the parts, so it is
// exact only if no message moves in between.
func (s *Store) Histogram(ctx context.Context, queue string, times []time.Time) ([]int64, error) {
	bounds := store.BoundMillis(times)
	counts := make([]int64, 0, len(bounds)-1)
	for len(counts) < len(bounds)-1 {
		left := bounds[len(counts):min(len(counts)+maxHistogramParts+1, len(bounds))]
		args := make([]any, len(left))
		for i, b := range left {
			args[i] = b
		}
		reply, err := s.query(ctx, "histogram", queue, args...)
		if err != nil {
			return nil, err
		}
		packed, err := newPackedCounts(reply.([]any)[1].([]any))
		if err != nil {
			return nil, fmt.Errorf("queue %q: %w", queue, err)
		}
		before := packed.before(left[0])
		for i, due := range reply.([]any)[0].([]any) {
			next := packed.before(left[i+1])
			counts = append(counts, due.(int64)+max(0, next-before))
			before = next
		}
	}
	return counts, nil
}
