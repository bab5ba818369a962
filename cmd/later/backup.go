package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later/internal/wire"
)

func (m *Main) backupCommand() *cobra.Command {
	return m.command("backup DIR", "Copy the embedded store to a new directory",
		`Backup writes a consistent copy of the embedded store to DIR and verifies it. DIR must be missing or empty, and
appears only when the copy is complete. An interrupted backup leaves DIR.partial, which you can remove. The copy is a
store: open it with --store to inspect it, or put it in the place of a lost one.

Other programs can use the store during the backup. For stores on Redis, use later export or the server's own backups.

On the same disk as the store, a backup takes little time and space, because it shares the files that never change.
For the same reason it does not help when that disk fails: use a directory on another disk, or copy it elsewhere.`,
		`  later backup ./later-backup
  later backup --store /var/lib/later /mnt/other/later-backup
  later doctor --store ./later-backup`,
		run(func(ctx context.Context, args []string) error {
			ctx, stop := interruptible(ctx)
			defer stop()
			return m.backup(ctx, args[0])
		}))
}

func (m *Main) backup(ctx context.Context, target string) error {
	dir, err := m.backupDirectory(target)
	if err != nil {
		return err
	}
	client, err := m.openExisting(ctx)
	if held, ok := errors.AsType[*inUseError](err); ok {
		return fmt.Errorf("%w.\n  Or make the backup from that program, with Client.Backup", held)
	}
	if err != nil {
		return err
	}
	defer client.Close()
	began := time.Now()
	err = client.Backup(ctx, dir)
	return m.printDone(err, struct {
		Dir   string        `json:"dir"`
		Store string        `json:"store"`
		Took  wire.Duration `json:"took"`
	}{dir, m.shownURL(), wire.Measured(time.Since(began))}, "backed up %s to %s", m.shownURL(), dir)
}

// backupDirectory returns the directory that a path or a file URL names.
func (m *Main) backupDirectory(text string) (string, error) {
	if strings.HasPrefix(text, "file:") || strings.HasPrefix(text, "~/") {
		url, err := m.storeURLOf(text)
		dir, _ := directoryOf(url)
		return dir, err
	}
	return filepath.Abs(text)
}
