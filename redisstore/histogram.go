package redisstore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// maxHistogramParts is the largest number of parts that a call is asked for. Most calls count fewer.
const maxHistogramParts = 100

// Histogram implements store.Store. It makes calls of about a millisecond, each of which counts some of the parts, so
// it is exact only if no message moves meanwhile.
func (s *Store) Histogram(ctx context.Context, queue string, from, to time.Time, buckets int) ([]int64, error) {
	bounds := store.HistogramBounds(from, to, buckets)
	counts := make([]int64, 0, buckets)
	for len(counts) < buckets {
		left := bounds[len(counts):min(len(counts)+maxHistogramParts+1, len(bounds))]
		c := s.newCall("histogram", queue, len(left))
		for _, b := range left {
			c.add(b)
		}
		reply, err := s.run(ctx, queue, c)
		if err != nil {
			return nil, err
		}
		before := int64(0) // packed messages due before the last bound
		for i, one := range reply.([]any) {
			r := one.([]any)
			packed := r[1].(int64)
			for k := 2; k < len(r); k += 2 {
				start, err := strconv.ParseInt(r[k].(string), 10, 64)
				if err != nil {
					return nil, err
				}
				packed += linesBefore(r[k+1].(string), left[i]-start)
			}
			if i > 0 {
				counts = append(counts, r[0].(int64)+max(0, packed-before))
			}
			before = packed
		}
	}
	return counts, nil
}

// linesBefore counts the lines of a bucket that are due before a time, in ms after the start of the bucket.
func linesBefore(bucket string, bound int64) (n int64) {
	for line := range strings.Lines(bucket) {
		offset, _, found := strings.Cut(line, "\t")
		if due, err := strconv.ParseInt(offset, 10, 64); found && err == nil && due < bound {
			n++
		}
	}
	return n
}
