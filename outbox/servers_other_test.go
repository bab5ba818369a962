//go:build !linux

package outbox

import "os/exec"

// Only Linux ties a process's life to that of its parent. As root, the tests run on Linux only.
func runAs(*exec.Cmd, string) error { return nil }
func giveTo(string, string) error   { return nil }
func dieWithParent(*exec.Cmd)       {}
