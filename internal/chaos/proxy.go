//go:build unix

package chaos

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

// proxy is the network in front of one server. It forwards bytes, possibly delayed, throttled or not at all. Its port
// stays the same when the server restarts.
type proxy struct {
	listener net.Listener
	pumps    sync.WaitGroup

	mu      sync.Mutex
	target  string // host:port of the server
	net     conditions
	links   map[*link]struct{}
	random  *rand.Rand
	held    int // claims and extends that were delivered late
	closed  bool
	changed chan struct{} // closed when the conditions change
}

// conditions describes the state of the network. The zero value is a healthy network.
type conditions struct {
	delay          time.Duration // of all bytes, in each direction
	bytesPerSecond int           // per connection and direction; 0 means unlimited
	silent         bool          // holds back all bytes until the conditions change
	loseReplies    float64       // fraction of requests that lose reply and connection
	// lateRequests is the fraction of requests that arrive after their client has lost its connection, at most maxLate
	// later.
	lateRequests float64
	// lateClaims is like lateRequests for claims and extends of leases of claimLease only. They arrive between
	// minLateClaim and maxLateClaim later, when their repetition was answered and its messages were settled.
	lateClaims float64
	claimLease time.Duration
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn

	// Guarded by proxy.mu.
	half   bool // half-open: passes nothing ever again, and hides when an end closes
	losing bool // the next reply will be lost

	once     sync.Once
	answered chan struct{} // closed when a reply was lost
}

// maxLate is how long after its client lost its connection a request may arrive.
const maxLate = 200 * time.Millisecond

// How much later than its client's loss of the connection a claim is delivered by lateClaims.
const (
	minLateClaim = 50 * time.Millisecond
	maxLateClaim = time.Second
)

// isClaimOrExtend reports whether a request is a script call that sets a deadline for such a lease: the length of the
// lease in ms comes before the lease id in a claim, and after it in an extend.
func isClaimOrExtend(request []byte, lease time.Duration) bool {
	ms := strconv.FormatInt(lease.Milliseconds(), 10)
	length := fmt.Appendf(nil, "\r\n$%d\r\n%s\r\n", len(ms), ms)
	id := fmt.Appendf(nil, "$%d\r\n", leaseIDBytes)
	before, after, found := bytes.Cut(request, length)
	if !found || !bytes.Contains(before, []byte("\r\nevalsha\r\n")) {
		return false
	}
	last := bytes.LastIndex(before, []byte("\r\n$"))
	return bytes.HasPrefix(after, id) || last >= 0 && bytes.HasPrefix(before[last+len("\r\n"):], id)
}

// leaseIDBytes is the length of a lease id.
const leaseIDBytes = 12

func newProxy(seed uint64) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{
		listener: l, links: map[*link]struct{}{}, changed: make(chan struct{}),
		random: rand.New(rand.NewPCG(seed, 0)),
	}
	p.pumps.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }
func (p *proxy) port() int    { return p.listener.Addr().(*net.TCPAddr).Port }

// setTarget sets the address of the server.
func (p *proxy) setTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// set changes the conditions for new and open connections.
func (p *proxy) set(c conditions) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.net = c
	close(p.changed)
	p.changed = make(chan struct{})
}

// heldClaims returns how many claims were delivered late.
func (p *proxy) heldClaims() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// cut resets each open connection with the given probability.
func (p *proxy) cut(part float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if p.random.Float64() < part {
			l.end()
		}
	}
}

// halfOpen makes each open connection half-open with the given probability: both ends stay open, but nothing passes.
func (p *proxy) halfOpen(part float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.half = l.half || p.random.Float64() < part
	}
}

// close resets all connections and returns when the proxy's goroutines have ended.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.listener.Close()
	for l := range p.links {
		l.end()
	}
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	p.pumps.Wait()
}

// deliverLate resets the client's end and delivers its request after a delay. It delivers only the bytes that were read
// at once, at most one call.
func (l *link) deliverLate(server net.Conn, x chunk, late time.Duration) bool {
	reset(l.client)
	time.Sleep(late)
	if _, err := server.Write(x.bytes); err != nil {
		return false
	}
	select {
	case <-l.answered:
	case <-time.After(time.Second): // it was only part of a call
	}
	return false
}

// reset closes a connection with a TCP reset.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// end resets both ends of a link.
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

// chunk is the result of one read, and when it is due at the other end.
type chunk struct {
	bytes []byte
	at    time.Time
}

// maxInFlight limits the delayed chunks in one direction.
const maxInFlight = 256

// pump forwards one direction until either end is closed. It reads on while chunks are delayed, so that a delay does
// not limit the throughput.
func (p *proxy) pump(l *link, from, to net.Conn, request bool) {
	chunks := make(chan chunk, maxInFlight)
	var writing sync.WaitGroup
	writing.Go(func() {
		for x := range chunks {
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
			at := time.Now().Add(p.net.delay)
			p.mu.Unlock()
			chunks <- chunk{append([]byte(nil), buffer[:n]...), at}
		}
		if err != nil {
			break
		}
	}
	close(chunks)
	writing.Wait()
	p.mu.Lock()
	half := l.half && !p.closed
	p.mu.Unlock()
	if !half {
		l.end() // ends the other direction too
	}
}

// pass writes one chunk when it is due and the conditions allow it. It returns false if the link must end.
func (p *proxy) pass(l *link, to net.Conn, x chunk, request bool) bool {
	for {
		p.mu.Lock()
		w, half, closed, changed := p.net, l.half, p.closed, p.changed
		if closed {
			p.mu.Unlock()
			return false
		}
		if half {
			p.mu.Unlock()
			return true // discarded
		}
		if !w.silent {
			if request && w.loseReplies > 0 && p.random.Float64() < w.loseReplies {
				l.losing = true
			}
			late := time.Duration(0)
			if request && w.lateRequests > 0 && p.random.Float64() < w.lateRequests {
				l.losing = true
				late = 1 + time.Duration(p.random.Int64N(int64(maxLate)))
			}
			if request && w.lateClaims > 0 && isClaimOrExtend(x.bytes, w.claimLease) &&
				p.random.Float64() < w.lateClaims {
				l.losing = true
				p.held++
				late = minLateClaim + time.Duration(p.random.Int64N(int64(maxLateClaim-minLateClaim)))
			}
			lose := !request && l.losing
			p.mu.Unlock()
			if lose {
				l.once.Do(func() { close(l.answered) })
				return false
			}
			if late > 0 {
				return l.deliverLate(to, x, late)
			}
			time.Sleep(time.Until(x.at))
			if w.bytesPerSecond > 0 {
				time.Sleep(time.Duration(len(x.bytes)) * time.Second / time.Duration(w.bytesPerSecond))
			}
			_, err := to.Write(x.bytes)
			return err == nil
		}
		p.mu.Unlock()
		<-changed
	}
}
