package diskstore

import (
	"fmt"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// Pebble stops for good when its log or its list of files cannot be written. So when the reserve is used up, too, a
// change is refused as soon as the disk might not have the room for it, and a write that finds no room waits until
// there is some. The last of the reserve is kept for changes that make room: purges, cancels and removals.

// The floors are these parts of the reserve: below the first a change is refused, below the second also one that makes
// room.
const (
	changeFloor = 4
	purgeFloor  = 16
)

// The store may have so many sublevels of new tables while they cannot be merged for want of room: then changes are
// refused, and later also changes that make room. At stopSublevels Pebble holds the writer up until tables are merged.
// From manySublevels on, merging them may use the reserve.
const (
	changeSublevels = 11
	purgeSublevels  = 28
	stopSublevels   = 32
)

const (
	changes  = false
	makeRoom = true
)

// checkChange refuses a change when the disk is full and the reserve nearly used up.
func (t *tx) checkChange(makesRoom bool) error {
	r := t.s.reserve
	if !r.isFull() || r.exists() {
		return nil
	}
	need := r.floor(makesRoom) + uint64(2*t.batch.Len())
	usage, err := r.FS.GetDiskUsage(t.s.dir)
	if err != nil {
		return nil // the write will tell
	}
	sublevels := t.s.db.Metrics().Levels[0].Sublevels
	r.setStalled(sublevels >= manySublevels)
	most := int32(changeSublevels)
	if makesRoom {
		most = purgeSublevels
	}
	if r.isUsedUp() || usage.AvailBytes < need || sublevels >= most && r.cannotMerge() {
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

// floor returns how much room a change must leave.
func (r *reserve) floor(makesRoom bool) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := uint64(max(r.size, minReserve))
	if makesRoom {
		return size / purgeFloor
	}
	return size / changeFloor
}

// isUsedUp reports whether something that Pebble must write found no room, after the reserve was freed.
func (r *reserve) isUsedUp() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isWaiting() || r.tableless
}

// cannotMerge reports whether a table found no room since the disk is full.
func (r *reserve) cannotMerge() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gaveUp
}

// isWaiting reports whether the log, or another file that Pebble cannot do without, waits for room. No call can be
// answered then, because answers wait for the log.
func (r *reserve) isWaiting() bool { return r.waiting.Load() > 0 }

// insist is try for a file that Pebble cannot do without: while the store is open it waits until there is room.
func (r *reserve) insist(name string, f func() error) error {
	for {
		err := r.try(func() error { return r.named(f) })
		if err == nil || !isFullError(err) || !r.isOurs(name) || !r.awaitLook() {
			return err
		}
	}
}

// isOurs reports whether a file is one of the store's own, and not of a backup.
func (r *reserve) isOurs(name string) bool { return r.FS.PathDir(name) == r.s.dir }

// awaitLook waits until a check has looked for room. It returns false if the store is not open yet, or is being closed.
func (r *reserve) awaitLook() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.opened {
		return false
	}
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	for looks := r.looks; looks == r.looks && !r.ended(); {
		r.changed.Wait()
	}
	return !r.ended()
}

// awaitTable waits with a new table until a check has looked for room, if the disk is too full for it. The reserve is
// for tables that the writer waits for, and not for others. It returns ENOSPC if there is still no room: Pebble then
// tries again, but first drops tables that only need to be removed.
func (r *reserve) awaitTable(category vfs.DiskWriteCategory) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	urgent := func() bool { return category == forFlush || r.stalled }
	waits := func() bool { return urgent() && r.tableless || !urgent() && r.full && r.merges == 0 }
	for looks := r.looks; looks == r.looks && waits() && !r.ended(); {
		r.changed.Wait()
	}
	switch {
	case urgent():
		r.tableless = false
	case r.full && r.merges == 0:
		return syscall.ENOSPC
	}
	return nil
}

// merge lets compactions use some room of a full disk, down to the floor of changes, because ranges were removed: they
// write next to nothing then, and their inputs are removed. One that began before may be in the way and fail.
func (r *reserve) merge() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.merges = 4
	r.changed.Broadcast()
}

// mayMerge reports whether a compaction may write to a full disk.
func (r *reserve) mayMerge() bool {
	usage, err := r.FS.GetDiskUsage(r.s.dir)
	floor := r.floor(changes)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.merges > 0 && (err != nil || usage.AvailBytes < floor) {
		r.merges--
		return false
	}
	return r.merges > 0
}

// noTable is called when a table cannot be written that the writer waits for. Pebble removes the unfinished table, so
// that the log has its room, and begins again.
func (r *reserve) noTable() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tableless, r.gaveUp = true, true
}
