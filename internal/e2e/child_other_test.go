//go:build !linux

package e2e

import "os/exec"

// dieWithParent does nothing, because only Linux ties a child's life to the test binary's.
func dieWithParent(*exec.Cmd) {}
