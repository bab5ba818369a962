package server

import (
	"bytes"
	"compress/gzip"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
)

// minCompressed is the length of the shortest reply that is compressed, in bytes. Shorter ones fit into one packet.
const minCompressed = 1400

// compressors have gzip writers to use again, because one takes much memory.
var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	return z
}}

// getReply is a reply to a GET. A reply that is one JSON value, such as a list, is written at once. It gets an ETag, is
// left out if the client has it already, and is compressed if the client takes gzip. Streams are passed on unchanged.
// The length of a compressed reply may tell something about its content. That is harmless, because the secrets of a
// request, its token or cookie, are never part of a reply.
type getReply struct {
	http.ResponseWriter
	request *http.Request
	status  int    // which was set and not sent, or 0
	decided bool   // the header was sent
	zipped  bool   // the body is compressed
	known   bool   // the client has the body
	ready   func() // called when only the network is left, if it is not nil
}

// takesGzip reports whether Accept-Encoding has gzip, and not as one that is refused.
func takesGzip(values []string) bool {
	for _, value := range values {
		for one := range strings.SplitSeq(value, ",") {
			name, parameters, _ := strings.Cut(one, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				q := strings.TrimRight(strings.ReplaceAll(parameters, " ", ""), "0.")
				return q != "q="
			}
		}
	}
	return false
}

// WriteHeader keeps the status until the body is known.
func (g *getReply) WriteHeader(status int) {
	if g.status == 0 && !g.decided {
		g.status = status
	}
}

func (g *getReply) Write(text []byte) (int, error) {
	n := len(text)
	if h := g.Header(); !g.decided && isOneJSON(h.Get("Content-Type")) {
		g.prepare(h, text)
	}
	if g.zipped {
		text = zip(text)
	}
	if g.ready != nil {
		g.ready()
	}
	g.decide()
	if g.known {
		return n, nil
	}
	if _, err := g.ResponseWriter.Write(text); err != nil {
		return 0, err
	}
	return n, nil
}

// zip returns the gzip of a text. Each part of a reply is compressed on its own; concatenated parts are a valid gzip
// file.
func zip(text []byte) []byte {
	var to bytes.Buffer
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(&to)
	z.Write(text) // a buffer takes everything
	z.Close()
	return to.Bytes()
}

// prepare sets the header of one JSON value.
func (g *getReply) prepare(h http.Header, text []byte) {
	long := len(text) >= minCompressed
	if long {
		h.Add("Vary", "Accept-Encoding")
	}
	if g.status == 0 || g.status == http.StatusOK {
		if h.Get("ETag") == "" {
			h.Set("ETag", bodyTag(text))
		}
		g.known = hasTag(g.request.Header["If-None-Match"], h.Get("ETag"))
	}
	switch {
	case g.known:
		g.status = http.StatusNotModified
		h.Del("Content-Type")
		h.Del("Content-Length")
	case long && takesGzip(g.request.Header["Accept-Encoding"]):
		g.zipped = true
		h.Set("Content-Encoding", "gzip")
		h.Del("Content-Length")
	}
}

// isOneJSON reports whether a reply with a content type is one JSON value, which is written at once.
func isOneJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == jsonType || strings.HasSuffix(media, "+json"))
}

// decide sends the header.
func (g *getReply) decide() {
	if !g.decided && g.status != 0 {
		g.ResponseWriter.WriteHeader(g.status)
	}
	g.decided = true
}

// FlushError sends the header, if it was not sent yet, and then all bytes written so far.
func (g *getReply) FlushError() error {
	g.decide()
	return http.NewResponseController(g.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController set time limits.
func (g *getReply) Unwrap() http.ResponseWriter { return g.ResponseWriter }
