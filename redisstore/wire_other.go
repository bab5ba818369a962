//go:build !linux

package redisstore

import "net"

// wire is the connection of a line.
type wire struct{ net.Conn }

func newWire(conn net.Conn) *wire { return &wire{conn} }

// send sends a command. lately says that the connection was used lately.
func (w *wire) send(command []byte, lately bool) error {
	_, err := w.Write(command)
	return err
}
