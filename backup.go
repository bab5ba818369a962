package later

import (
	"context"
	"fmt"

	"github.com/laterq/later/store"
)

// Backup writes a consistent copy of the whole store to the new directory dir and verifies it.
//
// The copy is a store of its own that can be opened. It contains everything that was acknowledged before the call;
// other calls and workers continue. dir must be missing or empty, and outside the store's own directory. It appears
// only when the copy is complete, so there is none after an error.
//
// Only the embedded store supports Backup. Other stores return ErrUnsupported: use package migrate or the
// server's own backups. A copy on the same disk takes little time and space because it shares immutable
// files with the store; for the same reason it does not help when that disk fails.
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
