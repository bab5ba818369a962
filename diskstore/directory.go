package diskstore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// lockFile is locked while a process has the directory open.
const lockFile = "LOCK"

// socketFile is the socket of the holder, which serves the directory to other processes; see share.go.
const socketFile = "SOCKET"

// newSuffix is of a file that is being written, until it takes the name without it.
const newSuffix = ".new"

// directory is where a store's files are.
type directory struct {
	dir string
	fs  vfs.FS
}

// claimDirectory creates, locks and checks the directory. It reports whether the store is new, and whether it was
// closed in good order.
func (s *Store) claimDirectory() (isNew, wasClosed bool, err error) {
	if err := s.checkUser(); err != nil {
		return false, false, err
	}
	if err := s.makeDirectory(); err != nil {
		return false, false, fmt.Errorf("%w: creating the directory: %w", store.ErrUnavailable, s.advised(err))
	}
	if _, err := s.readFormat(); err != nil {
		return false, false, err // before a foreign directory gets a lock file
	}
	if s.owned, err = s.directory.lock(); err != nil {
		return false, false, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.owned.close())
		}
	}()
	if isNew, err = s.readFormat(); err != nil {
		return false, false, err
	}
	if r := s.checkMode(); r.Severity == store.SeverityWarning {
		s.logger.Warn("later: "+r.Text, "advice", r.Advice)
	}
	if _, err := s.readFile(holderFile); errors.Is(err, fs.ErrNotExist) {
		wasClosed = !isNew
	} else if err != nil {
		return false, false, s.readError(err)
	}
	err = s.reserve.try(func() error {
		if err := s.writeFile(holderFile, holder()); err != nil {
			return s.writeError(err)
		}
		if err := s.owned.keep(&s.directory, holderFile); err != nil {
			return err
		}
		if isNew {
			return s.beginCreation()
		}
		return nil
	})
	if err == nil && s.locked != nil {
		s.locked(s.dir)
	}
	return isNew, wasClosed, err
}

// makeDirectory creates the directory and its missing parents durably, and resolves its name, so that a symbolic link
// that changes later does not lead the open store elsewhere.
func (d *directory) makeDirectory() error {
	missing := d.missing()
	if err := d.fs.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	for _, made := range missing {
		if err := d.syncDirectory(d.fs.PathDir(made)); err != nil {
			return err
		}
	}
	if d.fs != defaultFS {
		return nil
	}
	dir, err := filepath.Abs(d.dir)
	if err == nil {
		d.dir, err = filepath.EvalSymlinks(dir)
	}
	return err
}

// missing returns the directory and those above it that do not exist, from the innermost on.
func (d *directory) missing() (dirs []string) {
	for at := d.dir; ; at = d.fs.PathDir(at) {
		if _, err := d.fs.Stat(at); !errors.Is(err, fs.ErrNotExist) || d.fs.PathDir(at) == at {
			return dirs
		}
		dirs = append(dirs, at)
	}
}

