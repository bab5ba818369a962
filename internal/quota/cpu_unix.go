//go:build unix

package quota

import (
	"syscall"
	"time"
)

// ProcessCPU returns the CPU time that all threads of this process have used. It reports false if the system does not
// tell.
func ProcessCPU() (used time.Duration, ok bool) {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0, false
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), true
}
