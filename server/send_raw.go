package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/tidwall/gjson"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const (
	jsonType   = "application/json"
	linesType  = "application/x-ndjson"
	octetsType = "application/octet-stream"
	formType   = "application/x-www-form-urlencoded"

	// laterPrefix begins the request headers that describe a raw message.
	laterPrefix = "Later-"
	// metaPrefix begins the request headers that set headers of the message: Later-Header-Kind sets "kind".
	metaPrefix = laterPrefix + "Header-"
)

// errForm refuses the content type that curl sends by default: a JSON object would become the payload of a message that
// is due at once.
var errForm = field("header.Content-Type", store.Invalid("%s is neither a description nor a payload: give %s, "+
	"as with curl -H 'Content-Type: %s', or text/plain or another type for a payload", formType, jsonType, jsonType))

// orLines describes content that is JSON, or has an object of it a line.
func orLines(schema *huma.Schema) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{jsonType: {Schema: schema}, linesType: lines}
}

// lines is content with one JSON object a line, which schemas cannot describe.
var lines = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary",
	Description: "A JSON object a line"}}

// contentType returns the type of a request's body without parameters. That of a request without one is JSON.
func contentType(header string) string {
	if header == "" || header == jsonType {
		return jsonType
	}
	if parsed, _, err := mime.ParseMediaType(header); err == nil {
		return parsed
	}
	return header
}

// sendRaw handles the requests of a send with a body that is not JSON.
func (s *Server) sendRaw(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if contentType(ctx.Header("Content-Type")) == jsonType {
		if name := laterHeader(r); name != "" {
			s.reply(w, r, 0, nil, field("header."+name, store.Invalid("describes a payload that is the body: put the field "+
				"into the JSON, or give the type of the payload as Content-Type")))
			return
		}
		next(ctx)
		return
	}
	if contentType(ctx.Header("Content-Type")) == formType {
		s.reply(w, r, 0, nil, errForm)
		return
	}
	message, give, err := s.rawMessage(w, r)
	if err == nil {
		defer give()
	}
	s.answerSend(w, r, s.targetOf(ctx), message, message.Payload, err)
}

// laterHeader returns the name of a request header that describes a raw message, or "" if there is none.
func laterHeader(r *http.Request) string {
	for name := range r.Header {
		if strings.HasPrefix(name, laterPrefix) {
			return name
		}
	}
	return ""
}

// answerSend sends the message in the body of a request, unless there is an error, and answers the request. It reports
// whether it was sent.
func (s *Server) answerSend(w http.ResponseWriter, r *http.Request, to target, message later.Outgoing, body []byte,
	err error) (ok bool) {
	var sent Sent
	var key IdempotencyKey
	if err == nil {
		key, err = keyOfRead(r, body)
	}
	if err == nil {
		// A send ends within the time limit of a call, and costs less if it does not watch for its client to go.
		sent, err = s.sendOne(context.WithoutCancel(r.Context()), to, message, key)
	}
	if err != nil {
		s.reply(w, r, 0, nil, err)
		return false
	}
	w.Header()["Content-Type"] = isJSON
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(sent.appendJSON(make([]byte, 0, 256))) // if that fails the client is gone
	return true
}

// reply answers a request that huma does not answer.
func (s *Server) reply(w http.ResponseWriter, r *http.Request, status int, body any, err error) {
	if err != nil {
		s.failure(r.Context(), err).Write(w)
		return
	}
	w.Header()["Content-Type"] = isJSON
	w.WriteHeader(status)
	_ = encodeJSON(w, body) // if that fails the client is gone
}

// rawHeaders are the request headers that describe a raw message, with their fields: Later-Max-Attempts is
// max_attempts.
var rawHeaders = func() map[string]*jsonfields.Field {
	all := map[string]*jsonfields.Field{}
	for _, f := range jsonfields.Fields(new(Outgoing)) {
		if f.IsText() && !strings.HasPrefix(f.Name, "payload") {
			all[http.CanonicalHeaderKey(laterPrefix+strings.ReplaceAll(f.Name, "_", "-"))] = f
		}
	}
	return all
}()

