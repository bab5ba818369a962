package diskstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// A store leaves room on its disk for claims and acks, and for Pebble to merge tables: a Send that finds less is
// refused. The room grows with the store, so that a small store fits a small or nearly full disk, and it is never more
// than a part of the disk.
const (
	minRoom      = 16 << 20
	maxRoom      = 256 << 20
	roomOfStore  = 4 // a 4th of what the store's files take
	roomOfVolume = 8 // at most an 8th of the disk
)

// Pebble keeps about three times a memory table in logs. It is a 16th of the free space when the store is opened.
const (
	minMemTable    = 1 << 20
	maxMemTable    = 64 << 20
	memTableOfFree = 16
)

// room is what the writer knows of the space on the disk.
type room struct {
	used    uint64    // by the store's files
	looked  time.Time // when that was found out
	flushed time.Time // when flushDeletions flushed last
}

// flushEvery is how often a store without room for sends flushes its memory tables.
const flushEvery = 2 * time.Second

// requiredRoom returns how many bytes a store of a size leaves free on a disk.
func requiredRoom(used uint64, usage vfs.DiskUsage) uint64 {
	need := min(max(used/roomOfStore, minRoom), maxRoom)
	if usage.TotalBytes > 0 {
		need = min(need, usage.TotalBytes/roomOfVolume)
	}
	return need
}

// used returns about what the store's files take. Pebble's metrics are not free, so they are read once a second.
func (s *Store) used() uint64 {
	if now := time.Now(); now.Sub(s.room.looked) >= time.Second {
		s.room.used, s.room.looked = s.db.Metrics().DiskSpaceUsage(), now
	}
	return s.room.used
}

// checkRoom refuses a send when the disk is nearly full. It looks once in a group.
func (t *tx) checkRoom() error {
	if t.checked {
		return t.full
	}
	t.checked, t.full = true, nil
	usage, err := t.s.fs.GetDiskUsage(t.s.dir)
	need := uint64(0)
	if err == nil {
		need = requiredRoom(t.s.used(), usage)
	}
	switch {
	case err != nil && !t.s.isOwned(): // that is why
		t.full = t.s.failure
	case t.s.reserve.isFull():
		t.full = fmt.Errorf(
			"%w: the disk of %s was full a moment ago, and its room is kept for claims and acks: free some space",
			store.ErrFull, t.s.dir)
	case errors.Is(err, vfs.ErrUnsupported): // a system that does not say
	case err != nil:
		t.full = fmt.Errorf("%w: the free space of %s is unknown: %w", store.ErrUnavailable, t.s.dir, err)
	case usage.AvailBytes < need:
		t.s.flushDeletions()
		t.full = fmt.Errorf("%w: the disk of %s has %s left and %s are kept for claims and acks: free some space",
			store.ErrFull, t.s.dir, formatBytes(usage.AvailBytes), formatBytes(need))
	}
	return t.full
}

// flushDeletions has Pebble learn which tables hold only what was purged or acked, so that it removes them. Without it the
// deletions stay in a memory table until more is written, which a store that refuses sends does not do.
func (s *Store) flushDeletions() {
	if now := time.Now(); now.Sub(s.room.flushed) >= flushEvery {
		s.room.flushed = now
		if _, err := s.db.AsyncFlush(); err != nil {
			s.logger.Warn("later: deletions cannot be flushed to make room", "dir", s.dir, "error", err)
		}
	}
}

// fittingMemTable returns the size of memory tables for the space on the disk.
func (s *Store) fittingMemTable() uint64 {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil {
		return maxMemTable
	}
	return min(max(usage.AvailBytes/memTableOfFree, minMemTable), maxMemTable)
}
