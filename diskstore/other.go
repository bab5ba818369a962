//go:build !unix

package diskstore

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// identity is empty: on Windows no open file can be moved or removed, nor a directory with one in it.
type identity struct{}

func identify(string) (identity, error) { return identity{}, nil }

// ownerOf returns false: this system does not number its users.
func ownerOf(string) (uid int, ok bool) { return 0, false }

var (
	// fullErrors are the errors of a full disk or an exhausted quota: ENOSPC, which Go and this package return, and
	// ERROR_HANDLE_DISK_FULL, ERROR_DISK_FULL and ERROR_DISK_QUOTA_EXCEEDED.
	fullErrors = []syscall.Errno{syscall.ENOSPC, 39, 112, 1295}
	// heldErrors are the errors of locking a file that another process has locked: ERROR_SHARING_VIOLATION.
	heldErrors = []syscall.Errno{32}
)

// sharable reports whether processes of this system can share a directory.
const sharable = false

func listenSocket(string) (net.Listener, error) { return nil, errors.ErrUnsupported }

func removeSocket(net.Listener) {}

func dialSocket(context.Context, string) (net.Conn, error) { return nil, errors.ErrUnsupported }
