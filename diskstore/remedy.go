package diskstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// noAccess are the errors of a process that may not read a file. They say nothing about its content.
var noAccess = []error{fs.ErrPermission, syscall.EMFILE, syscall.ENFILE}

// isNoAccess reports whether a file could not be reached, so that it may be intact.
func isNoAccess(err error) bool {
	for _, no := range noAccess {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// remedy returns advice for an error of the disk, or "" if there is none.
func (d *directory) remedy(err error) string {
	_, lost := errors.AsType[notOwned](err)
	switch {
	case lost:
		return "start the program again to open the directory that is at the path now, and stop it before you move " +
			"or replace its directory"
	case errors.Is(err, syscall.EROFS):
		return "mount the file system for writing"
	case errors.Is(err, fs.ErrPermission):
		me := os.Geteuid()
		if at, ok := errors.AsType[*fs.PathError](err); ok && at.Op == "mkdir" { // there is nothing yet to give away
			return fmt.Sprintf("give %s write access to %s, or use another directory", describeUser(me),
				filepath.Dir(at.Path))
		}
		return fmt.Sprintf("give %s access to all of it, with chown -R %s %s and chmod -R u+rwX %[3]s",
			describeUser(me), userName(me), d.dir)
	case errors.Is(err, syscall.EMFILE):
		return "this process has too many files open: raise its limit, with ulimit -n 65536 or LimitNOFILE=65536 of " +
			"systemd"
	case errors.Is(err, syscall.ENFILE):
		return "this machine has too many files open: raise its limit, with sysctl fs.file-max on Linux"
	case isFullError(err):
		return "free some space"
	}
	return ""
}

// advised adds advice to an error of the disk.
func (d *directory) advised(err error) error {
	if remedy := d.remedy(err); remedy != "" {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}
