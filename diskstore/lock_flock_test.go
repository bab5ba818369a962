//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package diskstore

import (
	"path/filepath"
	"syscall"
	"testing"
)

// A process that is being started holds a copy of the descriptor for a moment.
func TestLockEndsWhileACopyOfItsDescriptorIsOpen(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	held, err := diskFS{}.Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	duplicate, err := syscall.Dup(int(held.(heldLock).Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(duplicate)
	if again, err := (diskFS{}).Lock(name); err == nil {
		again.Close()
		t.Fatal("the lock was taken twice")
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := diskFS{}.Lock(name)
	if err != nil {
		t.Fatalf("the lock is held after its Close: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
