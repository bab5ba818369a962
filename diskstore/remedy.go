package diskstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// noAccess are the errors of a machine that does not let this process at a file. They say nothing about what is in it.
var noAccess = []error{fs.ErrPermission, syscall.EMFILE, syscall.ENFILE}

// isNoAccess reports whether a file could not be reached, so that nobody knows whether it is damaged.
func isNoAccess(err error) bool {
	for _, no := range noAccess {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// remedy says what to do about an error of the disk, "" if it is unknown.
func (d *directory) remedy(err error) string {
	_, lost := errors.AsType[notOwned](err)
	switch {
	case lost:
		return "start the program again to open what is at the path now, and stop it before you move or replace its directory"
	case errors.Is(err, syscall.EROFS):
		return "mount the file system for writing"
	case errors.Is(err, fs.ErrPermission):
		me := os.Geteuid()
		if at, ok := errors.AsType[*fs.PathError](err); ok && at.Op == "mkdir" { // there is nothing yet to give away
			return fmt.Sprintf("give %s write access to %s, or use another directory", describeUser(me),
				filepath.Dir(at.Path))
		}
		return fmt.Sprintf("give %s access to all of it, with chown -R %s %s and chmod -R u+rwX %[3]s", describeUser(me),
			userName(me), d.dir)
	case errors.Is(err, syscall.EMFILE):
		return "this process has too many files open: raise its limit, with ulimit -n 65536 or LimitNOFILE=65536 of systemd"
	case errors.Is(err, syscall.ENFILE):
		return "this machine has too many files open: raise its limit, with sysctl fs.file-max on Linux"
	case isFullError(err):
		return "free some space"
	}
	return ""
}

// advised adds to an error of the disk what to do about it.
func (d *directory) advised(err error) error {
	if remedy := d.remedy(err); remedy != "" {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}
