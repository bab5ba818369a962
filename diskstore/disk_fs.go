package diskstore

import "github.com/cockroachdb/pebble/v2/vfs"

// diskFS is the file system of the machine. Where the system has flock, it locks with that; see lock_flock.go.
type diskFS struct{ vfs.FS }

// Unwrap implements vfs.FS.
func (fs diskFS) Unwrap() vfs.FS { return fs.FS }

var defaultFS vfs.FS = diskFS{vfs.Default}