// rawMessage reads a message that has the body as its payload. It refuses unknown Later- headers, because a mistyped
// one would send a message that is due at once.
func (s *Server) rawMessage(w http.ResponseWriter, r *http.Request) (message later.Outgoing, give func(), err error) {
	var o Outgoing
	for name, values := range r.Header {
		if !strings.HasPrefix(name, laterPrefix) {
			continue
		}
		where := "header." + name
		if len(values) > 1 {
			return message, nil, field(where, store.Invalid("is given twice: give it once"))
		}
		if key, ok := strings.CutPrefix(name, metaPrefix); ok && key != "" {
			if o.Headers == nil {
				o.Headers = map[string]string{}
			}
			o.Headers[strings.ToLower(key)] = values[0]
			continue
		}
		option, ok := rawHeaders[name]
		if !ok {
			return message, nil, field(where, store.Invalid("is unknown: see the names in /v1/openapi.json"))
		}
		if values[0] == "" {
			return message, nil, field(where, store.Invalid("is empty: give a value, or omit it"))
		}
		if err := option.SetText(&o, values[0]); err != nil {
			return message, nil, &problem.Error{Field: where, Err: fmt.Errorf("%s: %w", where, err)}
		}
	}
	o.setType(r.Header.Get("Content-Type"))
	if message, err = o.outgoing(); err != nil {
		return message, nil, err
	}
	message.Payload, give, err = s.readAll(w, r, store.MaxPayload)
	return message, give, err
}

// setType sets the content type of a raw message to that of its request, unless it has one, or that says nothing.
func (o *Outgoing) setType(contentType string) {
	if _, typed := o.Headers[message.ContentType]; typed || contentType == octetsType {
		return
	}
	if o.Headers == nil {
		o.Headers = map[string]string{}
	}
	o.Headers[message.ContentType] = contentType
}

// readAll reads a body of up to limit bytes.
func (s *Server) readAll(w http.ResponseWriter, r *http.Request, limit int64) (text []byte, give func(), err error) {
	var body bytes.Buffer
	give, err = s.readInto(&body, w, r, limit)
	return body.Bytes(), give, err
}

// readInto reads a body of up to limit bytes into a buffer, when there is room for it. Without an error, the caller
// calls give when it no longer needs the buffer.
func (s *Server) readInto(body *bytes.Buffer, w http.ResponseWriter, r *http.Request, limit int64) (give func(),
	err error) {
	size := r.ContentLength // none, if it is unknown
	if size > limit {
		return nil, bodyError(&http.MaxBytesError{Limit: limit}, limit)
	}
	from := &countedBody{Reader: r.Body, bodies: s.bodies, who: access.SenderOf(r), counted: max(size, 0)}
	if size < 0 {
		from.Reader = http.MaxBytesReader(w, r.Body, limit)
	} else if err := from.take(r.Context()); err != nil {
		return nil, field("body", err)
	}
	body.Grow(int(min(from.counted, 4<<10)) + bytes.MinRead)
	if _, err = body.ReadFrom(from); err != nil {
		from.give()
		return nil, bodyError(err, limit)
	}
	return from.give, nil
}

// countedBody counts the bytes of a body of unknown length as they are read. A body of known length is counted before.
type countedBody struct {
	io.Reader
	bodies  share
	who     access.Sender
	counted int64
	known   bool
}

func (b *countedBody) take(ctx context.Context) error {
	b.known = true
	return b.bodies.awaitFor(ctx, b.who, b.counted)
}

func (b *countedBody) Read(to []byte) (int, error) {
	n, err := b.Reader.Read(to)
	if !b.known && n > 0 {
		if err := b.bodies.refusal(b.bodies.Take(b.who, int64(n))); err != nil {
			return 0, err
		}
		b.counted += int64(n)
	}
	return n, err
}

func (b *countedBody) give() { b.bodies.Give(b.who, b.counted) }

// bodyError returns an error of reading a body as one of the request.
func bodyError(err error, limit int64) error {
	switch err.(type) {
	case nil:
		return nil
	case *http.MaxBytesError:
		return field("body", store.TooLarge("has more than %d bytes, which is the limit", limit))
	}
	if store.CodeOf(err) != store.Internal {
		return field("body", err)
	}
	if _, isLost := errors.AsType[net.Error](err); !isLost && !errors.Is(err, io.ErrUnexpectedEOF) {
		return field("body", store.Invalid("cannot be read: %v", err)) // its chunks are wrong
	}
	return field("body", fmt.Errorf("cannot be read: %w: %w", store.ErrUnavailable, err))
}

// Paths of routes that send one message.
const (
	queueSends = "/v1/queues/{queue}/messages"
	topicSends = "/v1/topics/{topic}/messages"
)

// maxReused is the largest capacity of a buffer that returns to bodies, in bytes.
const maxReused = 16 << 10

// bodies has empty buffers. One returns only after a successful send, because a failed call may still be using it.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// sendFast answers a request that sends a message as JSON, and reports whether it is one. Any other goes on to its
// route. Finding a route by huma would take longer than all else that a send costs.
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
