package chaos

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// exchange exchanges two directories in one step.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// mountDisk mounts a small file system at a directory.
func mountDisk(dir string) error {
	if err := unix.Mount("later-chaos", dir, "tmpfs", 0, fmt.Sprint("mode=700,size=", diskSize)); err != nil {
		return fmt.Errorf("%w: %v", errNoDisk, err)
	}
	return nil
}

func unmountDisk(dir string) error { return unix.Unmount(dir, unix.MNT_DETACH) }
