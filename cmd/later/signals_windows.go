package main

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// wishes are none: Windows has no signals but Ctrl-C, Ctrl-Break and the end of the console or of the session.
var wishes map[os.Signal]wish

// errPipeClosed are what writing to a pipe gives that nobody reads; 232 is ERROR_NO_DATA.
var errPipeClosed = []error{syscall.ERROR_BROKEN_PIPE, syscall.Errno(232)}

// ownGroup has a command begin a process group of its own, to which a Ctrl-C at the console does not go.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// endGroup kills: Windows has no way to ask that every program understands.
func endGroup(leader int) { killGroup(leader) }

// killGroup kills a process and all that descend from it by processes that are still there.
func killGroup(leader int) {
	exec.Command("taskkill", "/t", "/f", "/pid", strconv.Itoa(leader)).Run() // it may have ended, which is an error
}
