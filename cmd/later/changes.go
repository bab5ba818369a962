package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/changelog"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/store"
)

func (m *Main) changesCommand() *cobra.Command {
	limit := 50
	cmd := m.command("changes", "List changes that were made through servers",
		fmt.Sprintf(`Changes lists what people and programs changed through later serve, its web page and its HTTP API, the
latest first: who, when, what, the filter of a bulk change, and how many messages it changed. The store keeps the last
%d of all its servers. The page and the HTTP API can undo some of them.

Changes of commands and programs that use the store itself are not listed.`, changelog.Kept),
		`  later changes
  later changes --limit 1000 --json | jq -r 'select(.queue == "mail") | .who'`,
		m.withClient(func(ctx context.Context, c *later.Client, _ []string) error {
			if limit < 1 || limit > changelog.Kept {
				return store.Invalid("--limit is %d: must be 1 to %d", limit, changelog.Kept)
			}
			log := changelog.Log{Store: c.Store()}
			all, err := log.List(ctx, changelog.Position{}, limit, func(*changelog.Change) bool { return true })
			if err != nil {
				return err
			}
			return m.printServerChanges(all)
		}))
	cmd.Flags().IntVar(&limit, "limit", limit, "list at most `N` changes")
	return cmd
}

func (m *Main) printServerChanges(all []*changelog.Change) error {
	if len(all) == 0 && !m.json {
		m.note("nothing was changed through a server of %s", m.shownURL())
	}
	t := newTable("TIME", "WHO", "WHAT", "QUEUE", "DETAILS")
	for _, c := range all {
		m.row(t, view.Change(c), c.Time.Local().Format(time.DateTime), preview(c.Who, 100),
			preview(c.What, 100), preview(c.Queue, 128), preview(detailsOf(c), 300))
	}
	return m.flush(t)
}

// detailsOf returns what a change was done to, and who undid it.
func detailsOf(c *changelog.Change) string {
	var parts []string
	if c.Undone != nil {
		parts = append(parts, "undone by "+c.Undone.Who)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Attributes)) {
		parts = append(parts, fmt.Sprintf("%s=%v", name, c.Attributes[name]))
	}
	return strings.Join(parts, " ")
}
