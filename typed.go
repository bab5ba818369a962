package later

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/store"
)

// Codec converts values to payloads and back. It must be safe for concurrent use.
//
// A Codec can have the method ContentType() string, as JSON does with application/json. A message then has the header
// content-type with that text, unless its sender sets the header. The HTTP API and the page recognise JSON by it.
type Codec interface {
	Encode(value any) ([]byte, error)
	// Decode decodes the payload into value, which is a pointer.
	Decode(payload []byte, value any) error
}

// JSON is the Codec of encoding/json.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) ContentType() string                    { return message.JSONType }
func (jsonCodec) Encode(value any) ([]byte, error)       { return json.Marshal(value) }
func (jsonCodec) Decode(payload []byte, value any) error { return json.Unmarshal(payload, value) }

// Typed is a queue with payloads of one type. Create it with TypedQueue.
type Typed[T any] struct {
	*Queue
	codec Codec
}

// TypedQueue returns a view of q with values of T, encoded as JSON, as payloads.
func TypedQueue[T any](q *Queue) Typed[T] { return Typed[T]{q, JSON} }

// WithCodec returns the same view with another codec. It returns ErrInvalid when the codec is nil.
func (t Typed[T]) WithCodec(c Codec) (Typed[T], error) {
	if c == nil {
		return Typed[T]{}, store.Invalid("codec is nil: give one, or leave WithCodec out for JSON")
	}
	return Typed[T]{t.Queue, c}, nil
}

// Send sends a value, like Queue.Send. It returns ErrInvalid for a value that cannot be encoded.
func (t Typed[T]) Send(ctx context.Context, value T, opts ...SendOption) (string, error) {
	payload, err := t.encode(value)
	if err != nil {
		return "", err
	}
	return t.Queue.Send(ctx, payload, t.withType(opts)...)
}

// Outgoing encodes a value for SendBatch. It returns ErrInvalid for a value that cannot be encoded or an
// option that is not allowed.
func (t Typed[T]) Outgoing(value T, opts ...SendOption) (Outgoing, error) {
	payload, err := t.encode(value)
	if err != nil {
		return Outgoing{}, err
	}
	var o Outgoing
	if err := o.apply(payload, t.withType(opts)); err != nil {
		return Outgoing{}, err
	}
	return o, nil
}

// Schedule returns s with this queue, and with a value as the payload of its messages. It returns ErrInvalid for a
// value that cannot be encoded.
func (t Typed[T]) Schedule(s Schedule, value T) (Schedule, error) {
	payload, err := t.encode(value)
	s.Queue, s.Payload = t.name, payload
	if _, given := s.Headers[message.ContentType]; !given && t.contentType() != "" {
		headers := map[string]string{message.ContentType: t.contentType()}
		maps.Copy(headers, s.Headers)
		s.Headers = headers
	}
	return s, err
}

// SendBatch sends values with the same options, like Queue.SendBatch. To give messages different options,
// create them with Outgoing and send them with Queue.SendBatch.
func (t Typed[T]) SendBatch(ctx context.Context, values []T, opts ...SendOption) ([]SendResult, error) {
	msgs := make([]Outgoing, len(values))
	for i, value := range values {
		o, err := t.Outgoing(value, opts...)
		if err != nil {
			return nil, fmt.Errorf("message %d of the batch: %w", i, err)
		}
		msgs[i] = o
	}
	return t.Queue.SendBatch(ctx, msgs)
}

// Decode returns the value of a received message. A handler that returns its error gives the message back, as Handler
// does.
func (t Typed[T]) Decode(m *Message) (T, error) { return decode[T](t.codec, m) }

// Handler returns a handler for Worker.Handle that decodes payloads and calls h. It gives a message back if its
// payload cannot be decoded, since a newer version of the program may have sent it; see GiveBack.
func (t Typed[T]) Handler(h func(ctx context.Context, value T, m *Message) error) HandlerFunc {
	return handler(t.codec, h)
}

// Handler returns a handler for Worker.Handle that decodes JSON payloads and calls h. It gives a message back
// if its payload cannot be decoded, since a newer version of the program may have sent it; see GiveBack.
func Handler[T any](h func(ctx context.Context, value T, m *Message) error) HandlerFunc {
	return handler(JSON, h)
}

func handler[T any](codec Codec, h func(context.Context, T, *Message) error) HandlerFunc {
	if h == nil {
		return nil // which Run reports
	}
	return func(ctx context.Context, m *Message) error {
		value, err := decode[T](codec, m)
		if err != nil {
			return err
		}
		return h(ctx, value, m)
	}
}

// contentType returns the content type of the payloads, or "" if it is not known.
func (t Typed[T]) contentType() string {
	if c, ok := t.codec.(interface{ ContentType() string }); ok {
		return c.ContentType()
	}
	return ""
}

// withType returns options that also set the content type, unless one of them does.
func (t Typed[T]) withType(opts []SendOption) []SendOption {
	contentType := t.contentType()
	if contentType == "" {
		return opts
	}
	return append(slices.Clip(opts), sendOption(func(o *Outgoing) error {
		if _, given := o.Headers[message.ContentType]; given {
			return nil
		}
		return o.addHeader(message.ContentType, contentType)
	}))
}

func (t Typed[T]) encode(value T) ([]byte, error) {
	payload, err := t.codec.Encode(value)
	if err != nil {
		return nil, fmt.Errorf("%w: value of type %T cannot be encoded: %w", ErrInvalid, value, err)
	}
	return payload, nil
}

func decode[T any](codec Codec, m *Message) (T, error) {
	var value T
	if err := codec.Decode(m.Payload, &value); err != nil {
		return value, GiveBack(fmt.Errorf("payload cannot be decoded into %T: %w", value, err))
	}
	return value, nil
}
