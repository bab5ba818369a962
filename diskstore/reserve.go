package diskstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// ballastFile takes up room that is given free when the disk is full, in spite of what Send leaves: others write to
// the disk too. Then the log goes on being written, and with it claims and acks.
const ballastFile = "BALLAST"

// ballastSize is how much that is, at most a 16th of the disk. A message's claim and ack take 75 bytes of the log in
// claims of 100, 104 in those of 10 and 391 one by one, as measured, so it is good for 170,000 to 890,000 messages,
// less what the tables take that are made of the log meanwhile; and it is as much as one log and one table have.
const ballastSize = 64 << 20

// maxBallastPart is which part of a small disk the ballast may be.
const maxBallastPart = 16

const (
	// enoughRoom beside the ballast ends the state of being full.
	enoughRoom = 32 << 20
	// fullLook is how often room is looked for while the disk is full, ballastLook while only the ballast is missing.
	fullLook    = time.Second
	ballastLook = time.Minute
)

// What Pebble says it writes files for.
const (
	forCompaction = "pebble-compaction"
	forFlush      = "pebble-memtable-flush"
)

// reserve is the file system that Pebble uses: it gives the ballast free when the disk is full, and leaves what that
// gives to the log, to the tables that are made of it and to the manifest. Compactions, which can do without for a
// while, wait until there is room again.
type reserve struct {
	vfs.FS
	s    *Store
	size int64 // of the ballast; 0 for none

	mu      sync.Mutex
	changed sync.Cond // of what follows
	ballast bool      // it is there
	freed   int       // how often it was given free
	full    bool      // the disk was full when it was last written to, and nobody has seen room since
	stalled bool      // the writer, or the opening of the store, waits for tables to be merged
	watched bool      // there is a loop that looks for room
	ended   bool
	over    chan struct{} // closed when ended is set
}

// newReserve makes the file system of a store that is being opened; a ballast that is there can be given free at once.
func newReserve(s *Store) *reserve {
	r := &reserve{FS: s.fs, s: s, size: s.ballastSize, over: make(chan struct{}), stalled: true}
	r.changed.L = &r.mu
	info, err := r.FS.Stat(r.path())
	r.ballast = err == nil && info.Size() > 0
	return r
}

// Unwrap gives Pebble the file system below.
func (r *reserve) Unwrap() vfs.FS { return r.FS }

// isFull tells whether it is for want of room that something failed.
func isFull(err error) bool {
	return slices.ContainsFunc(fullErrors, func(full syscall.Errno) bool { return errors.Is(err, full) })
}

// isFullNow tells whether the disk was full and has not been seen with room since.
func (r *reserve) isFullNow() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.full
}

// hasBallast tells whether the ballast is there.
func (r *reserve) hasBallast() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ballast
}

// frees is how often the ballast was given free so far.
func (r *reserve) frees() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.freed
}

// found is called when something found the disk full that began after so many frees. It tells whether to try again:
// the ballast was given free, now or since.
func (r *reserve) found(cause error, frees int) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ballast {
		if err := r.FS.Remove(r.path()); err != nil {
			r.s.logger.Error("later: the disk is full and the reserve cannot be freed", "dir", r.s.dir, "cause", err)
		} else {
			r.freed++
		}
		r.ballast = false
	}
	r.setFull("sends are refused, claims and acks go on while the reserve lasts", cause)
	return r.freed > frees
}

// crowded is called when a compaction finds the disk full. The ballast is not for that.
func (r *reserve) crowded(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setFull("sends are refused, and tables are merged when there is room again", cause)
}

// setFull notes that the disk is full. The caller holds the lock.
func (r *reserve) setFull(text string, cause error) {
	if r.ended {
		return
	}
	if !r.full {
		r.full = true
		r.s.logger.Error("later: the disk is full; "+text, "dir", r.s.dir, "cause", cause)
	}
	r.watch()
}

// end is called when the store is closed: nobody waits for room any more.
func (r *reserve) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.ended, r.full = true, false
	close(r.over)
	r.changed.Broadcast()
}

func (r *reserve) path() string { return r.FS.PathJoin(r.s.dir, ballastFile) }

// watch starts the loop that looks for room. The caller holds the lock, and has not ended.
func (r *reserve) watch() {
	if r.watched {
		return
	}
	r.watched = true
	r.s.loops.Go(func() {
		for pause := fullLook; ; pause = ballastLook {
			if r.isFullNow() {
				pause = fullLook
			}
			ring, stop := r.s.clock.Alarm(r.s.clock.Now().Add(pause))
			select {
			case <-ring:
			case <-r.over:
			}
			stop()
			if r.look() {
				return
			}
		}
	})
}

// look ends the state of being full when there is room, and makes the ballast when there is room for that too. It
// tells whether there is nothing more to look for.
func (r *reserve) look() (done bool) {
	usage, err := r.FS.GetDiskUsage(r.s.dir)
	enough := errors.Is(err, vfs.ErrUnsupported) || err == nil && int64(usage.AvailBytes) >= r.size+enoughRoom
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return true
	}
	if r.full && enough {
		r.full = false
		r.changed.Broadcast()
		r.s.logger.Info("later: the disk has room again", "dir", r.s.dir)
	}
	if !r.ballast && r.size > 0 && err == nil {
		r.build(usage)
	}
	r.watched = r.full || !r.ballast && r.size > 0
	return !r.watched
}

