package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// The ports lie below the range of ports that systems choose for outgoing connections, so that no connection takes the
// port of a server that is down until its Restart.
const firstPort, lastPort = 15000, 31999

// portTries is how often a start is attempted when another process binds the free port first.
const portTries = 20

// claimedPort is a port that no other Server takes, in any process, until it is released or this process ends. While a
// server is down its port is free. Its clients and replicas would connect to another server at that port, and a replica
// would even discard its data.
type claimedPort struct {
	number int
	lock   *os.File
}

// claimPort claims a port that is free now.
func claimPort(host string) (*claimedPort, error) {
	dir := filepath.Join(lockDir, fmt.Sprint("later-ports-", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var tried error
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		lock, err := createLock(filepath.Join(dir, strconv.Itoa(port)))
		if err == nil {
			var l net.Listener
			if l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
				l.Close()
				return &claimedPort{port, lock}, nil
			}
			unlock(lock)
		}
		tried = err
	}
	return nil, fmt.Errorf("no free port after %d tries: %w", portTries, tried)
}

func (p *claimedPort) release() { unlock(p.lock) }

var errLocked = errors.New("another server has the lock")

// createLock creates a lock file, or reuses one left by a dead process, and locks it.
func createLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = lockFile(f)
	if err == nil {
		// The last holder may have removed the file in between. Then another process may create and lock a new one.
		opened, _ := f.Stat()
		now, statErr := os.Stat(path)
		if statErr == nil && os.SameFile(opened, now) {
			return f, nil
		}
		err = errLocked
	}
	return nil, errors.Join(err, f.Close())
}

func unlock(f *os.File) {
	os.Remove(f.Name())
	f.Close()
}
