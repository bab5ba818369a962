//go:build unix

package diskstore

import (
	"errors"
	"syscall"
)

// identity tells a file from all others that exist at the same time.
type identity struct{ device, inode uint64 }

// identify returns the identity of the file at a path.
func identify(path string) (identity, error) {
	for {
		var st syscall.Stat_t
		err := syscall.Stat(path, &st)
		if !errors.Is(err, syscall.EINTR) {
			return identity{uint64(st.Dev), uint64(st.Ino)}, err
		}
	}
}

// ownerOf returns the id of the user to whom a file belongs, and false where that is unknown.
func ownerOf(path string) (uid int, ok bool) {
	var st syscall.Stat_t
	err := syscall.Stat(path, &st)
	return int(st.Uid), err == nil
}
