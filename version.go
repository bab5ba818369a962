package later

import (
	"cmp"
	"context"

	"github.com/laterq/later/internal/version"
)

// SetDeadRetentionIf is SetDeadRetention on a condition: allow is called with the Version of the Retention that would
// be replaced, or "" if the queue does not exist. If it returns false, SetDeadRetentionIf returns ErrConflict and
// changes nothing. If the retention is replaced between the call of allow and the change, allow is called
// again. An allow of nil allows it always.
func (q *Queue) SetDeadRetentionIf(ctx context.Context, r Retention, allow func(version string) bool) error {
	if err := cmp.Or(r.Check(), q.old); err != nil {
		return err
	}
	if err := q.begin(); err != nil {
		return err
	}
	defer q.client.calls.Done()
	return version.Replace("retention of queue", q.name, func() error {
		if allow == nil {
			return q.client.store.SetDeadRetention(ctx, q.name, r, nil)
		}
		stats, err := q.client.store.Stats(ctx, q.name)
		if err != nil {
			return err
		}
		current := ""
		if stats.Exists {
			current = stats.DeadRetention.Version()
		}
		if !allow(current) {
			return version.ErrOther
		}
		return q.client.store.SetDeadRetention(ctx, q.name, r, &stats.DeadRetention)
	})
}
