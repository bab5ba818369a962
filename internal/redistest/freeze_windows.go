package redistest

import "syscall"

// Windows cannot stop a process: a test that asks for it fails.
const (
	sigFreeze = syscall.Signal(19)
	sigThaw   = syscall.Signal(18)
)
