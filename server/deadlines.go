package server

import (
	"io"
	"net/http"
	"time"
)

// Deadlines returns a handler that gives up on clients that are slow: the body of a request has to be there within 30 s
// of its head, and a reply has to be taken within 30 s of its first byte, whatever the request is. Handlers of streams
// set deadlines of their own. Put it before all handlers of a site. A Server does the same by itself.
func Deadlines(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { withDeadlines(w, r, next.ServeHTTP) })
}

func withDeadlines(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	if hasDeadlines(w) {
		next(w, r)
		return
	}
	x := &exchange{ResponseWriter: w}
	if r.Body != nil && r.Body != http.NoBody {
		x.body = r.Body
		r.Body = (*timedBody)(x)
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(stallTimeout)) // not all can
	}
	if r.Header["Expect"] != nil {
		x.limitReply() // the first read of the body writes 100 Continue
	}
	next(x, r)
	if !x.replied {
		x.limitReply() // an empty reply follows
	}
}

// hasDeadlines reports whether a reply is one of withDeadlines already.
func hasDeadlines(w http.ResponseWriter) bool {
	for {
		switch inner := w.(type) {
		case *exchange:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = inner.Unwrap()
		default:
			return false
		}
	}
}

// exchange is a request and its reply.
type exchange struct {
	http.ResponseWriter
	body    io.ReadCloser
	replied bool
}

// limitReply limits the time that the client may take for a reply, which is about to be written.
func (x *exchange) limitReply() {
	_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(time.Now().Add(stallTimeout)) // not all can
}

func (x *exchange) begin() {
	if !x.replied {
		x.replied = true
		x.limitReply()
	}
}

func (x *exchange) WriteHeader(status int) {
	x.begin()
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(text []byte) (int, error) {
	x.begin()
	return x.ResponseWriter.Write(text)
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// timedBody is the body of an exchange.
type timedBody exchange

// Read ends the deadline with the body. The server would otherwise take a client that waits for a reply beyond it for
// one that is gone.
func (b *timedBody) Read(to []byte) (int, error) {
	n, err := b.body.Read(to)
	if err == io.EOF {
		_ = http.NewResponseController(b.ResponseWriter).SetReadDeadline(time.Time{})
	}
	return n, err
}

func (b *timedBody) Close() error { return b.body.Close() }
