package server

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerSend(s *Server) {
	route(s, access.Send, on("POST "+queueSends, "messages", "sendMessage", "Send a message", s.oneMessage), s.send)
	route(s, access.Send, on("POST "+queueSends+"/batch", "messages", "sendMessages", "Send several messages",
		s.manyMessages), s.sendBatch)
}

// oneMessage completes an operation that sends a message.
func (s *Server) oneMessage(op *huma.Operation) {
	op.DefaultStatus, op.MaxBodyBytes = http.StatusCreated, wire.MaxMessage
	op.Description = "With the content type application/json the body describes the message. With any other the body is " +
		"its payload, and Later- headers say the rest: those below, and Later-Header-NAME for each header of the message."
	op.Parameters = s.laterHeaders()
	op.Errors = []int{http.StatusConflict, http.StatusUnprocessableEntity}
	op.Middlewares = huma.Middlewares{s.sendRaw}
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		jsonType:   {Schema: s.schemaOf(typeOf[Outgoing]())},
		octetsType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary", Description: "The payload, of any type"}},
	}}
}

// manyMessages completes an operation that sends several messages.
func (s *Server) manyMessages(op *huma.Operation) {
	op.MaxBodyBytes = maxBatchBody
	op.Description = "All messages are checked before the first is sent. With the content type application/x-ndjson the " +
		"body is one message a line, of any number, and the reply one result a line, written while messages arrive; a line " +
		"that is wrong does not keep the others from being sent."
	op.Middlewares = huma.Middlewares{s.sendStream}
	op.Errors = []int{http.StatusUnprocessableEntity}
	op.RequestBody = &huma.RequestBody{Required: true, Content: orLines(s.schemaOf(typeOf[Batch]()))}
	sends("The results", orLines(s.schemaOf(typeOf[BatchResults]())))(op)
}

// target is where messages are sent to: a queue, or a topic with its queue.
type target struct {
	*later.Queue
	topic *later.Topic // nil for a queue
}

func (s *Server) queueTarget(name string) target { return target{Queue: s.client.Queue(name)} }

func (s *Server) topicTarget(name string) target {
	t := s.client.Topic(name)
	return target{t.Queue(), t}
}

func (t target) send(ctx context.Context, o later.Outgoing) (later.SendResult, error) {
	if t.topic != nil {
		return t.topic.PublishMessage(ctx, o)
	}
	return t.SendMessage(ctx, o)
}

func (t target) batch(ctx context.Context, msgs []later.Outgoing) ([]later.SendResult, error) {
	if t.topic != nil {
		return t.topic.PublishBatch(ctx, msgs)
	}
	return t.SendBatch(ctx, msgs)
}

// targetOf returns the target in the path of a request.
func (s *Server) targetOf(ctx huma.Context) target {
	if topic := ctx.Param("topic"); topic != "" {
		return s.topicTarget(topic)
	}
	return s.queueTarget(ctx.Param("queue"))
}

// QueuePath is the queue of a path.
type QueuePath struct {
	Queue string `path:"queue" maxLength:"128" doc:"The name of the queue"`
}

// MessagePath is a message of a path.
type MessagePath struct {
	QueuePath
	ID string `path:"id" maxLength:"128" doc:"The id of the message"`
}

// Outgoing is a message to send.
type Outgoing struct {
	ID string `json:"id,omitempty" minLength:"1" maxLength:"128" doc:"Default: a generated id, which sorts by time"`
	message.Payload
	Headers map[string]string `json:"headers,omitempty" maxProperties:"64"`
	Due
	message.Options
	OnDuplicate string           `json:"on_duplicate,omitempty" enum:"keep,replace,debounce,follow" doc:"What to do if the id is live. Default: keep"`
	Wait        message.Duration `json:"wait,omitempty" doc:"Of a debounce: due so long after the last send"`
	MaxWait     message.Duration `json:"max_wait,omitempty" doc:"Of a debounce: due no later than so long after the first send"`
	Durable     *Durable         `json:"durable,omitempty" doc:"Answer when the message is on disk and on replicas. Default: as the server's store is configured"`
}

