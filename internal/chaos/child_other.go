//go:build unix && !linux

package chaos

import "os/exec"

// dieWithParent does nothing here: only Linux can tie a child's life to that of its parent.
func dieWithParent(*exec.Cmd) {}
