package redistest

import (
	"os"
	"os/exec"
	"syscall"
)

// Windows cannot stop a process: a test that asks for it fails.
const (
	sigFreeze = syscall.Signal(19)
	sigThaw   = syscall.Signal(18)
)

// inGroup has a server begin a process group of its own, if apart is set.
func inGroup(cmd *exec.Cmd, apart bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if apart {
		cmd.SysProcAttr.CreationFlags = syscall.CREATE_NEW_PROCESS_GROUP
	}
}

var lockDir = os.TempDir()

// lockFile does nothing: a server that is down may lose its port to another test's.
func lockFile(*os.File) error { return nil }
