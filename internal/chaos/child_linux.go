//go:build unix

package chaos

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child when this process dies for any reason, even while it is stopped.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
