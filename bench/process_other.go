//go:build !linux

package main

import "syscall"

// dieWithParent does nothing here: only Linux can tie a child's life to ours.
func dieWithParent(*syscall.SysProcAttr) {}