// begin makes the ballast when the store is open, or has it made when there is room.
func (r *reserve) begin() {
	usage, err := r.FS.GetDiskUsage(r.s.dir)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled = false
	if err != nil { // nobody could tell when to give it back
		r.size = 0
	}
	r.size = min(r.size, int64(usage.TotalBytes/maxBallastPart))
	switch {
	case r.size == 0:
	case r.ballast:
		r.complete() // a copy of the directory may have it without the room that it stands for
	default:
		if r.build(usage); !r.ballast {
			r.watch()
		}
	}
}

// build makes the ballast if then there is still the room that sends need. The caller holds the lock.
func (r *reserve) build(usage vfs.DiskUsage) {
	if int64(usage.AvailBytes) < r.size+minFree {
		return
	}
	if err := r.complete(); err != nil {
		r.s.logger.Warn("later: no reserve for a full disk could be made", "dir", r.s.dir, "cause", err)
		r.FS.Remove(r.path())
		return
	}
	r.ballast = true
}

// complete sees that the ballast takes up its room.
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

// allocate makes a file take up its room. Where the system cannot do that alone, it is written.
func (r *reserve) allocate(f vfs.File) error {
	if runtime.GOOS == "linux" && f.Preallocate(0, r.size) == nil {
		_, err := f.WriteAt([]byte{1}, r.size-1)
		return err
	}
	if info, err := f.Stat(); err != nil || info.Size() >= r.size {
		return err
	}
	noise := make([]byte, 1<<20)
	state := uint64(0x9e3779b97f4a7c15)
	for at := int64(0); at < r.size; at += int64(len(noise)) {
		for i := range noise { // what a file system cannot compress; xorshift64, Marsaglia 2003
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
			noise[i] = byte(state)
		}
		if _, err := f.WriteAt(noise[:min(int64(len(noise)), r.size-at)], at); err != nil {
			return err
		}
	}
	return nil
}

// try does something that needs room, once more if that can help.
func (r *reserve) try(f func() error) error {
	frees := r.frees()
	err := f()
	if err != nil && isFull(err) && r.found(err, frees) {
		err = f()
	}
	return err
}

// Create is called for every new file. One of a compaction waits while the disk is full: Pebble would try again at
// once, for ever.
func (r *reserve) Create(name string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	if category == forCompaction {
		r.wait()
		f, err = r.FS.Create(name, category)
	} else {
		err = r.try(func() error {
			f, err = r.FS.Create(name, category)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return &reserveFile{f, r, category}, nil
}

// wait waits until there is room, or the writer cannot do without.
func (r *reserve) wait() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.full && !r.stalled {
		r.changed.Wait()
	}
}

// setStalled is told by Pebble that the writer has to wait until tables are merged, and when that ends. From then on
// compactions are as needful as the log.
func (r *reserve) setStalled(stalled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled = stalled
	r.changed.Broadcast()
}

// spared tells whether writing for a purpose is to leave the ballast alone, and to be left off while the disk is full.
func (r *reserve) spared(category vfs.DiskWriteCategory) (spared, full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return category == forCompaction && !r.stalled, r.full
}

// ReuseForWrite is called for a log that is written over an older one.
func (r *reserve) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = r.try(func() error {
		f, err = r.FS.ReuseForWrite(oldname, newname, category)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &reserveFile{f, r, category}, nil
}

// Link is called for tables and markers.
func (r *reserve) Link(oldname, newname string) error {
	return r.try(func() error { return r.FS.Link(oldname, newname) })
}

// Rename is called for markers and options.
func (r *reserve) Rename(oldname, newname string) error {
	return r.try(func() error { return r.FS.Rename(oldname, newname) })
}

// reserveFile is a file that is written.
type reserveFile struct {
	vfs.File
	r        *reserve
	category vfs.DiskWriteCategory
}

// Write writes all of p, once more if the disk was full and the ballast is free now. A failed sync is another
// matter: nobody knows what the disk has then, so it is never tried again.
func (f *reserveFile) Write(p []byte) (n int, err error) {
	spared, full := f.r.spared(f.category)
	if spared && full {
		return 0, syscall.ENOSPC // Pebble removes what the compaction has written so far
	}
	frees := f.r.frees()
	n, err = f.File.Write(p)
	if err == nil || !isFull(err) {
		return n, err
	}
	if spared {
		f.r.crowded(err)
		return n, err
	}
	if f.r.found(err, frees) {
		var more int
		more, err = f.File.Write(p[n:])
		n += more
	}
	if (f.category == forFlush || f.category == forCompaction) && err != nil && isFull(err) {
		f.r.exhausted(err)
	}
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}

// finding tells whether a full disk would find the store prepared.
func (r *reserve) finding() store.Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := store.Finding{Severity: store.SeverityNote, Check: "reserve"}
	switch {
	case r.full:
		f.Severity = store.SeverityWarning
		f.Text = "the disk was full a moment ago: sends are refused, and claims and acks use the reserve"
		f.Advice = "free some space"
	case r.ballast:
		f.Severity, f.Count = store.SeverityOK, r.size
		f.Text = fmt.Sprintf("%s are set aside for claims and acks on a full disk", formatBytes(uint64(r.size)))
	case r.size == 0:
		f.Text = "nothing can be set aside for a full disk here"
	default:
		f.Text = fmt.Sprintf("nothing is set aside for a full disk, as there is too little room: %s are needed", formatBytes(uint64(r.size)+minFree))
	}
	return f
}

// exhausted is called when not even the tables can be written that the writer waits for. Pebble would try again at once, for
// ever, and have the writer wait for it; so the store stops, and this goroutine of Pebble's too, as in Fatalf.
func (r *reserve) exhausted(cause error) {
	r.s.fail(cause)
	r.s.giveUp()
	select {}
}
