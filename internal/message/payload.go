package message

import (
	"encoding/json"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/store"
)

// ContentType is the header of a message with the type of its payload. JSONType is that of payloads that were sent as
// JSON. Other payloads need none.
const (
	ContentType = "content-type"
	JSONType    = "application/json"
)

// Payload is the payload of a message, in one of three forms, in requests and replies alike: a JSON value if the
// message's content type says so, else text if it is UTF-8, else bytes in base64.
type Payload struct {
	Payload       json.RawMessage `json:"payload,omitempty" doc:"A JSON value. The message has the header content-type: application/json"`
	PayloadText   *string         `json:"payload_text,omitempty" doc:"Text, in place of payload"`
	PayloadBase64 []byte          `json:"payload_base64,omitempty" doc:"Bytes, in place of payload"`
}

// NewPayload returns the JSON of the payload of a message with some headers. The JSON of a value may have spaces that
// the message does not keep.
func NewPayload(payload []byte, headers map[string]string) Payload {
	switch {
	case isJSON(headers[ContentType]) && jsontext.CheckValue(payload) == nil && jsontext.CheckText(payload) == nil:
		return Payload{Payload: payload}
	case utf8.Valid(payload):
		text := string(payload)
		return Payload{PayloadText: &text}
	}
	return Payload{PayloadBase64: payload}
}

// exactPayload returns the JSON of a payload from which Message returns the same bytes: a value with spaces is text.
func exactPayload(payload []byte, headers map[string]string) Payload {
	if len(payload) == 0 {
		return Payload{}
	}
	p := NewPayload(payload, headers)
	if p.Payload != nil {
		if compact, _ := jsontext.Compact(p.Payload); len(compact) < len(p.Payload) {
			return NewPayload(payload, nil)
		}
	}
	return p
}

// isJSON reports whether payloads of a content type are JSON.
func isJSON(contentType string) bool {
	if contentType == JSONType {
		return true
	}
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == JSONType || strings.HasSuffix(media, "+json")
}

// Given reports whether there is a payload, in any form.
func (p *Payload) Given() bool {
	return p.Payload != nil || p.PayloadText != nil || p.PayloadBase64 != nil
}

// Message returns the payload of a message to send, and the headers that it needs besides the given ones, which it does
// not change. A JSON value is sent without the spaces around its parts. It returns an ErrInvalid for several forms, and
// for JSON with a content type that is not JSON's. The value was checked with jsontext.CheckText.
func (p *Payload) Message(headers map[string]string) (payload []byte, with map[string]string, err error) {
	switch text, base64 := p.PayloadText != nil, p.PayloadBase64 != nil; {
	case p.Payload != nil && (text || base64) || text && base64:
		return nil, nil, store.Field("payload", store.Invalid("payload is given in several forms: give one of payload, "+
			"payload_text and payload_base64"))
	case text:
		return []byte(*p.PayloadText), headers, nil
	case p.Payload == nil:
		return p.PayloadBase64, headers, nil
	}
	given, typed := headers[ContentType]
	if typed && !isJSON(given) {
		return nil, nil, store.Field("payload", store.Invalid("payload is JSON, and the header %s is %.80q: give "+
			"payload_text or payload_base64", ContentType, given))
	}
	if payload, err = jsontext.Compact(p.Payload); err != nil || typed {
		return payload, headers, store.Field("payload", err)
	}
	with = make(map[string]string, len(headers)+1)
	maps.Copy(with, headers)
	with[ContentType] = JSONType
	return payload, with, nil
}

// Edit returns the payload that replaces one of a message, and its headers with the content type of the new one. It
// returns the errors of Message.
func (p *Payload) Edit(headers map[string]string) (payload []byte, with map[string]string, err error) {
	if isJSON(headers[ContentType]) != (p.Payload != nil) {
		headers = maps.Clone(headers)
		delete(headers, ContentType)
	}
	return p.Message(headers)
}
