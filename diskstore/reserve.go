package diskstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// reserveName is a file that takes up space, which is freed when the disk is full although Send leaves some: others
// write to the disk too. Then the log goes on being written, and with it claims and acks.
const reserveName = "RESERVE"

// maxReserve is how much that is. A message's claim and ack take 76 bytes of the log in claims of 100, 96 in claims of
// 10 and 301 one by one, as measured, so it is good for 220,000 to 880,000 messages, less the size of the tables that
// are made of the log; and it is as much as one log and one table take.
const maxReserve = 64 << 20

// The reserve is at most these parts of the disk, and of its free space when it is made.
const (
	reserveOfVolume = 16
	reserveOfFree   = 8
)

// minReserve is the smallest reserve that is worth having.
const minReserve = 1 << 20

// checkFull is how often the disk is checked while it is full, or the reserve is missing. The disk is no longer full
// when it has room for the reserve and half as much.
const checkFull = time.Second

// Pebble's names of its reasons to write files.
const (
	forCompaction = "pebble-compaction"
	forFlush      = "pebble-memtable-flush"
)

// reserve is the file system that Pebble uses. It frees the reserve when the disk is full, for the log, the tables that
// are made of it, and the manifest. Compactions, which can wait for a while, do so until there is room again.
type reserve struct {
	vfs.FS
	s       *Store
	fence   fence
	size    int64        // of the reserve; 0 for none
	waiting atomic.Int64 // writes that found no room and wait for some

	mu      sync.Mutex
	changed sync.Cond // of the state
	reserveState

	over   context.Context // ends with the store
	cancel context.CancelFunc
}

// reserveState is how full the disk is, as far as it is known.
type reserveState struct {
	made      bool      // the reserve exists
	freed     int       // how often it was freed
	full      bool      // the disk was full when it was last written to, and no check has seen room since
	stalled   bool      // the writer, or the opening of the store, waits for tables to be merged
	merges    int       // how many compactions may yet fail while the disk is full
	tableless bool      // a table could not be written that the writer waits for
	gaveUp    bool      // that has happened since the disk is full
	behind    bool      // compactions do not keep up with sends
	counted   time.Time // when that was found out
	looks     int       // how often a check looked for room
	watched   bool      // there is a loop that checks for room
	opened    bool
}

// state returns the state of this moment.
func (r *reserve) state() reserveState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reserveState
}

// newReserve returns the file system of a store that is being opened. A reserve that exists can be freed at once.
func newReserve(s *Store) *reserve {
	r := &reserve{FS: s.fs, s: s, size: s.reserveSize, reserveState: reserveState{stalled: true}}
	r.over, r.cancel = context.WithCancel(context.Background())
	r.changed.L = &r.mu
	info, err := r.FS.Stat(r.path())
	r.made = err == nil && info.Size() > 0
	return r
}

// Unwrap implements vfs.FS.
func (r *reserve) Unwrap() vfs.FS { return r.FS }

// isFullError reports whether something failed for want of space.
func isFullError(err error) bool {
	return slices.ContainsFunc(fullErrors, func(full syscall.Errno) bool { return errors.Is(err, full) })
}

// free is called when something found the disk full that began after so many frees. It reports whether to try again:
// the reserve was freed, now or since.
func (r *reserve) free(cause error, frees int) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made {
		if err := r.Remove(r.path()); err != nil {
			r.s.logger.Error("later: the disk is full and the reserve cannot be freed", "dir", r.s.dir, "cause", err)
		} else {
			r.freed++
		}
		r.made = false
	}
	r.setFull("sends are refused, claims and acks go on while the reserve lasts", cause)
	return r.freed > frees
}

// postpone is called when a compaction finds the disk full. The reserve is not for that.
func (r *reserve) postpone(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.merges = max(0, r.merges-1)
	r.setFull("sends are refused, and tables are merged when there is room again", cause)
}

// setFull notes that the disk is full. The caller holds the lock.
func (r *reserve) setFull(text string, cause error) {
	if r.ended() {
		return
	}
	if !r.full {
		r.full = true
		r.s.logger.Error("later: the disk is full; "+text, "dir", r.s.dir, "cause", cause)
	}
	r.watch()
}

func (r *reserve) ended() bool { return r.over.Err() != nil }

// end is called when the store is closed. No write waits for room any more.
func (r *reserve) end() {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full = false
	r.changed.Broadcast()
}

func (r *reserve) path() string { return r.FS.PathJoin(r.s.dir, reserveName) }

