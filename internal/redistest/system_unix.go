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

// inGroup has a server begin a process group of its own, if apart is set.
func inGroup(cmd *exec.Cmd, apart bool) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: apart} }

// lockDir is the same for all processes, whatever their TMPDIR.
const lockDir = "/tmp"

// lockFile locks a file that no other process has locked. The lock ends with the process, or when the file is closed.
func lockFile(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errLocked
	}
	return nil
}
