//go:build unix

package diskstore

import "syscall"

var (
	// fullErrors: the disk has no room, or its user may have no more of it.
	fullErrors = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}
	// heldErrors are what a lock gives that another process has: POSIX lets fcntl say either.
	heldErrors = []syscall.Errno{syscall.EAGAIN, syscall.EACCES}
)
