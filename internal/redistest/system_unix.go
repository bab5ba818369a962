//go:build unix

package redistest

import (
	"os"
	"os/exec"
	"syscall"
)

const (
	sigFreeze = syscall.SIGSTOP
	sigThaw   = syscall.SIGCONT
)

// inGroup starts a server in its own process group if own is set.
func inGroup(cmd *exec.Cmd, own bool) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: own} }

// lockDir does not depend on TMPDIR, so that all processes use the same one.
const lockDir = "/tmp"

// lockFile locks a file that no other process has locked. The lock is released when the file is closed or the process
// ends.
func lockFile(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errLocked
	}
	return nil
}
