//go:build !linux

package redistest

import "os/exec"

// dieWithParent does nothing, because only Linux ties a server's life to the test binary's. A test binary that is
// killed leaves its servers behind.
func dieWithParent(*exec.Cmd) {}
