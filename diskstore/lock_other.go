//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package diskstore

import "os"

// lockDirectory does nothing: directories cannot be locked here.
func lockDirectory(string) (*os.File, error) { return nil, nil }

// heldLock is a locked directory.
type heldLock struct{ *os.File }
