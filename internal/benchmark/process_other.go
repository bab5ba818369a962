//go:build !unix

package benchmark

import "time"

// ProcessCPU is the CPU time that this process has used, of all its threads; ok is false where nobody tells.
func ProcessCPU() (used time.Duration, ok bool) { return 0, false }
