package e2e

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the child killed when the test binary dies, however it dies, even while it is stopped.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
