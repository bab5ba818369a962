package view

import (
	"github.com/laterq/later/internal/changelog"
	"github.com/laterq/later/internal/wire"
)

// Change returns the JSON of a change.
func Change(c *changelog.Change) wire.Change {
	out := wire.Change{ID: c.ID, Time: wire.FormatTime(c.Time), Who: c.Who, What: c.What, Queue: c.Queue,
		Attributes: c.Attributes}
	if c.Undone != nil {
		out.Undone = &wire.Undone{Time: wire.FormatTime(c.Undone.Time), Who: c.Undone.Who, Change: c.Undone.Change}
	}
	return out
}
