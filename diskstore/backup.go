package diskstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

var _ store.Backuper = (*Store)(nil)

const (
	// partialSuffix is appended to a backup's directory while the backup is being made.
	partialSuffix = ".partial"
	// backupTries is how often a copy is made without holding up calls. Pebble copies its log while the log is
	// written over an older one, so the end of the copy can be a mix of both, which does not verify.
	backupTries = 2
	// backupFile is in a backup that was made for a store.Request, and has its session, so that the request can be
	// repeated.
	backupFile = "BACKUP"
	// backupMargin is the room that a backup leaves on its disk. A backup must not fill the store's own disk.
	backupMargin = 64 << 20
)

// Backup implements store.Backuper. The copy is made in dir+".partial" and renamed when it is complete and verified: a
// process that is killed before that leaves this directory behind, to be removed. Tables are hard links where both
// directories are on one file system. Calls go on while the copy is made; in the rare case that the log could not be
// copied while it was written to, they wait for one more copy of it. ctx is looked at between the steps. A backup of a
// store.Request that was interrupted starts again when it is repeated; a complete one is not repeated.
func (s *Store) Backup(ctx context.Context, dir string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	select {
	case s.backups <- struct{}{}: // one at a time: an earlier attempt at this one may not have ended
		defer func() { <-s.backups }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	request, _ := store.RequestOf(ctx)
	target := directory{dir, s.fs}
	err := target.checkTarget(s.dir)
	partial := directory{target.dir + partialSuffix, s.fs}
	if completed := err != nil && target.isBackupOf(request); err == nil || completed {
		err = s.removeInterrupted(&partial, request)
		if err == nil && completed {
			return backupFailed(target.dir, target.syncDirectory(target.fs.PathDir(target.dir)))
		}
	}
	if err != nil {
		return err
	}
	if err := partial.makeDirectory(); err != nil {
		return backupFailed(target.dir, err)
	}
	// Pebble makes its directory readable by everybody, so the copy is made inside one that is not.
	copied := directory{s.fs.PathJoin(partial.dir, "store"), s.fs}
	err = partial.markBackup(request)
	if err == nil {
		err = s.checkBackupRoom(&partial)
	}
	if err == nil {
		err = s.copyTo(ctx, &copied)
	}
	if err == nil {
		err = copied.markBackup(request)
	}
	if err == nil {
		err = s.interrupted(ctx)
	}
	if err == nil {
		err = backupFailed(target.dir, target.replace(&copied))
	}
	return errors.Join(err, copied.removeAll(), partial.removeAll()) // the mark goes last
}

// markBackup notes the request of a backup.
func (d *directory) markBackup(r store.Request) error {
	if r.Session == "" {
		return nil
	}
	return backupFailed(d.dir, d.writeFile(backupFile, r.Session))
}

// isBackupOf reports whether a directory is a backup that was made for a request, or the beginning of one.
func (d *directory) isBackupOf(r store.Request) bool {
	session, err := d.readFile(backupFile)
	return err == nil && r.Session != "" && session == r.Session
}

// removeInterrupted removes the rest of an interrupted attempt at the same backup.
func (s *Store) removeInterrupted(partial *directory, r store.Request) error {
	names, err := s.fs.List(partial.dir)
	if err != nil {
		return nil // and makeDirectory reports the problem
	}
	unmarked := r.Session != "" && !slices.ContainsFunc(names, func(n string) bool { return n != backupFile+newSuffix })
	if !unmarked && !partial.isBackupOf(r) {
		return store.Invalid("%s belongs to a backup that was interrupted, or is under way: remove it, or give "+
			"another directory", partial.dir)
	}
	return partial.removeAll()
}

// checkBackupRoom refuses a backup when the disk has too little room for it. A disk that fills up during a backup would
// cost the store the reserve that it keeps for its own log. Tables take no room where they can be linked.
func (s *Store) checkBackupRoom(partial *directory) error {
	usage, err := s.fs.GetDiskUsage(partial.dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return backupFailed(partial.dir, err)
	}
	metrics := s.db.Metrics()
	need := backupMargin + metrics.DiskSpaceUsage()
	probe := s.fs.PathJoin(partial.dir, "link")
	if s.fs.Link(s.fs.PathJoin(s.dir, formatFile), probe) == nil {
		need = backupMargin + metrics.WAL.PhysicalSize
		s.fs.Remove(probe)
	}
	if usage.AvailBytes < need {
		return fmt.Errorf("%w: a backup in %s needs %s free and there are %s: make room, or give a directory on "+
			"another disk", store.ErrFull, s.fs.PathDir(partial.dir), formatBytes(need), formatBytes(usage.AvailBytes))
	}
	return nil
}

// copyTo makes a verified copy in a directory that does not exist. The last try is made by the writer, so that nothing
// is written to the log during it.
func (s *Store) copyTo(ctx context.Context, copied *directory) error {
	for try := 0; ; try++ {
		stamp := []byte(rand.Text())
		var failed error
		err := s.do(ctx, "", inOrder, func(t *tx) {
			if failed = t.writeStamp(stamp); failed == nil && try == backupTries {
				failed = s.pebbleCheckpoint(copied)
			}
		})
		if err == nil { // else the writer may never leave it
			err = failed
		}
		if err == nil && try < backupTries {
			err = s.pebbleCheckpoint(copied)
		}
		if err == nil {
			err = s.verify(ctx, copied, stamp)
		}
		if try == backupTries || !errors.Is(err, store.ErrCorrupt) {
			return err
		}
		if err := copied.removeAll(); err != nil {
			return err
		}
	}
}

// writeStamp writes a value that a backup must contain. Everything that was acknowledged before precedes it in the log.
func (t *tx) writeStamp(stamp []byte) error {
	t.durable = true
	t.set(appendKey(nil, 0, kindStamp), stamp)
	return t.flush()
}

func (s *Store) pebbleCheckpoint(copied *directory) error {
	return backupFailed(copied.dir, s.guarded(func() (err error) {
		defer recovered(&err) // Pebble panics when a directory cannot be synced, here that of the copy
		return s.db.Checkpoint(copied.dir, pebble.WithFlushedWAL())
	}))
}

// verify makes a store of the copy, and opens it: that reads the logs and the list of files, and checks that each file
// is there with its size. The copy is complete if it has the stamp. Once it was closed, a later open requires that its
// log ends cleanly.
func (s *Store) verify(ctx context.Context, copied *directory, stamp []byte) error {
	if err := s.interrupted(ctx); err != nil {
		return err
	}
	if s.fs == defaultFS {
		if err := os.Chmod(copied.dir, 0o700); err != nil {
			return backupFailed(copied.dir, err)
		}
	}
	// The copied log ends where it was, as after a crash, and holderFile says so.
	err := copied.writeFile(holderFile, holder())
	if err == nil {
		err = copied.writeFile(formatFile, formatText)
	}
	if err != nil {
		return backupFailed(copied.dir, err)
	}
	c, err := Open(copied.dir, withFS(s.fs), withReserve(0), withMemTable(s.memTable), WithClock(s.clock))
	if err == nil {
		r := &reader{s: c, src: c.db}
		found, _, failed := r.get(appendKey(nil, 0, kindStamp))
		if failed == nil && !bytes.Equal(found, stamp) {
			failed = corrupt("its log is damaged")
		}
		err = errors.Join(failed, c.Close())
	}
	if err != nil {
		return fmt.Errorf("the backup is not complete and was removed; check the store with later doctor: %w", err)
	}
	return nil
}

// backupFailed returns the error of a backup, or nil for nil.
func backupFailed(dir string, err error) error {
	if err == nil {
		return nil
	}
	if isFullError(err) {
		return fmt.Errorf("%w: making a backup in %s: %w: give a directory on another disk", store.ErrFull, dir, err)
	}
	return fmt.Errorf("%w: making a backup in %s: %w", store.ErrUnavailable, dir, (&directory{dir: dir}).advised(err))
}
