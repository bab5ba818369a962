//go:build unix

package benchmark

import (
	"syscall"
	"time"
)

// ProcessCPU is the CPU time that this process has used, of all its threads; ok is false where nobody tells.
func ProcessCPU() (used time.Duration, ok bool) {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0, false
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), true
}
