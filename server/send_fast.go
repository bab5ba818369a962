package server

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/laterq/later/internal/jsontext"
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

// sendFast sends a message if a request is like most sends, and reports whether it answered. Any other goes on to its
// route, which knows what is wrong with it. Finding a route, and decoding a body twice to check it, as huma does, would
// take longer than all else that a send costs.
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
	o, ok := plainOutgoing(body.Bytes())
	if !ok {
		r.Body = io.NopCloser(bytes.NewReader(body.Bytes()))
		return false
	}
	message, err := o.outgoing()
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

// plainOutgoing returns the message that a body describes with fields that most messages have. It returns false for a
// body with other fields, and for one that is not as its description says. The payload is part of the body.
func plainOutgoing(body []byte) (o Outgoing, ok bool) {
	ok = eachField(body, func(name string, value gjson.Result) bool {
		if name == "payload" {
			end := value.Index + len(value.Raw)
			o.Payload.Payload = body[value.Index:end:end]
			return true
		}
		return o.setPlain(name, value)
	})
	return o, ok
}

// eachField calls set with the fields of an object, and reports whether body is one, without a name twice, and set
// returned true for each field.
func eachField(body []byte, set func(name string, value gjson.Result) bool) (ok bool) {
	if jsontext.Check(body) != nil || jsontext.CheckText(body) != nil {
		return false
	}
	object := gjson.ParseBytes(body)
	if !object.IsObject() {
		return false
	}
	ok = true
	seen := make([]string, 0, 16)
	object.ForEach(func(name, value gjson.Result) bool {
		ok = !slices.Contains(seen, name.Str) && set(name.Str, value)
		seen = append(seen, name.Str)
		return ok
	})
	return ok
}

// setPlain sets a field and reports whether it is one that plainOutgoing knows, with a value that is allowed.
func (o *Outgoing) setPlain(name string, value gjson.Result) bool {
	isText := value.Type == gjson.String
	switch name {
	case "payload_text":
		o.PayloadText = &value.Str
		return isText
	case "in":
		o.In = Duration(value.Str)
	case "at":
		return isText && setTime(&o.At, value.Str) == nil
	case "id":
		o.ID = value.Str
	case "group":
		o.Group = value.Str
	case "timeout":
		o.Timeout = Duration(value.Str)
	case "dedup_window":
		o.DedupWindow = Duration(value.Str)
	case "max_attempts":
		return value.Type == gjson.Number && setCount(&o.MaxAttempts, value.Raw) == nil
	case "headers":
		return value.IsObject() && o.setHeaders(value)
	default:
		return false
	}
	return isText && value.Str != ""
}

func (o *Outgoing) setHeaders(object gjson.Result) (ok bool) {
	o.Headers, ok = map[string]string{}, true
	object.ForEach(func(name, value gjson.Result) bool {
		_, twice := o.Headers[name.Str]
		ok = !twice && value.Type == gjson.String
		o.Headers[name.Str] = value.Str
		return ok
	})
	return ok
}
