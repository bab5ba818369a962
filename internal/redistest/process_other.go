//go:build !linux

package redistest

import "os/exec"

// dieWithParent does nothing here: only Linux can tie a server's life to that of the test binary. A test
// binary that is killed leaves its servers behind.
func dieWithParent(*exec.Cmd) {}
