package message

import "github.com/laterq/later/store"

// Content is the JSON of what the sender of a message sets of it, besides its id and due time.
type Content struct {
	Payload
	Headers map[string]string `json:"headers,omitempty" maxProperties:"64"`
	Options
}

// NewContent returns the JSON of a message, from which Message returns the same bytes as its payload.
func NewContent(m *store.Message) Content {
	return Content{exactPayload(m.Payload, m.Headers), m.Headers, OptionsOf(m)}
}

// ShownContent returns the JSON of a message for people: a payload that is JSON is shown as such, without its spaces.
func ShownContent(m *store.Message) Content {
	return Content{NewPayload(m.Payload, m.Headers), m.Headers, OptionsOf(m)}
}

// Message returns the message without an id. It returns the errors of Payload.Message.
func (c *Content) Message() (m store.Message, err error) {
	c.Options.Set(&m)
	m.Payload, m.Headers, err = c.Payload.Message(c.Headers)
	return m, err
}
