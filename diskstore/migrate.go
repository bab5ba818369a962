package diskstore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// A change of the keys raises formatVersion and adds a row to migrations. Open migrates an earlier format, and older
// programs refuse the new one. LATER names the new format, and the earlier one too, from before the first change until
// all are made, so that an interrupted migration begins again.
//
// The fixture of the earlier format is written before formatVersion is raised; see fixture_test.go.

// migration makes a format of the one before.
type migration struct {
	from int // the format before
	// step puts the changes for at most 10,000 keys, from one on, into the batch, so that a large store takes little
	// memory. It returns the key that the next step begins with, nil at the end. It reads the changes of earlier steps,
	// and leaves alone keys of the new format. step is nil if all that was stored means the same in the new format.
	step func(r *reader, b *pebble.Batch, from []byte) (next []byte, err error)
}

// migrations begins with the earliest format that Open migrates.
var migrations = []migration{
	{from: 7},
}

func oldestFormat() int { return migrations[0].from }

// migratingLine is in formatFile while a store is migrated.
const migratingLine = "migrating from %d\n"

// formatFrom is the content of formatFile for a store that may still hold keys of an earlier format.
func formatFrom(from int) string {
	if from == formatVersion {
		return formatText
	}
	return formatText + fmt.Sprintf(migratingLine, from)
}

// migrate converts the keys of an earlier format.
func (s *Store) migrate(from int) error {
	if from == formatVersion {
		return nil
	}
	s.logger.Info("later: the store is migrated", "dir", s.dir, "from", from, "to", formatVersion)
	if err := s.writeFile(formatFile, formatFrom(from)); err != nil {
		return s.writeError(err)
	}
	for _, m := range migrations {
		if m.from >= from && m.step != nil {
			if err := s.migrateTo(m); err != nil {
				return err
			}
		}
	}
	if err := s.db.LogData(nil, pebble.Sync); err != nil {
		return s.writeError(err)
	}
	if err := s.writeFile(formatFile, formatText); err != nil {
		return s.writeError(err)
	}
	return nil
}

func (s *Store) migrateTo(m migration) error {
	r := &reader{s: s, src: s.db}
	for at := []byte{}; at != nil; {
		batch := s.db.NewBatch()
		next, err := m.step(r, batch, at)
		if err != nil {
			return err
		}
		if err := batch.Commit(pebble.NoSync); err != nil {
			return s.writeError(err)
		}
		at = next
	}
	return nil
}
