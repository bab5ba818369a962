package diskstore

import "syscall"

var (
	// fullErrors are the errors of a full disk or an exhausted quota: ENOSPC, which Go and this package return, and
	// ERROR_HANDLE_DISK_FULL, ERROR_DISK_FULL and ERROR_DISK_QUOTA_EXCEEDED.
	fullErrors = []syscall.Errno{syscall.ENOSPC, 39, 112, 1295}
	// heldErrors are the errors of locking a file that another process has locked: ERROR_SHARING_VIOLATION.
	heldErrors = []syscall.Errno{32}
)
