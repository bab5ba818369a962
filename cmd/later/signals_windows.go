package main

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// signalActions is empty: Windows has only Ctrl-C, Ctrl-Break and the end of the console or of the session.
var signalActions map[os.Signal]signalAction

// errPipeClosed are the errors of writing to a pipe without a reader; 232 is ERROR_NO_DATA.
var errPipeClosed = []error{syscall.ERROR_BROKEN_PIPE, syscall.Errno(232)}

// ownGroup makes a command start in a new process group, which a Ctrl-C at the console does not reach.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// endGroup kills the group, because Windows lacks a request to end that every program understands.
func endGroup(leader int) { killGroup(leader) }

// killGroup kills a process and its descendants, as far as their parent processes still exist.
func killGroup(leader int) {
	exec.Command("taskkill", "/t", "/f", "/pid", strconv.Itoa(leader)).Run() // fails if the process has ended
}
