//go:build unix && !linux

package chaos

import "os/exec"

// dieWithParent does nothing, because only Linux ties a child's life to its parent's.
func dieWithParent(*exec.Cmd) {}
