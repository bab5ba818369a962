package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the server killed when the test binary dies, however it dies.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
