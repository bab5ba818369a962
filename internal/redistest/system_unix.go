//go:build unix

package redistest

import (
	"os/exec"
	"syscall"
)

const (
	sigFreeze = syscall.SIGSTOP
	sigThaw   = syscall.SIGCONT
)

// inGroup has a server begin a process group of its own, if apart is set.
func inGroup(cmd *exec.Cmd, apart bool) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: apart} }