// watch starts the loop that checks for room. The caller holds the lock, and has not ended.
func (r *reserve) watch() {
	if r.watched {
		return
	}
	r.watched = true
	r.s.loops.Go(func() {
		for done := false; !done; done = r.check() {
			ring, stop := r.s.clock.Alarm(r.s.clock.Now().Add(checkFull))
			select {
			case <-ring:
			case <-r.over.Done():
			}
			stop()
		}
	})
}

// check ends the state of being full when there is room, and makes the reserve when there is room for that too. It
// reports whether nothing is left to do.
func (r *reserve) check() (done bool) {
	usage, err := r.FS.GetDiskUsage(r.s.dir)
	if err == nil && r.state().full {
		r.s.askForRoom(usage.AvailBytes)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended() {
		return true
	}
	enough := errors.Is(err, vfs.ErrUnsupported) ||
		err == nil && int64(usage.AvailBytes) >= max(r.size+r.size/2, minRoom/2)
	if r.full && enough {
		r.full, r.stalled, r.gaveUp = false, false, false
		r.s.logger.Info("later: the disk has room again", "dir", r.s.dir)
	}
	if !r.made && r.size > 0 && err == nil {
		r.build(usage)
	}
	r.looks++
	r.changed.Broadcast()
	r.watched = r.full || !r.made && r.size > 0
	return !r.watched
}

// begin makes the reserve when the store is open, or has it made when there is room.
func (r *reserve) begin() {
	usage, err := r.FS.GetDiskUsage(r.s.dir)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled, r.opened = false, true
	if err != nil { // no check could find out when to make it again
		r.size = 0
	}
	r.size = min(r.size, int64(usage.TotalBytes/reserveOfVolume))
	if r.size == 0 {
		return
	}
	if r.build(usage); !r.made {
		r.watch()
	}
}

// build makes the reserve if that leaves the room that sends need, or completes one that was made before: in a copy of
// the directory it may take up less space than its length. The caller holds the lock.
func (r *reserve) build(usage vfs.DiskUsage) {
	size := int64(usage.AvailBytes / reserveOfFree)
	if info, err := r.FS.Stat(r.path()); err == nil {
		size = max(size, info.Size())
	}
	size = min(r.size, size)
	if !r.made && (size < minReserve || usage.AvailBytes < uint64(size)+minRoom) {
		return
	}
	r.size = size
	if err := r.named(r.complete); err != nil {
		r.made = false
		r.Remove(r.path())
		if !isFullError(err) {
			r.size = 0
			r.s.logger.Warn("later: no reserve for a full disk could be made", "dir", r.s.dir, "cause", err)
		}
		return
	}
	r.made = true
}

// complete makes the reserve take up its space.
func (r *reserve) complete() error {
	f, err := r.FS.OpenReadWrite(r.path(), vfs.WriteCategoryUnspecified)
	if errors.Is(err, os.ErrNotExist) {
		f, err = r.FS.Create(r.path(), vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		return err
	}
	return errors.Join(r.allocate(f), f.Close())
}

// allocate makes a file take up its space. Where the system cannot do that alone, the file is written.
func (r *reserve) allocate(f vfs.File) error {
	if runtime.GOOS == "linux" && f.Preallocate(0, r.size) == nil {
		_, err := f.WriteAt([]byte{1}, r.size-1)
		return err
	}
	if info, err := f.Stat(); err != nil || info.Size() >= r.size {
		return err
	}
	noise := make([]byte, 1<<20)
	for at := int64(0); at < r.size; at += int64(len(noise)) {
		rand.Read(noise) // no file system can compress it
		if _, err := f.WriteAt(noise[:min(int64(len(noise)), r.size-at)], at); err != nil {
			return err
		}
	}
	return nil
}

// try does something that needs space, once more if that can help.
func (r *reserve) try(f func() error) error {
	frees := r.state().freed
	err := f()
	if isFullError(err) && r.free(err, frees) {
		err = f()
	}
	return err
}

// named makes a change by the name of a file, unless the name has come to mean another one.
func (r *reserve) named(change func() error) error {
	return r.fence.pass(func() error {
		if err := r.s.owned.check(); err != nil {
			return r.s.fail(err)
		}
		return change()
	})
}

// markerPrefix begins the names of Pebble's markers, which say which manifest and format are current.
const markerPrefix = "marker."

// Create implements vfs.FS. A table waits while the disk is full: Pebble would try again at once, for ever. A marker
// comes after the file that it names: Pebble syncs the directory only behind it, and a power failure might leave the
// marker without its manifest.
func (r *reserve) Create(name string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	if strings.HasPrefix(r.FS.PathBase(name), markerPrefix) {
		if err := r.s.syncDirectory(r.s.dir); err != nil {
			return nil, err
		}
	}
	if category == forCompaction || category == forFlush {
		if err := r.awaitTable(category); err != nil {
			return nil, err
		}
		err = r.named(func() error {
			f, err = r.FS.Create(name, category)
			return err
		})
	} else {
		err = r.insistNamed(name, func() error {
			f, err = r.FS.Create(name, category)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return r.newFile(name, f, category), nil
}

// setStalled is called by Pebble when the writer has to wait until tables are merged, and when that wait ends. During
// the wait compactions are as urgent as the log.
func (r *reserve) setStalled(stalled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stalled != stalled {
		r.stalled = stalled
		r.changed.Broadcast()
	}
}

// ReuseForWrite is called for a log that is written over an older one.
func (r *reserve) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = r.insistNamed(newname, func() error {
		f, err = r.FS.ReuseForWrite(oldname, newname, category)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r.newFile(newname, f, category), nil
}

// Link is called for tables and markers.
func (r *reserve) Link(oldname, newname string) error {
	return r.insistNamed(newname, func() error { return r.FS.Link(oldname, newname) })
}

// Rename is called for markers and options.
func (r *reserve) Rename(oldname, newname string) error {
	return r.insistNamed(newname, func() error { return r.FS.Rename(oldname, newname) })
}

// Remove is called for files that are obsolete.
func (r *reserve) Remove(name string) error {
	return r.named(func() error { return r.FS.Remove(name) })
}

// reserveFile is a file that Pebble writes.
type reserveFile struct {
	vfs.File
	r        *reserve
	name     string
	category vfs.DiskWriteCategory
	resumed  time.Time // when the last write of a compaction returned
}

func (r *reserve) newFile(name string, f vfs.File, category vfs.DiskWriteCategory) vfs.File {
	f = &reserveFile{File: f, r: r, name: name, category: category}
	if category == forLog && r.s.syncEvery > 0 {
		log := &lazyLog{File: f}
		r.s.log.Store(log)
		return log
	}
	return f
}

// Write writes all of p, trying once more if the disk was full and the reserve is free now. When that is used up, too,
// a table is given up, and anything else waits until there is room. A failed sync is never tried again, because the
// content of the disk is unknown then.
func (f *reserveFile) Write(p []byte) (n int, err error) {
	if f.category == forCompaction {
		f.r.pace(f.resumed)
		defer func() { f.resumed = time.Now() }()
	}
	state := f.r.state()
	canWait := f.category == forCompaction && !state.stalled // and leaves the reserve alone
	if canWait && state.full && !f.r.mayMerge() {
		return 0, syscall.ENOSPC // Pebble removes the output of the compaction so far
	}
	var group uint64
	if f.category == forLog {
		group = f.r.s.written.tagged(p) // before the write, which owns p: Pebble's memory file system changes it
	}
	write := func() error {
		more, err := f.write(p[n:])
		n += more
		return err
	}
	switch {
	case canWait:
		if err = write(); isFullError(err) {
			f.r.postpone(err)
		}
	case f.category == forFlush || f.category == forCompaction:
		if err = f.r.try(write); isFullError(err) {
			f.r.noTable()
		}
	default:
		err = f.r.insist(f.name, write)
	}
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err == nil && group > 0 && f.r.s.isOwned() {
		f.r.s.written.reached(group)
	}
	return n, err
}

// write writes p unless the store has stopped.
func (f *reserveFile) write(p []byte) (n int, err error) {
	err = f.r.fence.pass(func() error {
		n, err = f.File.Write(p)
		return err
	})
	return n, err
}

// report describes how well the store is prepared for a full disk.
func (r *reserve) report() store.CheckResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := store.CheckResult{Severity: store.SeverityNote, Check: "reserve"}
	switch {
	case r.full:
		f.Severity = store.SeverityWarning
		f.Text = "the disk was full a moment ago: sends are refused, and claims and acks use the reserve"
		f.Advice = "free some space"
	case r.made:
		f.Severity, f.Count = store.SeverityOK, r.size
		f.Text = fmt.Sprintf("%s are reserved for claims and acks on a full disk", formatBytes(uint64(r.size)))
	case r.size == 0:
		f.Text = "nothing can be reserved for a full disk here"
	default:
		f.Text = "nothing is reserved for claims and acks on a full disk, because there is too little room"
	}
	return f
}
