//go:build !linux

package main

import "syscall"

// dieWithParent does nothing, because only Linux ties a child's life to its parent's.
func dieWithParent(*syscall.SysProcAttr) {}
