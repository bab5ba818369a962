//go:build unix

package diskstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// identity tells a file from all others that exist at the same time.
type identity struct{ device, inode uint64 }

// identify returns the identity of the file at a path.
func identify(path string) (identity, error) {
	for {
		var st syscall.Stat_t
		err := syscall.Stat(path, &st)
		if !errors.Is(err, syscall.EINTR) {
			return identity{uint64(st.Dev), uint64(st.Ino)}, err
		}
	}
}

// ownerOf returns the id of the user who owns a file. ok is false when the owner is unknown.
func ownerOf(path string) (uid int, ok bool) {
	var st syscall.Stat_t
	err := syscall.Stat(path, &st)
	return int(st.Uid), err == nil
}

var (
	// fullErrors are the errors of a full disk or an exhausted quota.
	fullErrors = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}
	// heldErrors are the errors of locking a file that another process has locked: POSIX allows either.
	heldErrors = []syscall.Errno{syscall.EAGAIN, syscall.EACCES}
)

// sharable reports whether processes of this system can share a directory.
const sharable = true

// maxSocketPath is how long the path of a socket can be: 104 bytes with a final zero on macOS and the BSDs, 108 on
// Linux.
const maxSocketPath = 103

// listenSocket listens at the socket of a directory that this process has locked. Only its user can connect. A socket
// that was left by a process that was killed is replaced.
func listenSocket(dir string) (net.Listener, error) {
	path := filepath.Join(dir, socketFile)
	if err := os.Remove(path + newSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	address, done, err := socketAddress(dir, socketFile+newSuffix)
	if err != nil {
		return nil, err
	}
	defer done()
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// On Linux this is the mode of the file that is made. Elsewhere the directory's mode protects it until Chmod.
		return c.Control(func(fd uintptr) { syscall.Fchmod(int(fd), 0o600) })
	}}
	listener, err := private.Listen(context.Background(), "unix", address)
	if err != nil {
		return nil, err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	made := &socket{Listener: listener, path: path}
	if err = os.Chmod(path+newSuffix, 0o600); err == nil {
		made.id, err = identify(path + newSuffix)
	}
	if err == nil {
		err = os.Rename(path+newSuffix, path)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return made, nil
}

// socket is the listener of listenSocket.
type socket struct {
	net.Listener
	path string
	id   identity
}

// removeSocket has others no longer connect. It leaves the socket of a process that has opened the directory since.
func removeSocket(l net.Listener) {
	s := l.(*socket)
	if now, err := identify(s.path); err == nil && now == s.id {
		os.Remove(s.path)
	}
}

// dialSocket connects to the process that has a directory open.
func dialSocket(ctx context.Context, dir string) (net.Conn, error) {
	address, done, err := socketAddress(dir, socketFile)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	return d.DialContext(ctx, "unix", address)
}

// socketAddress returns a path of a file in a directory that is short enough for a socket. The caller calls done when
// it has used it.
func socketAddress(dir, name string) (address string, done func(), err error) {
	if path := filepath.Join(dir, name); len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	return linkAddress(dir, name)
}

// linkAddress leads through a symbolic link in a temporary directory that only this user can read.
func linkAddress(dir, name string) (address string, done func(), err error) {
	temporary, err := os.MkdirTemp("", "later-")
	if err != nil {
		return "", nil, err
	}
	done = func() { os.RemoveAll(temporary) }
	link := filepath.Join(temporary, "d")
	address = filepath.Join(link, name)
	if err = os.Symlink(dir, link); err == nil && len(address) > maxSocketPath {
		err = fmt.Errorf("the path %s is too long for a socket: set TMPDIR to a shorter one", address)
	}
	if err != nil {
		done()
		return "", nil, err
	}
	return address, done, nil
}
