package remote

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"net/http/httptest"
	"runtime/metrics"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
)

// scripted is a connection to a client that has sent all its data, and takes all replies.
type scripted struct {
	net.Conn // for other methods; nil
	from     *bytes.Reader
}

func (c scripted) Read(b []byte) (int, error)       { return c.from.Read(b) }
func (c scripted) Write(b []byte) (int, error)      { return len(b), nil }
func (c scripted) Close() error                     { return nil }
func (c scripted) SetDeadline(time.Time) error      { return nil }
func (c scripted) SetReadDeadline(time.Time) error  { return nil }
func (c scripted) SetWriteDeadline(time.Time) error { return nil }

// upgrade is the request that a connection begins with.
type upgrade struct {
	*httptest.ResponseRecorder
	conn scripted
}

func (u upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return u.conn, bufio.NewReadWriter(bufio.NewReader(bytes.NewReader(nil)), bufio.NewWriter(io.Discard)), nil
}

// FuzzConnection sends bytes to a server over the connection of a client. None may crash it, keep it busy, or have it
// allocate more than a call may have.
func FuzzConnection(f *testing.F) {
	call := func(name string, body string) []byte {
		head := append(binary.AppendUvarint(nil, uint64(1+len(name)+len(body))), byte(len(name)))
		return append(append(head, name...), body...)
	}
	for _, name := range slices.Sorted(maps.Keys(endpoints)) {
		for _, body := range []string{"", "\x00", "\x01q\x00\x00", "\x01q\xff\xff\xff\xff\x0f",
			"\x01q\x01\x01a\xff\xff\x7f"} {
			f.Add(slices.Concat(call(name, body), call("stats", "\x01q")))
		}
	}
	f.Add(call("nothing", "x"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x04send"))
	f.Add([]byte("\x00"))
	f.Add([]byte("\x80\x80\x80\x08\x04send")) // 16 MiB are announced
	s := memstore.New()
	f.Cleanup(func() { s.Close() })
	server := NewServer(s, silent, true)
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, input []byte) {
		sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(sample)
		before := sample[0].Value.Uint64()
		server.serveConnection(upgrade{httptest.NewRecorder(), scripted{from: bytes.NewReader(input)}})
		metrics.Read(sample)
		if grown := sample[0].Value.Uint64() - before; grown > 64<<20+64*uint64(len(input)) {
			t.Errorf("%q: %d bytes were allocated", input, grown)
		}
	})
}
