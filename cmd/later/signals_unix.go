//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// signalActions maps the signals other than stopSignals to actions of later work and later forward.
var signalActions = map[os.Signal]signalAction{
	syscall.SIGTSTP: actionPause, syscall.SIGCONT: actionResume, syscall.SIGUSR2: actionRestart,
}

// errPipeClosed are the errors of writing to a pipe without a reader.
var errPipeClosed = []error{syscall.EPIPE}

// ownGroup makes a command start in a new process group, which a Ctrl-C at the terminal does not reach.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// endGroup sends SIGTERM to a process group.
func endGroup(leader int) { syscall.Kill(-leader, syscall.SIGTERM) }

// killGroup kills a process group.
func killGroup(leader int) { syscall.Kill(-leader, syscall.SIGKILL) }
