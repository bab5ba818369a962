package store

import (
	"bytes"
	"maps"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of messages. They are checked before anything is written.
const (
	MaxID          = 128      // bytes of an id
	MaxGroup       = 128      // bytes of the name of a group
	MaxKey         = 64       // bytes of the key of a message
	MaxPayload     = 1 << 20  // bytes of a payload
	MaxHeaders     = 64       // headers of a message
	MaxHeaderBytes = 16 << 10 // bytes of all names and values of a message's headers
	MaxAttempts    = 65535    // largest Message.MaxAttempts
	MaxTimeout     = MaxLease // longest run of a handler, also for Message.Timeout
)

// DefaultMaxAttempts is the number of failed attempts after which a message is dead, unless its sender sets another.
const DefaultMaxAttempts = 20

// Message is a message as its sender specified it.
type Message struct {
	ID      string
	Payload []byte
	Headers map[string]string

	// MaxAttempts is the number of failed attempts after which the message is dead; 0 means DefaultMaxAttempts.
	MaxAttempts int
	// Timeout limits one run of the handler; 0 means the worker's limit. Engines store it and do not act on it.
	Timeout time.Duration
	// ExpireAfter and ExpireAt are the expiry of the message: relative to its due time, or absolute. A message
	// that has not been delivered by then becomes dead. At most one of them is set.
	ExpireAfter time.Duration
	ExpireAt    time.Time
	// DedupWindow is how long the id is refused after the message was acked. 0 means not at all.
	DedupWindow time.Duration
	// Group names the group that the message belongs to, so that a List with ListRequest.Group finds it; "" means none.
	Group string
	// Key says whom or which thing the message is about, such as a customer: 1 to MaxKey bytes of UTF-8 without
	// control characters and slashes, and not . or ..; "" means none. Messages of any queue can have the same key.
	// Engines act on it only where the Flow of the queue is Fair; an id made by IDs has its slot.
	Key string
	// Urgency says which messages go first. A Send, also one that replaces a message or has a Once, returns the error
	// of CheckUrgency. In other calls any queue takes it. It counts when the Flow of the queue has Urgency.
	Urgency Urgency
	// SentAt is the sender's clock at Send, in milliseconds, or the engine's; see OnDuplicate. It is set if the sender
	// chose the id itself; an id made by NewID carries its time.
	SentAt time.Time
}

// checkNew refuses names that no new message may have.
func (m *Message) checkNew() error {
	if err := Field("id", CheckNew("id", m.ID)); err != nil {
		return err
	}
	return Field("group", CheckNew("group", m.Group))
}

// check returns an error if the message exceeds a limit.
func (m *Message) check() error {
	if err := CheckID(m.ID); err != nil {
		return err
	}
	if len(m.Payload) > MaxPayload {
		return Field("payload", TooLarge("payload is %d bytes: the limit is %d; keep large data elsewhere "+
			"and send its address", len(m.Payload), MaxPayload))
	}
	if err := Field("headers", checkHeaders(m.Headers)); err != nil {
		return err
	}
	if err := Field("group", checkText("group", m.Group, MaxGroup)); err != nil {
		return err
	}
	if err := Field("key", checkKey(m.Key)); err != nil {
		return err
	}
	if err := m.Urgency.Check(); err != nil {
		return err
	}
	if m.MaxAttempts < 0 || m.MaxAttempts > MaxAttempts {
		return Field("max_attempts", Invalid("max attempts is %d: must be 1 to %d, or 0 for the default of %d",
			m.MaxAttempts, MaxAttempts, DefaultMaxAttempts))
	}
	if m.Timeout < 0 || m.Timeout > MaxTimeout {
		return Field("timeout", Invalid("timeout is %v: must be 0 (none) to %v", m.Timeout, MaxTimeout))
	}
	if m.ExpireAfter < 0 || m.ExpireAfter > MaxDelay {
		return Field("expire_after", Invalid("expiry is %v after the due time: must be 0 (never) to %v", m.ExpireAfter,
			MaxDelay))
	}
	if m.ExpireAfter > 0 && !m.ExpireAt.IsZero() {
		return Field("expire_at", Invalid("expiry is given twice, relative and absolute: give only one"))
	}
	if err := Field("expire_at", checkTime("expiry", m.ExpireAt)); err != nil {
		return err
	}
	if m.DedupWindow < 0 || m.DedupWindow > MaxDelay {
		return Field("dedup_window", Invalid("dedup window is %v: must be 0 (not at all) to %v", m.DedupWindow,
			MaxDelay))
	}
	return nil
}

// CheckID returns an ErrInvalid unless id is valid: 1 to MaxID bytes of UTF-8 without control characters.
func CheckID(id string) error {
	if id == "" {
		return Field("id", Invalid("id is empty: it must have 1 to %d bytes; leave it out to have one made", MaxID))
	}
	return Field("id", checkText("id", id, MaxID))
}

// CheckSentID returns an ErrInvalid for an id that no message can have.
func CheckSentID(id string) error {
	if id == "" {
		return Field("id", Invalid("id is empty: give the id of a message, as Send returned it"))
	}
	return CheckID(id)
}

// CheckGroup returns an ErrInvalid unless group can be listed: 1 to MaxGroup bytes of UTF-8 without control characters.
func CheckGroup(group string) error {
	if group == "" {
		return Field("group", Invalid("group is empty: it must have 1 to %d bytes", MaxGroup))
	}
	return Field("group", checkText("group", group, MaxGroup))
}

// CheckKey returns an ErrInvalid unless key can be the key of a message: 1 to MaxKey bytes of UTF-8 without control
// characters and slashes, and not . or ..
func CheckKey(key string) error {
	if key == "" {
		return Field("key", Invalid("key is empty: it must have 1 to %d bytes; leave it out for none", MaxKey))
	}
	return Field("key", checkKey(key))
}

// checkKey accepts the empty key of messages without one.
func checkKey(key string) error {
	if len(key) > MaxKey {
		return Invalid("key is %d bytes long: the limit is %d; give a shorter one, such as its hash", len(key), MaxKey)
	}
	if strings.Contains(key, "/") {
		return Invalid("key %q holds a slash: leave it out, or write another character, such as :", key)
	}
	if err := checkText("key", key, MaxKey); err != nil {
		return err
	}
	return CheckNew("key", key)
}

func checkHeaders(headers map[string]string) error {
	if len(headers) == 0 {
		return nil
	}
	if len(headers) > MaxHeaders {
		return TooLarge("message has %d headers: the limit is %d", len(headers), MaxHeaders)
	}
	total := 0
	for name, value := range headers {
		if name == "" {
			return Invalid("header name is empty")
		}
		if err := checkText("header name", name, MaxHeaderBytes); err != nil {
			return err
		}
		if !utf8.ValidString(value) {
			return Invalid("header %q has a value that is not UTF-8", name)
		}
		total += len(name) + len(value)
	}
	if total > MaxHeaderBytes {
		return TooLarge("headers are %d bytes in all: the limit is %d", total, MaxHeaderBytes)
	}
	return nil
}

// Expired reports whether a message that fell due at a time, and was never delivered, has expired. Times are in
// milliseconds since 1970.
func (m *Message) Expired(due, now int64) bool {
	return m.ExpireAfter > 0 && due+Millis(m.ExpireAfter) <= now ||
		!m.ExpireAt.IsZero() && UnixMillis(m.ExpireAt) <= now
}

// WholeMillis rounds times and durations up to whole milliseconds, as every engine stores them. SentAt, which is the
// time of a clock, is rounded down.
func (m *Message) WholeMillis() {
	for _, d := range []*time.Duration{&m.Timeout, &m.ExpireAfter, &m.DedupWindow} {
		*d = time.Duration(Millis(*d)) * time.Millisecond
	}
	if !m.ExpireAt.IsZero() {
		m.ExpireAt = Time(UnixMillis(m.ExpireAt))
	}
	if !m.SentAt.IsZero() {
		m.SentAt = Time(m.SentAt.UnixMilli())
	}
}

// same reports whether m and o are the same message. Times are compared in whole milliseconds.
func (m *Message) same(o *Message) bool {
	return m.ID == o.ID && bytes.Equal(m.Payload, o.Payload) && maps.Equal(m.Headers, o.Headers) &&
		m.MaxAttempts == o.MaxAttempts && Millis(m.Timeout) == Millis(o.Timeout) &&
		Millis(m.ExpireAfter) == Millis(o.ExpireAfter) && sameTime(m.ExpireAt, o.ExpireAt) &&
		Millis(m.DedupWindow) == Millis(o.DedupWindow) && m.Group == o.Group && m.Key == o.Key &&
		m.Urgency == o.Urgency && sameTime(m.SentAt, o.SentAt)
}
