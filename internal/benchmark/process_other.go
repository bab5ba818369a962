//go:build !unix

package benchmark

import "time"

// ProcessCPU returns the CPU time used by all threads of this process. ok is false if the system does not report it.
func ProcessCPU() (used time.Duration, ok bool) { return 0, false }
