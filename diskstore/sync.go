package diskstore

import (
	"context"

	"github.com/laterq/later/store"
)

var _ store.Syncer = (*Store)(nil)

// Sync implements store.Syncer. With WithSyncEvery it fsyncs at once; otherwise it waits only for the calls that are
// under way.
func (s *Store) Sync(ctx context.Context) error {
	return s.do(ctx, "", inOrder, func(t *tx) { t.durable = true })
}
