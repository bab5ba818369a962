package server

import (
	"bytes"
	"net/http"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
)

// Paths of routes that send one message.
const (
	queueSends = "/v1/queues/{queue}/messages"
	topicSends = "/v1/topics/{topic}/messages"
)

// maxReused is the largest capacity of a buffer that returns to bodies, in bytes.
const maxReused = 16 << 10

// bodies has empty buffers. One returns only after a successful send, because a failed call may still be using it.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// sendFast answers a request that sends a message as JSON, and reports whether it is one. Any other goes on to its route.
// Finding a route by huma would take longer than all else that a send costs.
func (s *Server) sendFast(w http.ResponseWriter, r *http.Request) (answered bool) {
	to, ok := s.plainTarget(r)
	if !ok || may(r.Context(), access.Send, to.Name()) != nil {
		return false
	}
	body := bodies.Get().(*bytes.Buffer)
	give, err := s.readInto(body, w, r, wire.MaxMessage)
	if err != nil {
		s.reply(w, r, 0, nil, err)
		return true
	}
	defer give()
	message, err := decodeOutgoing(body.Bytes())
	if s.answerSend(w, r, to, message, body.Bytes(), err) && body.Cap() <= maxReused {
		body.Reset()
		bodies.Put(body)
	}
	return true
}

// plainTarget returns the target of a request that sends a message as JSON, and sets the request's pattern.
func (s *Server) plainTarget(r *http.Request) (to target, ok bool) {
	path, ok := strings.CutSuffix(r.URL.Path, "/messages")
	if !ok || r.Method != http.MethodPost || r.URL.RawQuery != "" || r.URL.RawPath != "" ||
		contentType(r.Header.Get("Content-Type")) != jsonType || laterHeader(r) != "" || precondition(r) != "" {
		return to, false
	}
	if name, ok := strings.CutPrefix(path, "/v1/queues/"); ok && isSegment(name) {
		r.Pattern = "POST " + queueSends
		return s.queueTarget(name), true
	}
	if name, ok := strings.CutPrefix(path, "/v1/topics/"); ok && isSegment(name) {
		r.Pattern = "POST " + topicSends
		return s.topicTarget(name), true
	}
	return to, false
}

// isSegment reports whether a name is one segment of a path, which a mux would not replace.
func isSegment(name string) bool {
	return name != "" && name != "." && name != ".." && strings.IndexByte(name, '/') < 0
}

// appendJSON appends the JSON of s and a newline.
func (s *Sent) appendJSON(to []byte) []byte {
	to = gjson.AppendJSONString(append(to, `{"id":`...), s.ID)
	to = gjson.AppendJSONString(append(to, `,"queue":`...), s.Queue)
	if s.Due != "" {
		to = gjson.AppendJSONString(append(to, `,"due":`...), s.Due)
	}
	to = gjson.AppendJSONString(append(to, `,"outcome":`...), string(s.Outcome))
	return append(to, "}\n"...)
}
