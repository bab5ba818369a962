package diskstore

import (
	"sync"

	"github.com/laterq/later/store"
)

// fence lets a store that stopped change nothing more in its directory, which another process may have open by then:
// Pebble may go on in the background.
type fence struct {
	mu sync.RWMutex
	up bool
}

// pass makes a change, unless the fence is up.
func (f *fence) pass(change func() error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.up {
		return store.ErrClosed
	}
	return change()
}

// raise returns when the changes under way are made, and lets no more pass.
func (f *fence) raise() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up = true
}
