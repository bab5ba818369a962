//go:build unix

package benchmark

import (
	"syscall"
	"time"
)

// ProcessCPU returns the CPU time used by all threads of this process. ok is false if the system does not report it.
func ProcessCPU() (used time.Duration, ok bool) {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0, false
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), true
}
