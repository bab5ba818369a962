package e2e

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child when the test binary dies for any reason, even while it is stopped.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