func (d *directory) syncDirectory(path string) error {
	dir, err := d.fs.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// lock locks the directory, or returns a HeldError when it is locked.
func (d *directory) lock() (*ownership, error) {
	o := &ownership{}
	err := d.lockInto(o)
	if err == nil {
		return o, nil
	}
	if closed := o.close(); closed != nil || !isHeld(err) {
		return nil, fmt.Errorf("%w: locking %s: %w", store.ErrUnavailable, d.dir, d.advised(errors.Join(err, closed)))
	}
	text, _ := d.readFile(holderFile)
	return nil, heldBy(d.dir, strings.TrimSpace(text))
}

func (d *directory) lockInto(o *ownership) (err error) {
	if d.fs == defaultFS {
		if o.dir, err = lockDirectory(d.dir); err != nil {
			return err
		}
	}
	if o.lock, err = pebble.LockDirectory(d.dir, d.fs); err != nil {
		return err
	}
	err = o.note(d, d.dir, d.dir)
	if err == nil {
		err = o.note(d, lockFile, d.fs.PathJoin(d.dir, lockFile))
	}
	return err
}

// isHeld reports whether a lock is held by another process. It is false when the lock file cannot be opened or the file
// system does not support locks.
func isHeld(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return false
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	return !ok || slices.Contains(heldErrors, errno)
}

// releaseDirectory unlocks the directory. inOrder says that all its files are complete; then holderFile goes, because
// the next open relies on its absence.
func (s *Store) releaseDirectory(inOrder bool) error {
	s.reserve.fence.raise()
	var err error
	if inOrder && s.owned.check() == nil {
		err = errors.Join(s.fs.Remove(s.fs.PathJoin(s.dir, holderFile)), s.syncDirectory(s.dir))
	}
	return errors.Join(err, s.owned.close())
}

func (d *directory) readFile(name string) (string, error) {
	f, err := d.fs.Open(d.fs.PathJoin(d.dir, name))
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(f)
	return string(b), errors.Join(err, f.Close())
}

// writeFile writes a file whole or not at all, durably.
func (d *directory) writeFile(name, text string) error {
	path := d.fs.PathJoin(d.dir, name)
	f, err := d.fs.Create(path+newSuffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := d.fs.Rename(path+newSuffix, path); err != nil {
		return err
	}
	return d.syncDirectory(d.dir)
}

// readError returns an ErrUnavailable for an error of reading the disk, or nil for nil.
func (d *directory) readError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: reading %s: %w", store.ErrUnavailable, d.dir, d.advised(err))
}

// writeError returns an ErrUnavailable for an error of writing to the disk, or nil for nil.
func (d *directory) writeError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: writing to %s: %w", store.ErrUnavailable, d.dir, d.advised(err))
}

// damaged returns an ErrCorrupt that names a file, with advice.
func (d *directory) damaged(file, format string, args ...any) error {
	return corrupt("%s in %s is damaged: %s; %s", file, d.dir, fmt.Sprintf(format, args...), d.advice())
}

// advice is the advice for a damaged file of a store that does not open.
func (d *directory) advice() string {
	return fmt.Sprintf("restore a backup, or see the damage with later doctor --store %s and copy all readable "+
		"messages to a new directory with --recover NEWDIR", d.url())
}

