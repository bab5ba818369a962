package redistest

import (
	"os"
	"os/exec"
	"syscall"
)

// Windows cannot suspend a process, so tests that do so fail.
const (
	sigFreeze = syscall.Signal(19)
	sigThaw   = syscall.Signal(18)
)

// inGroup starts a server in its own process group if own is set.
func inGroup(cmd *exec.Cmd, own bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if own {
		cmd.SysProcAttr.CreationFlags = syscall.CREATE_NEW_PROCESS_GROUP
	}
}

var lockDir = os.TempDir()

// lockFile does nothing, so a server that is down may lose its port to another test.
func lockFile(*os.File) error { return nil }
