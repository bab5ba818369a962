package diskstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/laterq/later/store"
)

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
	if owner, ok := ownerOf(d.existing()); ok && owner != me && owner != root {
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

// existing returns the directory, or the nearest one above it that exists.
func (d *directory) existing() string {
	at, err := filepath.Abs(d.dir)
	if err != nil {
		return d.dir
	}
	for {
		_, err := os.Stat(at)
		parent := filepath.Dir(at)
		if !errors.Is(err, fs.ErrNotExist) || parent == at {
			return at
		}
		at = parent
	}
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

// userName names a user for chown: "shop", or "1000" where that has no name.
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
