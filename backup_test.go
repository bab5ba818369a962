package later

import (
	"context"
	"strings"
	"testing"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// backing is a store that can copy itself.
type backing struct {
	store.Store
	dir string
}

func (b *backing) Backup(_ context.Context, dir string) error {
	b.dir = dir
	return nil
}

func TestBackupIsMadeByTheStoreIfItCan(t *testing.T) {
	plain := newClientOn(t, memstore.New())
	err := plain.Backup(t.Context(), "dir")
	wantError(t, err, ErrUnsupported)
	if !strings.Contains(err.Error(), "later export") {
		t.Errorf("%v does not say what to do", err)
	}
	s := &backing{Store: memstore.New()}
	c := New(s, quiet)
	if err := c.Backup(t.Context(), "dir"); err != nil || s.dir != "dir" {
		t.Errorf("backed up to %q, %v", s.dir, err)
	}
	if c.Store() != store.Store(s) {
		t.Error("Store is not the client's store")
	}
	c.Close()
	wantError(t, c.Backup(t.Context(), "dir"), ErrClosed)
}
