//go:build unix

package diskstore

import "syscall"

var (
	// fullErrors are the errors of a full disk or an exhausted quota.
	fullErrors = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}
	// heldErrors are the errors of locking a file that another process has locked: POSIX allows either.
	heldErrors = []syscall.Errno{syscall.EAGAIN, syscall.EACCES}
)
