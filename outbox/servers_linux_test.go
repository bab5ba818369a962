package outbox

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// runAs makes a command run as the user if this process is root, and die with this process.
func runAs(cmd *exec.Cmd, name string) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := idsOf(name)
	if err == nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return err
}

// giveTo makes the user the owner of a directory if this process is root.
func giveTo(dir, name string) error {
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := idsOf(name)
	if err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

func idsOf(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, err
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

// dieWithParent makes the kernel kill the command when this process dies for any reason.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
