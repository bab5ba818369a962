package main

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/laterq/later/internal/quota"
)

func TestConnectionsAreLimited(t *testing.T) {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	l := limitConnections(tcp, 2)
	defer l.Close()
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	first := <-accepted
	dial()
	second := <-accepted
	if _, err := dial().Read(make([]byte, 1)); err == nil || err == io.ErrUnexpectedEOF {
		t.Errorf("a third one is served: %v", err)
	}
	first.Close()
	first.Close() // which counts once
	dial()
	(<-accepted).Close()
	second.Close()
	if n := l.(*limitedListener).open.Taken(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	l.Close()
	for range accepted {
	}
}

func TestConnectionsOfAnAddressCountTogether(t *testing.T) {
	for remote, want := range map[string]string{"192.0.2.1:1": "192.0.2.1:0", "[2001:db8::1]:9": "[2001:db8::]:0",
		"127.0.0.1:7": "127.0.0.1:7", "[::1]:7": "[::1]:7"} {
		if got := countedAs(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(remote))); got.String() != want {
			t.Errorf("%s counts as %v, want %s", remote, got, want)
		}
	}
	q := quota.New[netip.AddrPort](4)
	one := netip.MustParseAddrPort("192.0.2.1:0")
	if q.Take(one, 2) != quota.None || q.Take(one, 1) != quota.Greedy {
		t.Error("an address has more than half")
	}
}
