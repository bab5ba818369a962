package diskstore

import (
	"errors"
	"fmt"
	"math/bits"
	"syscall"
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
	emptied bool      // so were all messages of a queue, when sends found no room
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
	case t.s.reserve.state().full:
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
// written, which a store that refuses sends does not do. The caller is the writer.
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
	s.room.removed, s.room.emptied = false, false
	if err != nil {
		s.logger.Warn("later: deletions cannot be flushed to make room", "dir", s.dir, "error", err)
		return
	}
	s.loops.Go(func() {
		select {
		case <-flushed:
			s.reserve.merge()
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

// askForRoom has the writer make room of queues that were emptied, unless it waits for room itself. Single deletions
// are not worth a table of their own while the disk is full.
func (s *Store) askForRoom(left uint64) {
	if s.enter(s.reserve.over) != nil {
		return
	}
	defer s.calls.Done()
	s.post("", func(t *tx) {
		if s.room.emptied && t.flush() == nil { // the queue may have been emptied in this group
			s.makeRoomOfDeletions(left)
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

// checkChange refuses a change when the disk is full and the reserve nearly used up.
func (t *tx) checkChange(c change) error {
	r := t.s.reserve
	state := r.state()
	if !state.full || state.made {
		return nil
	}
	need := r.floor(c) + uint64(2*t.batch.Len())
	usage, err := r.FS.GetDiskUsage(t.s.dir)
	if err != nil {
		return nil // the write will tell
	}
	sublevels := t.s.db.Metrics().Levels[0].Sublevels
	r.setStalled(sublevels >= manySublevels)
	most := int32(changeSublevels)
	if c == makesRoom {
		most = purgeSublevels
	}
	if r.isUsedUp() || usage.AvailBytes < need || sublevels >= most && state.gaveUp {
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
func (r *reserve) floor(c change) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := uint64(max(r.size, minReserve))
	if c == makesRoom {
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

// isWaiting reports whether the log, or another file that Pebble cannot do without, waits for room. No call can be
// answered then, because answers wait for the log.
func (r *reserve) isWaiting() bool { return r.waiting.Load() > 0 }

// insistNamed is insist for a change by the name of a file.
func (r *reserve) insistNamed(name string, change func() error) error {
	return r.insist(name, func() error { return r.named(change) })
}

// insist is try for a file that Pebble cannot do without: while the store is open it waits until there is room.
func (r *reserve) insist(name string, f func() error) error {
	for {
		err := r.try(f)
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

const (
	// maxPause bounds the pause of a compaction after a write.
	maxPause = 20 * time.Millisecond
	// manySublevels is how many sublevels of new tables say that compactions do not keep up. They make reads slower.
	manySublevels = 3
	// checkSublevels is how often they are counted.
	checkSublevels = 100 * time.Millisecond
)

// pace pauses a compaction for as long as it has worked since resumed, so that it leaves half of a core and half of the
// disk's time to claims and to the fsyncs of the log. One that the writer waits for, or that is behind, does not pause.
func (r *reserve) pace(resumed time.Time) {
	now, state := time.Now(), r.state()
	if state.stalled || r.ended() || resumed.IsZero() {
		return
	}
	if now.Sub(state.counted) >= checkSublevels {
		state.behind = r.s.db.Metrics().Levels[0].Sublevels >= manySublevels
		r.mu.Lock()
		r.counted, r.behind = now, state.behind
		r.mu.Unlock()
	}
	if state.behind {
		return
	}
	timer := time.NewTimer(min(now.Sub(resumed), maxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.over.Done():
	}
}

// formatBytes formats a size for people.
func formatBytes(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	unit := (bits.Len64(n) - 1) / 10
	return fmt.Sprintf("%.1f %ciB", float64(n)/float64(uint64(1)<<(10*unit)), "KMGTPE"[unit-1])
}
