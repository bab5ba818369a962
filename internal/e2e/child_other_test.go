//go:build !linux

package e2e

import "os/exec"

// dieWithParent does nothing here: only Linux can tie a child's life to that of the test binary.
func dieWithParent(*exec.Cmd) {}
