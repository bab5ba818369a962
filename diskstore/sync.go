package diskstore

import (
	"context"

	"github.com/laterq/later/store"
)

var (
	_ store.Syncer = (*Store)(nil)
	_ store.Pinger = (*Store)(nil)
)

// Ping implements store.Pinger. A store that has failed stays so. It returns ErrFull while the disk is so full that not
// even accepted changes can be written.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	if !s.reserve.isUsedUp() {
		return nil
	}
	return s.fullError()
}

// Sync implements store.Syncer. With SyncEvery it fsyncs at once; otherwise it waits only for the calls that are
// under way.
func (s *Store) Sync(ctx context.Context) error {
	return s.do(ctx, "", inOrder, func(t *tx) { t.durable = true })
}
