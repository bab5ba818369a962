//go:build unix

package chaos

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the child killed when this process dies, however it dies, even while it is stopped.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