// url returns the directory's store URL.
func (d *directory) url() string {
	dir, err := filepath.Abs(d.dir)
	if err != nil {
		dir = d.dir
	}
	path := filepath.ToSlash(dir)
	if !strings.HasPrefix(path, "/") { // C:/later on Windows
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// isPermission reports whether a directory cannot be written to, as on read-only media.
func isPermission(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// checkTarget resolves the name of a new directory. It refuses a directory that is not empty, that is inside the
// directory of the other store, or that contains it.
func (d *directory) checkTarget(other string) error {
	if d.dir == "" {
		return store.Invalid("the name of the new directory is empty: name one that does not exist yet")
	}
	if d.fs == defaultFS {
		d.dir, other = resolve(d.dir), resolve(other)
	}
	if isInside(d.dir, other) || isInside(other, d.dir) {
		return store.Invalid("the new directory %s and the store's %s are in each other: give one elsewhere", d.dir,
			other)
	}
	names, err := d.fs.List(d.dir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return d.readError(err)
	case len(names) > 0:
		return store.Invalid("the new directory %s holds %s: give an empty one, or one that does not exist", d.dir,
			names[0])
	}
	return nil
}

// resolve returns the absolute name of a directory without symbolic links, as far as it exists.
func resolve(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	real, err := filepath.EvalSymlinks(dir)
	if parent := filepath.Dir(dir); err != nil && parent != dir {
		real = filepath.Join(resolve(parent), filepath.Base(dir))
	}
	return cmp.Or(real, dir)
}

// isInside reports whether the directory b is a or below it.
func isInside(a, b string) bool {
	rel, err := filepath.Rel(a, b)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// diskFS is the file system of the machine. Where the system has flock, it locks with that; see lock_flock.go.
type diskFS struct{ vfs.FS }

// Unwrap implements vfs.FS.
func (fs diskFS) Unwrap() vfs.FS { return fs.FS }

var defaultFS vfs.FS = diskFS{vfs.Default}

const root = 0 // as a user

// checkUser refuses to create files in the directory of another user, because that user could not open the store any
// more. The usual mistake is a command that root gives beside a service. A directory of root's that this user can write
// to is none: volumes are mounted like that.
func (d *directory) checkUser() error {
	if d.fs != defaultFS {
		return nil
	}
	me := os.Geteuid()
	if owner, ok := ownerOf(filepath.Join(d.dir, formatFile)); ok && owner != me {
		return d.foreign(owner)
	}
	existing := d.dir // or the nearest one above it that exists
	if missing := d.missing(); len(missing) > 0 {
		existing = filepath.Dir(missing[len(missing)-1])
	}
	if owner, ok := ownerOf(existing); ok && owner != me && owner != root {
		return d.foreign(owner)
	}
	return nil
}

// checkMode reports whether all users of this machine can read the directory or even change it. A store that is created
// with its directory is its user's alone; the mode of an existing directory may be intended, or be that of a volume,
// and stays. So do the rights of its group.
func (d *directory) checkMode() store.CheckResult {
	r := store.CheckResult{Severity: store.SeverityOK, Check: "access", Text: "other users cannot read the directory"}
	if d.fs != defaultFS || runtime.GOOS == "windows" { // modes say nothing there
		return r
	}
	is, err := os.Stat(d.dir)
	switch {
	case err != nil: // another check reports it
	case is.Mode().Perm()&0o002 != 0:
		r.Severity, r.Text = store.SeverityWarning, "every user of this machine can change or remove files of "+d.dir
	case is.Mode().Perm()&0o005 != 0:
		r.Severity, r.Text = store.SeverityNote, "every user of this machine can read messages in "+d.dir
	}
	if r.Severity != store.SeverityOK {
		r.Advice = "if that is not intended, chmod o= " + d.dir
	}
	return r
}

func (d *directory) foreign(owner int) error {
	me := os.Geteuid()
	return fmt.Errorf("%w: %s belongs to %s, who could not open the files that %s would create there: run this as "+
		"that user, with sudo -u %s, or give it away with chown -R %s %[2]s", store.ErrMisconfigured, d.dir,
		describeUser(owner), describeUser(me), sudoName(owner), userName(me))
}

// describeUser names a user for people: "user shop (1000)".
func describeUser(uid int) string {
	if name := userName(uid); name != strconv.Itoa(uid) {
		return fmt.Sprintf("user %s (%d)", name, uid)
	}
	return fmt.Sprintf("user %d", uid)
}

// userName names a user for chown: "shop", or "1000" if the user's name is unknown.
func userName(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return strconv.Itoa(uid)
	}
	return u.Username
}

// sudoName names a user for sudo: "shop", or "#1000" in quotes.
func sudoName(uid int) string {
	if name := userName(uid); name != strconv.Itoa(uid) {
		return name
	}
	return fmt.Sprintf("'#%d'", uid)
}

// replace renames another directory to this one, which is missing or empty, durably.
func (d *directory) replace(other *directory) error {
	if err := d.fs.Remove(d.dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // not empty any more, for one
		return err
	}
	if err := d.fs.Rename(other.dir, d.dir); err != nil {
		return err
	}
	if err := d.syncDirectory(d.fs.PathDir(d.dir)); err != nil {
		return errors.Join(err, d.fs.RemoveAll(d.dir))
	}
	return nil
}

// removeAll removes the directory of something unfinished.
func (d *directory) removeAll() error {
	if err := d.fs.RemoveAll(d.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: removing what is unfinished: %w: remove %s", store.ErrUnavailable, err, d.dir)
	}
	return nil
}