// decodeOutgoing returns the message that JSON describes.
func decodeOutgoing(text []byte) (later.Outgoing, error) {
	var o Outgoing
	if err := decodeBody(text, false, &o); err != nil {
		return later.Outgoing{}, err
	}
	return o.outgoing()
}

// Durable is how safe a message must be before its send is answered.
type Durable struct {
	Replicas int              `json:"replicas" minimum:"0" maximum:"16" doc:"Wait for the disk and for so many replicas"`
	Timeout  message.Duration `json:"timeout,omitempty" doc:"Default: 5s"`
}

// Sent is a message that was sent.
type Sent struct {
	ID    string `json:"id"`
	Queue string `json:"queue"`
	// Due is by the server's clock unless the request gave a time: the store's own decides.
	Due     string            `json:"due,omitempty" doc:"When it falls due; for a delay by the server's clock, while the store's decides"`
	Outcome later.SendOutcome `json:"outcome" doc:"What the send did"`
}

// parse returns a duration, and an error that names its field. A duration of zero is refused unless it is allowed.
func (d Duration) parse(name string, zero bool) (time.Duration, error) {
	if d == "" {
		return 0, nil
	}
	parsed, err := durations.Parse(string(d))
	if err == nil && parsed == 0 && !zero {
		err = store.Invalid("is 0: give more, or omit it")
	}
	return parsed, field(name, err)
}

// wait returns how long to wait, and an error that names its field.
func (d Duration) wait(name string) (time.Duration, error) {
	wait, err := d.parse(name, true)
	if wait > maxWait {
		err = field(name, store.Invalid("is %v: the limit is %v", wait, maxWait))
	}
	return wait, err
}

// delay returns a delay, and an error that names its field. A negative delay is 0.
func (d Duration) delay(name string) (time.Duration, error) {
	if d == "" {
		return 0, nil
	}
	parsed, err := durations.ParseDelay(string(d))
	return parsed, field(name, err)
}

// outgoing returns the message to send.
func (o *Outgoing) outgoing() (out later.Outgoing, err error) {
	m := store.Message{ID: o.ID}
	o.Set(&m)
	if m.Payload, m.Headers, err = payloadOf(&o.Payload, o.Headers); err != nil {
		return out, err
	}
	out = later.OutgoingOf(m)
	if out.When, err = o.when(); err != nil {
		return out, err
	}
	if out.OnDuplicate, err = o.mode(); err != nil {
		return out, err
	}
	if o.Durable != nil {
		timeout := cmp.Or(time.Duration(o.Durable.Timeout), 5*time.Second)
		out.Durability = later.Durable(o.Durable.Replicas, timeout)
	}
	return out, nil
}

// mode returns the effect of the send if its id is live.
func (o *Outgoing) mode() (mode later.DuplicateMode, err error) {
	switch {
	case o.OnDuplicate != "debounce" && (o.Wait != 0 || o.MaxWait != 0):
		return mode, field("wait", store.Invalid("wait and max_wait are for on_duplicate debounce: omit them"))
	case o.OnDuplicate == "":
		return mode, nil
	}
	switch o.OnDuplicate {
	case "keep":
		return later.Keep(), nil
	case "replace":
		return later.Replace(), nil
	case "follow":
		return later.Follow(), nil
	}
	if o.Wait == 0 || o.MaxWait == 0 {
		return mode, field("wait", store.Invalid("a debounce needs wait and max_wait: give both, such as 2s and 30s"))
	}
	return later.Debounce(time.Duration(o.Wait), time.Duration(o.MaxWait)), nil
}

// Due is when a message falls due.
type Due struct {
	In Duration   `json:"in,omitempty" doc:"Due after this delay, by the store's clock; one below zero means at once"`
	At *time.Time `json:"at,omitempty" doc:"Due at this time"`
}

// given reports whether there is a due time.
func (d *Due) given() bool { return d.In != "" || d.At != nil }

