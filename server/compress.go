package server

import (
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

// compressed is a reply to a GET whose sender takes gzip. The reply is compressed if it is JSON that is written at once,
// as lists are; streams are passed on as they are. That its length tells something about its content is no harm: what is
// secret in a request, a token or cookie, is never part of a reply.
type compressed struct {
	http.ResponseWriter
	status  int  // which was set and not sent, or 0
	decided bool // the header was sent
	zipped  bool // what follows is compressed
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

// WriteHeader notes the status until it is known what is written.
func (c *compressed) WriteHeader(status int) {
	if c.status == 0 && !c.decided {
		c.status = status
	}
}

func (c *compressed) Write(text []byte) (int, error) {
	h := c.Header()
	if !c.decided && len(text) >= minCompressed && isOneJSON(h.Get("Content-Type")) {
		c.zipped = true
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		h.Del("Content-Length")
	}
	c.decide()
	if !c.zipped {
		return c.ResponseWriter.Write(text)
	}
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(c.ResponseWriter)
	if _, err := z.Write(text); err != nil {
		return 0, err
	}
	return len(text), z.Close() // of a part: the parts of gzip may follow each other
}

// isOneJSON reports whether a reply with a content type is one JSON value, which is written at once.
func isOneJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == jsonType || strings.HasSuffix(media, "+json"))
}

// decide sends the header.
func (c *compressed) decide() {
	if !c.decided && c.status != 0 {
		c.ResponseWriter.WriteHeader(c.status)
	}
	c.decided = true
}

// FlushError sends what was written, as streams do.
func (c *compressed) FlushError() error {
	c.decide()
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController set time limits.
func (c *compressed) Unwrap() http.ResponseWriter { return c.ResponseWriter }
