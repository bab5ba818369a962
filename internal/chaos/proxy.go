//go:build unix

package chaos

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// proxy is the network before one server: it passes bytes on, later, more slowly, or not at all. Its port stays
// the same whatever happens to the server.
type proxy struct {
	listener net.Listener
	pumps    sync.WaitGroup

	mu     sync.Mutex
	target string // host:port of the server
	now    weather
	links  map[*link]struct{}
	random *rand.Rand
	closed bool
	turned chan struct{} // closed when the weather changes
}

// weather is how the network is. The zero value is a good one.
type weather struct {
	delay       time.Duration // of all bytes, in each direction
	bytes       int           // a second, for each connection and direction; 0 does not limit
	silent      bool          // nothing passes, until the weather changes; then what was on its way arrives
	loseReplies float64       // the part of requests whose reply is lost, with the connection
	late        float64       // the part of requests that arrive late: when their client has lost its connection, up to mostLate ago
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn

	// Guarded by proxy.mu.
	half   bool // half open: nothing passes ever again, and no end is seen
	losing bool // the next reply is lost

	once     sync.Once
	answered chan struct{} // closed when a reply was lost
}

// mostLate is by how much a request may arrive after its client lost its connection.
const mostLate = 200 * time.Millisecond

func newProxy(seed uint64) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{
		listener: l, links: map[*link]struct{}{}, turned: make(chan struct{}),
		random: rand.New(rand.NewPCG(seed, 0)),
	}
	p.pumps.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }
func (p *proxy) port() int    { return p.listener.Addr().(*net.TCPAddr).Port }

// to sets the server.
func (p *proxy) to(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// turn changes the weather, for the connections that are open too.
func (p *proxy) turn(w weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = w
	close(p.turned)
	p.turned = make(chan struct{})
}

// cut ends each open connection with that probability.
func (p *proxy) cut(part float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if p.random.Float64() < part {
			l.end()
		}
	}
}

// halfOpen leaves that part of the open connections half open: both ends believe in them, and nothing passes.
func (p *proxy) halfOpen(part float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.half = l.half || p.random.Float64() < part
	}
}

// close ends all connections and returns when nothing of the proxy is left.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.listener.Close()
	for l := range p.links {
		l.end()
	}
	close(p.turned)
	p.turned = make(chan struct{})
	p.mu.Unlock()
	p.pumps.Wait()
}

// arriveLate resets the client's end and lets what it sent arrive after a while. Only what was read at once arrives, which is
// the most of one call.
func (l *link) arriveLate(server net.Conn, x piece, late time.Duration) bool {
	reset(l.client)
	time.Sleep(late)
	if _, err := server.Write(x.bytes); err != nil {
		return false
	}
	select {
	case <-l.answered:
	case <-time.After(time.Second): // it was a part of a call
	}
	return false
}

// reset ends a connection as a reset does.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// end ends a link as a reset does.
func (l *link) end() {
	reset(l.client)
	reset(l.server)
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.pumps.Go(func() { p.connect(client) })
	}
}

func (p *proxy) connect(client net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, time.Second)
	if err != nil {
		(&link{client: client, server: client}).end()
		return
	}
	l := &link{client: client, server: server, answered: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		l.end()
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, client, server, true) })
	both.Go(func() { p.pump(l, server, client, false) })
	both.Wait()
	l.end()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// piece is what was read at once, and when it is to arrive.
type piece struct {
	bytes []byte
	at    time.Time
}

// maxUnderWay bounds the pieces of one direction that are delayed at a time.
const maxUnderWay = 256

// pump passes one direction on until either end is gone. Reading goes on while what was read is delayed, so that
// a delay does not make the connection slow as well.
func (p *proxy) pump(l *link, from, to net.Conn, request bool) {
	pieces := make(chan piece, maxUnderWay)
	var writing sync.WaitGroup
	writing.Go(func() {
		for x := range pieces {
			if !p.pass(l, to, x, request) {
				l.end()
			}
		}
	})
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			at := time.Now().Add(p.now.delay)
			p.mu.Unlock()
			pieces <- piece{append([]byte(nil), buffer[:n]...), at}
		}
		if err != nil {
			break
		}
	}
	close(pieces)
	writing.Wait()
	p.mu.Lock()
	half := l.half && !p.closed
	p.mu.Unlock()
	if !half {
		l.end() // the other direction ends with this one
	}
}

// pass writes one piece when its time has come and the weather lets it; false when the link is to end.
func (p *proxy) pass(l *link, to net.Conn, x piece, request bool) bool {
	for {
		p.mu.Lock()
		w, half, closed, turned := p.now, l.half, p.closed, p.turned
		if closed {
			p.mu.Unlock()
			return false
		}
		if half {
			p.mu.Unlock()
			return true // swallowed
		}
		if !w.silent {
			if request && w.loseReplies > 0 && p.random.Float64() < w.loseReplies {
				l.losing = true
			}
			late := time.Duration(0)
			if request && w.late > 0 && p.random.Float64() < w.late {
				l.losing = true
				late = 1 + time.Duration(p.random.Int64N(int64(mostLate)))
			}
			lose := !request && l.losing
			p.mu.Unlock()
			if lose {
				l.once.Do(func() { close(l.answered) })
				return false
			}
			if late > 0 {
				return l.arriveLate(to, x, late)
			}
			time.Sleep(time.Until(x.at))
			if w.bytes > 0 {
				time.Sleep(time.Duration(len(x.bytes)) * time.Second / time.Duration(w.bytes))
			}
			_, err := to.Write(x.bytes)
			return err == nil
		}
		p.mu.Unlock()
		<-turned
	}
}