// when returns the due time; none means at once.
func (d *Due) when() (later.When, error) {
	switch {
	case d.In != "" && d.At != nil:
		return later.When{}, field("in", store.Invalid("in and at are both given: give one of them"))
	case d.At != nil:
		return later.At(*d.At), nil
	case d.In != "":
		delay, err := d.In.delay("in")
		return later.In(delay), err
	}
	return later.When{}, nil
}

type sendInput struct {
	QueuePath
	IdempotencyKey
	Body Outgoing
}

func (s *Server) send(ctx context.Context, in *sendInput) (*output[Sent], error) {
	return s.sendBody(ctx, s.queueTarget(in.Queue), &in.Body, in.IdempotencyKey)
}

func (s *Server) sendBody(ctx context.Context, to target, body *Outgoing, key IdempotencyKey) (*output[Sent], error) {
	message, err := body.outgoing()
	if err != nil {
		return nil, err
	}
	sent, err := s.sendOne(ctx, to, message, key)
	return outputOf(sent), err
}

func (s *Server) sendOne(ctx context.Context, to target, o later.Outgoing, key IdempotencyKey) (Sent, error) {
	o.Once = key.once(0)
	result, err := to.send(ctx, o)
	sent := Sent{ID: result.ID, Queue: to.Name(), Outcome: result.Outcome, Due: dueOf(&result, o.When)}
	return sent, keyError(o.Once, err)
}

// dueOf returns when a message falls due: as the store says, or else by this machine's clock.
func dueOf(r *later.SendResult, w later.When) string {
	if !r.Due.IsZero() {
		return wire.FormatTime(r.Due)
	}
	return dueAt(w)
}

// dueAt returns when a message that was sent now falls due, by this machine's clock if that is not a given time.
func dueAt(w later.When) string {
	now := time.Now()
	if due := w.Time(now); !due.IsZero() {
		return wire.FormatTime(due)
	}
	return wire.FormatTime(now)
}

// payloadOf returns the payload of a message to send, and its headers with the content type of the payload. Errors name
// the field.
func payloadOf(p *message.Payload, headers map[string]string) (payload []byte, with map[string]string, err error) {
	if payload, with, err = p.Message(headers); err != nil {
		return nil, nil, field("payload", err)
	}
	if len(with) > store.MaxHeaders && len(headers) == store.MaxHeaders {
		return nil, nil, field("headers", store.TooLarge("has %d names, and the payload needs the header %s: the limit is "+
			"%d for all; omit one, or give %s itself", len(headers), message.ContentType, store.MaxHeaders, message.ContentType))
	}
	return payload, with, checkContentType(with)
}

// checkContentType returns an error for headers with a content type and with another spelling of that name, such as
// Content-Type, because the two may contradict each other.
func checkContentType(headers map[string]string) error {
	if _, typed := headers[message.ContentType]; !typed {
		return nil
	}
	for name := range headers {
		if name != message.ContentType && strings.EqualFold(name, message.ContentType) {
			return field("headers."+name, store.Invalid("is a second content type, beside the header %s: write the name in "+
				"lower case, or omit it", message.ContentType))
		}
	}
	return nil
}

// edited returns the payload and the headers of a message after an edit, which may omit either of them. The content
// type stays with the payload unless the edit gives headers with another one.
func edited(m *later.Outgoing, p *message.Payload, headers *map[string]string) ([]byte, map[string]string, error) {
	switch {
	case p.Given() && headers != nil:
		return payloadOf(p, *headers)
	case p.Given():
		payload, with, err := p.Edit(m.Headers)
		if err != nil {
			return nil, nil, field("payload", err)
		}
		return payload, with, checkContentType(with)
	case headers == nil:
		return m.Payload, m.Headers, nil
	}
	with := map[string]string{}
	if kept, typed := m.Headers[message.ContentType]; typed {
		with[message.ContentType] = kept
	}
	maps.Copy(with, *headers)
	return m.Payload, with, checkContentType(with)
}
