package later

import (
	"context"
	"fmt"

	"github.com/laterq/later/store"
)

// Backup writes a consistent copy of the whole store to the new directory dir, while other calls and workers go on, and
// verifies it. The copy is a store of its own: open it to use it. It contains everything that was acknowledged before
// the call. The directory must be missing or empty, and outside the store's own; it appears only when the copy is
// complete, so after an error there is none.
//
// The embedded store can do this. Other stores return ErrUnsupported: copy their messages with Copy or migrate.Export,
// or use the backups of the server. A copy on the same disk takes little time and space, because it shares files that
// never change with the store, and for the same reason does not help when that disk fails.
func (c *Client) Backup(ctx context.Context, dir string) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.calls.Done()
	b, ok := c.store.(store.Backuper)
	if !ok {
		return fmt.Errorf("%w: only the embedded store can back itself up to a directory: write the messages to a file with "+
			"later export, or use the backups of the server", ErrUnsupported)
	}
	return b.Backup(ctx, dir)
}
