package server

import (
	"maps"
	"strings"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/store"
)

// payloadOf returns the payload of a message to send, and its headers with the content type of the payload. Errors name
// the field.
func payloadOf(p *message.Payload, headers map[string]string) (payload []byte, with map[string]string, err error) {
	if payload, with, err = p.Message(headers); err != nil {
		return nil, nil, field("payload", err)
	}
	if len(with) > store.MaxHeaders && len(headers) == store.MaxHeaders {
		return nil, nil, field("headers", store.TooLarge("has %d names, and the payload needs the header %s: the limit is %d "+
			"for all; omit one, or give %s itself", len(headers), message.ContentType, store.MaxHeaders, message.ContentType))
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
