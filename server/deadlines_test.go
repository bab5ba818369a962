package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
)

// pipes is a listener that accepts pipes, so that the deadlines of its connections follow the clock of a bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// servePipes serves a server, and /refused, which reads nothing and answers 401.
func servePipes(t *testing.T, s *Server) *pipes {
	mux := http.NewServeMux()
	mux.Handle("/", s)
	mux.HandleFunc("/refused", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, strings.Repeat("no ", 1000))
	})
	p := &pipes{make(chan net.Conn), make(chan struct{})}
	site := &http.Server{Handler: Deadlines(mux), ReadHeaderTimeout: 10 * time.Second}
	go site.Serve(p)
	t.Cleanup(func() {
		s.Close()
		site.Close()
		synctest.Wait()
	})
	return p
}

// slowRoutes are requests with bodies: their heads.
var slowRoutes = map[string]string{
	"refused": "POST /refused", "send": "POST " + mail, "payload": "POST " + mail + "\r\nContent-Type: text/plain",
	"batch": "POST " + mail + "/batch", "receive": "POST " + receivePath, "bulk": "POST /v1/queues/mail/bulk",
	"lines": "POST " + mail + "/batch\r\nContent-Type: application/x-ndjson", "import": "POST /v1/import",
	"schedule": "PUT /v1/schedules/s", "no route": "POST /none", "a GET with a body": "GET /v1/server",
}

func headOf(route string) string {
	first, rest, _ := strings.Cut(route, "\r\n")
	if rest != "" {
		rest += "\r\n"
	}
	return first + " HTTP/1.1\r\nHost: x\r\n" + rest
}

// TestClientsThatSendOneByteASecondAreGivenUp holds for all routes, and however the body is sent.
func TestClientsThatSendOneByteASecondAreGivenUp(t *testing.T) {
	for name, route := range slowRoutes {
		for _, framing := range []string{"Content-Length: 100000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newBubbleAPI(t, memstore.New())
					conn := servePipes(t, a.server).dial()
					defer conn.Close()
					go io.Copy(io.Discard, conn)
					begin := time.Now()
					write := func(text string) bool {
						_, err := io.WriteString(conn, text)
						return err == nil
					}
					for ok := write(headOf(route) + framing); ok && time.Since(begin) < time.Hour; time.Sleep(time.Second) {
						if strings.HasPrefix(framing, "Content") {
							ok = write("\n")
						} else {
							ok = write("1\r\n\n\r\n")
						}
					}
					if took := time.Since(begin); took > stallTimeout+2*time.Second {
						t.Errorf("the connection was held for %v", took)
					}
				})
			})
		}
	}
}

// TestClientsThatTakeNoReplyAreGivenUp holds for short and long replies, also after a wait, and for pipelined requests.
func TestClientsThatTakeNoReplyAreGivenUp(t *testing.T) {
	for _, route := range []string{"GET /refused", "GET /none", "GET /v1/openapi.json", "GET " + mail, "GET /v1/events",
		"GET /v1/overview/watch", "GET /v1/queues/mail/export", "POST " + receivePath} {
		t.Run(route, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newBubbleAPI(t, memstore.New())
				a.send("mail", "1")
				conn := servePipes(t, a.server).dial()
				defer conn.Close()
				begin := time.Now()
				if _, err := io.WriteString(conn, headOf(route)+"Content-Length: 0\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				one := make([]byte, 1)
				time.Sleep(stallTimeout + time.Second)
				synctest.Wait()
				for time.Since(begin) < time.Hour { // the rest of the pipe can be read
					if _, err := conn.Read(one); err != nil {
						break
					}
					time.Sleep(time.Second)
				}
				if took := time.Since(begin); took > stallTimeout+10*time.Second {
					t.Errorf("the connection was held for %v", took)
				}
			})
		})
	}
}

// TestRequestsThatWaitAreNotSlow lets requests wait for longer than a client may take for a body or a reply, the first
// and the second one of a connection.
func TestRequestsThatWaitAreNotSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		conn := servePipes(t, a.server).dial()
		defer conn.Close()
		replies := bufio.NewReader(conn)
		for range 2 {
			const body = `{"wait": "2m"}`
			begin := time.Now()
			head := headOf("POST "+receivePath) + "Expect: 100-continue\r\nContent-Length: 14\r\n\r\n"
			if _, err := io.WriteString(conn, head); err != nil {
				t.Fatal(err)
			}
			if line, err := replies.ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") {
				t.Fatal(line, err)
			}
			replies.ReadString('\n')
			if _, err := io.WriteString(conn, body); err != nil {
				t.Fatal(err)
			}
			reply, err := http.ReadResponse(replies, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(reply.Body)
			if took := time.Since(begin); err != nil || reply.StatusCode != 200 || took != 2*time.Minute {
				t.Errorf("%d %s after %v, %v", reply.StatusCode, text, took, err)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestSlowLinesAreSentAsTheyCome has a stream of messages go on for as long as its client sends one from time to time.
func TestSlowLinesAreSentAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		conn := servePipes(t, a.server).dial()
		defer conn.Close()
		head := headOf(slowRoutes["lines"]) + "Content-Length: 100000\r\n\r\n"
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, conn)
		for range 10 {
			time.Sleep(stallTimeout - time.Second)
			if _, err := io.WriteString(conn, `{"payload": "x"}`+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		stats, err := a.client.Queue("mail").Stats(context.WithoutCancel(t.Context()))
		if err != nil || stats.Ready != 10 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}
