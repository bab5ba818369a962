package diskstore

import "syscall"

var (
	// fullErrors: the disk has no room, or its user may have no more of it. ENOSPC is what Go and this package say,
	// the others ERROR_HANDLE_DISK_FULL, ERROR_DISK_FULL and ERROR_DISK_QUOTA_EXCEEDED.
	fullErrors = []syscall.Errno{syscall.ENOSPC, 39, 112, 1295}
	// heldErrors are what a lock gives that another process has: ERROR_SHARING_VIOLATION.
	heldErrors = []syscall.Errno{32}
)
