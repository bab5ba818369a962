package later

import (
	"context"
	"strings"
	"testing"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// backing is a store that supports Backup.
type backing struct {
	store.Store
	dir string
}

func (b *backing) Backup(_ context.Context, dir string) error {
	b.dir = dir
	return nil
}

func TestClientBackupNeedsAStoreThatSupportsIt(t *testing.T) {
	plain := newClientOn(t, memstore.New())
	err := plain.Backup(t.Context(), "dir")
	wantError(t, err, ErrUnsupported)
	if !strings.Contains(err.Error(), "later export") {
		t.Errorf("%v does not say what to use instead", err)
	}
	s := &backing{Store: memstore.New()}
	c := mustNew(t, s, quiet)
	if err := c.Backup(t.Context(), "dir"); err != nil || s.dir != "dir" {
		t.Errorf("Backup used directory %q and returned %v", s.dir, err)
	}
	if c.Store() != store.Store(s) {
		t.Error("Store did not return the client's store")
	}
	c.Close()
	wantError(t, c.Backup(t.Context(), "dir"), ErrClosed)
}
