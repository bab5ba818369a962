//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// wishes are what signals other than those that stop a program ask of later work.
var wishes = map[os.Signal]wish{syscall.SIGTSTP: wishPause, syscall.SIGCONT: wishResume, syscall.SIGUSR2: wishRestart}

// errPipeClosed are what writing to a pipe gives that nobody reads.
var errPipeClosed = []error{syscall.EPIPE}

// ownGroup has a command begin a process group of its own, to which a Ctrl-C at the terminal does not go.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// endGroup asks a process group to end.
func endGroup(leader int) { syscall.Kill(-leader, syscall.SIGTERM) }

// killGroup kills what is left of a process group.
func killGroup(leader int) { syscall.Kill(-leader, syscall.SIGKILL) }
