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
	roomOfStore  = 4 // a 4th of the size of the store's files
	roomOfVolume = 8 // at most an 8th of the disk
)

// Pebble keeps about three times a memory table in logs. It is a 16th of the free space when the store is opened.
const (
	minMemTable    = 1 << 20
	maxMemTable    = 64 << 20
	memTableOfFree = 16
)

// room is the space on the disk as the writer knows it.
type room struct {
	used    uint64    // by the store's files
	looked  time.Time // when that was found out
	removed bool      // keys were removed since the last flush
	flushed time.Time // when makeRoomOfDeletions flushed last
}

const (
	// flushEvery is how often a store without room for sends flushes its memory tables, if keys were removed.
	flushEvery = 2 * time.Second
	// maxMessage is about the size of the largest message.
	maxMessage = store.MaxPayload + 64<<10
)

// requiredRoom returns how many bytes a store of a size leaves free on a disk.
func requiredRoom(used uint64, usage vfs.DiskUsage) uint64 {
	need := min(max(used/roomOfStore, minRoom), maxRoom)
	if usage.TotalBytes > 0 {
		need = min(need, usage.TotalBytes/roomOfVolume)
	}
	return need
}

// used returns about the size of the store's files. Pebble's metrics are not free, so they are read once a second.
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
		t.s.makeRoomOfDeletions(usage.AvailBytes)
		t.full = fmt.Errorf("%w: the disk of %s has %s left and %s are kept for claims and acks: free some space",
			store.ErrFull, t.s.dir, formatBytes(usage.AvailBytes), formatBytes(need))
	}
	return t.full
}

// makeRoomOfDeletions has Pebble write deletions since the last time to a table, and then merge the tables if the
// messages that are left fit into half of the free space. Without it the deletions stay in a memory table until more is
// written, which a store that refuses sends does not do.
func (s *Store) makeRoomOfDeletions(left uint64) {
	now := time.Now()
	if !s.room.removed || now.Sub(s.room.flushed) < flushEvery {
		return
	}
	s.room.flushed = now
	messages := uint64(0)
	for _, q := range s.queues {
		messages += uint64(q.due.n + q.dead.n + int64(len(q.held)))
	}
	merge := messages <= left/2/maxMessage
	flushed, err := s.flush()
	if errors.Is(err, errBehind) {
		return // a later send tries again
	}
	s.room.removed = false
	if err != nil {
		s.logger.Warn("later: deletions cannot be flushed to make room", "dir", s.dir, "error", err)
		return
	}
	s.loops.Go(func() {
		select {
		case <-flushed:
		case <-s.reserve.over.Done():
			return
		}
		if !merge {
			return
		}
		if err := s.mergeTables(); err != nil && !s.reserve.ended() {
			s.logger.Warn("later: tables cannot be merged to make room", "dir", s.dir, "error", err)
		}
	})
}

// mergeTables has Pebble merge all tables, until the store ends. Pebble panics when it cannot write its list of files.
func (s *Store) mergeTables() (err error) {
	defer recovered(&err)
	return s.db.Compact(s.reserve.over, []byte{0}, []byte{0xff}, false)
}

// fittingMemTable returns the size of memory tables for the space on the disk.
func (s *Store) fittingMemTable() uint64 {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil {
		return maxMemTable
	}
	return min(max(usage.AvailBytes/memTableOfFree, minMemTable), maxMemTable)
}
