//go:build !unix

package diskstore

import (
	"context"
	"errors"
	"net"
)

// sharable reports whether processes of this system can share a directory.
const sharable = false

func listenSocket(string) (net.Listener, error) { return nil, errors.ErrUnsupported }

func removeSocket(net.Listener) {}

func dialSocket(context.Context, string) (net.Conn, error) { return nil, errors.ErrUnsupported }
