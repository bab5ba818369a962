//go:build !unix

package quota

import "time"

// ProcessCPU returns the CPU time that all threads of this process have used. It reports false if the system does not
// tell.
func ProcessCPU() (used time.Duration, ok bool) { return 0, false }
