package main

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/laterq/later/internal/quota"
	"github.com/laterq/later/server/access"
)

// Limits of the memory that clients can take up in a server before they have authenticated.
const (
	// A client sends the head of a request at once, and keeps a connection open for the next one.
	headTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
	// maxHead is how many bytes a head has. The headers of a message are up to 16 KiB of it.
	maxHead        = 24 << 10
	maxConnections = 16_384
	// Of HTTP/2: requests of a connection at a time, and bytes of their bodies that have not been read yet.
	maxConcurrentStreams = 100
	maxUnread            = 128 << 10
)

// limitSite sets the limits of clients that have not authenticated.
func limitSite(site *http.Server) {
	site.ReadHeaderTimeout, site.IdleTimeout, site.MaxHeaderBytes = headTimeout, idleTimeout, maxHead
	site.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxConcurrentStreams, WriteByteTimeout: idleTimeout,
		MaxReceiveBufferPerConnection: maxUnread, MaxReceiveBufferPerStream: maxUnread}
}

// limitedListener closes new connections at once when there are too many. One address may have half of the connections
// that other addresses leave. Addresses of this machine may have more, because its proxies carry the connections of
// many clients.
type limitedListener struct {
	*net.TCPListener
	open *quota.Quota[netip.AddrPort]
}

func limitConnections(l *net.TCPListener, most int64) net.Listener {
	return &limitedListener{l, quota.New[netip.AddrPort](most)}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		from := countedAs(c.RemoteAddr())
		if l.open.Take(from, 1) == quota.None {
			return &limitedConn{c, sync.OnceFunc(func() { l.open.Give(from, 1) })}, nil
		}
		c.Close()
	}
}

// countedAs returns the address under which a connection counts. Each connection from this machine counts by itself.
func countedAs(remote net.Addr) netip.AddrPort {
	address := access.AddressOf(remote.String())
	if own, ok := remote.(*net.TCPAddr); ok && address.IsLoopback() {
		return own.AddrPort()
	}
	return netip.AddrPortFrom(address, 0)
}

// limitedConn is a connection that counts.
type limitedConn struct {
	*net.TCPConn
	end func()
}

func (c *limitedConn) Close() error {
	c.end()
	return c.TCPConn.Close()
}
