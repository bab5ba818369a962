package diskstore

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
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
	used   uint64    // by the store's files
	looked time.Time // when that was found out
}

// maxMessage is about the size of the largest message.
const maxMessage = store.MaxPayload + 64<<10

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
	case t.s.reserve.state().full:
		t.full = fmt.Errorf(
			"%w: the disk of %s was full a moment ago, and its room is kept for claims and acks: free some space",
			store.ErrFull, t.s.dir)
	case errors.Is(err, vfs.ErrUnsupported): // a system that does not say
	case err != nil:
		t.full = fmt.Errorf("%w: the free space of %s is unknown: %w", store.ErrUnavailable, t.s.dir, err)
	case usage.AvailBytes < need:
		t.s.askForRoom(usage.AvailBytes)
		t.full = fmt.Errorf("%w: the disk of %s has %s left and %s are kept for claims and acks: free some space",
			store.ErrFull, t.s.dir, formatBytes(usage.AvailBytes), formatBytes(need))
	}
	return t.full
}

// askForRoom has the next check make room, because a send was refused. All tables are merged if the messages surely fit
// into half of the free space.
func (s *Store) askForRoom(left uint64) {
	messages := uint64(0)
	for _, q := range s.queues {
		messages += uint64(q.due.n + q.dead.n + int64(len(q.held)))
	}
	r := s.reserve
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tight, r.merge = true, messages <= left/2/maxMessage; !r.ended() {
		r.watch()
	}
}

// makeRoom has Pebble write its memory table if something was written since the last time, so that tables in removed
// ranges are removed, and others are merged. Without it removals stay in memory until more is written, which a store
// that refuses sends does not do.
func (r *reserve) makeRoom() {
	err := r.flush()
	r.mu.Lock()
	merge := r.merge
	r.mu.Unlock()
	if err == nil && merge {
		err = r.s.mergeTables()
	}
	if err != nil && !errors.Is(err, errBehind) && !r.ended() {
		r.s.logger.Warn("later: tables cannot be merged to make room", "dir", r.s.dir, "cause", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.making = false
}

// errBehind is the error of a flush that is useless, or would make the writer wait: until another memory table is
// written, or until tables are merged, which may need the room that this flush is to make.
var errBehind = errors.New("nothing was written, or tables are not merged as fast as new ones are asked for")

func (r *reserve) flush() (err error) {
	defer recovered(&err)
	m := r.s.db.Metrics()
	r.mu.Lock()
	most := int32(flushSublevels)
	if r.emptied.Load() {
		most = changeSublevels
	}
	behind := m.WAL.BytesWritten == r.written || m.MemTable.Count > 1 || m.Levels[0].Sublevels >= most
	if !behind {
		r.written = m.WAL.BytesWritten
		r.emptied.Store(false)
	}
	r.mu.Unlock()
	if behind {
		return errBehind
	}
	flushed, err := r.s.db.AsyncFlush()
	if err == nil {
		select {
		case <-flushed:
		case <-r.over.Done():
		}
	}
	return err
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

// Pebble stops for good when its log or its list of files cannot be written. So when the reserve is used up, too, a
// change is refused as soon as the disk might not have the room for it, and a write that finds no room waits until
// there is some. The last of the reserve is kept for changes that make room: purges, cancels and removals.

// The floors are these parts of the reserve: below the first compactions write nothing, below the second a change is
// refused, below the third also one that makes room.
const (
	mergeFloor  = 2
	changeFloor = 4
	purgeFloor  = 16
)

// At stopSublevels of new tables Pebble holds the writer up until they are merged. While that has no room, changes are
// refused from changeSublevels on. From flushSublevels on, no flush makes room, unless whole ranges were removed.
const (
	flushSublevels  = 8
	changeSublevels = 28
	stopSublevels   = 32
)

// checkChange refuses a change when the disk is full and the reserve nearly used up.
func (t *tx) checkChange(c change) error {
	r := t.s.reserve
	state := r.state()
	if !state.full {
		return nil
	}
	usage, err := r.FS.GetDiskUsage(t.s.dir)
	if err != nil {
		return nil // the write will tell
	}
	floor := r.part(changeFloor)
	if c == makesRoom {
		floor = r.part(purgeFloor)
	}
	short := !state.made && (r.isUsedUp() || usage.AvailBytes < floor+uint64(2*t.batch.Len()))
	if short || t.s.db.Metrics().Levels[0].Sublevels >= changeSublevels {
		return t.s.fullError()
	}
	return nil
}

// fullError is the error of a disk that is so full that nothing can be changed.
func (s *Store) fullError() error {
	usage, _ := s.fs.GetDiskUsage(s.dir)
	return fmt.Errorf("%w: the disk of %s has %s left and the reserve is used up: free some space; nothing is lost, "+
		"and calls go on by themselves when there is room", store.ErrFull, s.dir, formatBytes(usage.AvailBytes))
}

// part returns a part of the reserve.
func (r *reserve) part(of uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uint64(max(r.size, minReserve)) / of
}

// isUsedUp reports whether something that Pebble must write found no room, after the reserve was freed.
func (r *reserve) isUsedUp() bool { return r.isWaiting() || r.tables.Load() > 0 }

// isWaiting reports whether the log, or another file that Pebble cannot do without, waits for room. No call can be
// answered then, because answers wait for the log.
func (r *reserve) isWaiting() bool { return r.waiting.Load() > 0 }

// insist is try for a file that Pebble cannot do without: while the store is open it waits until there is room.
func (r *reserve) insist(name string, f func() error) error {
	for {
		err := r.try(func() error { return r.named(f) })
		if err == nil || !isFullError(err) || !r.isOurs(name) || !r.awaitLook(&r.waiting) {
			return err
		}
	}
}

// isOurs reports whether a file is one of the store's own, and not of a backup.
func (r *reserve) isOurs(name string) bool { return r.FS.PathDir(name) == r.s.dir }

// awaitLook waits until a check has looked for room, and is counted meanwhile. It returns false if the store is being
// closed, or is not open yet: then only tables wait, because Pebble would try again at once, for ever.
func (r *reserve) awaitLook(waiting *atomic.Int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.opened && waiting != &r.tables {
		return false
	}
	waiting.Add(1)
	defer waiting.Add(-1)
	for looks := r.looks; looks == r.looks && !r.ended(); {
		r.changed.Wait()
	}
	return !r.ended()
}

// formatBytes formats a size for people.
func formatBytes(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	unit := (bits.Len64(n) - 1) / 10
	return fmt.Sprintf("%.1f %ciB", float64(n)/float64(uint64(1)<<(10*unit)), "KMGTPE"[unit-1])
}
