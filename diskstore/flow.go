package diskstore

import (
	"context"

	"github.com/laterq/later/store"
)

// SetFlow implements store.Store.
func (s *Store) SetFlow(context.Context, string, store.Flow, *store.Flow) error {
	return store.ErrUnsupported
}

// Flow implements store.Store.
func (s *Store) Flow(context.Context, string) (store.FlowState, error) {
	return store.FlowState{}, store.ErrUnsupported
}
