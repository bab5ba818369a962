package redisstore

import (
	"context"

	"github.com/laterq/later/store"
)

// SetKeyFlow implements store.Store.
func (s *Store) SetKeyFlow(ctx context.Context, queue, key string, o store.KeyOverride) error {
	return store.ErrUnsupported
}

// Keys implements store.Store.
func (s *Store) Keys(ctx context.Context, queue string, req store.KeysRequest) ([]store.KeyState, error) {
	return nil, store.ErrUnsupported
}
