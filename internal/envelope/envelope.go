// Package envelope encodes messages for the durable engines: one flag byte, the fields that differ from their defaults
// in a fixed order, and the payload. A default message (no headers, default attempts, an id from store.NewID) takes one
// byte more than its payload. The id and the due time are stored separately.
//
//	byte  flags
//	2     max attempts       flag 1     big endian, like all numbers
//	6     expiry after due   flag 2     milliseconds
//	6     expiry             flag 4     milliseconds since 1970
//	4     timeout            flag 8     milliseconds
//	6     dedup window       flag 16    milliseconds
//	8     sent at, nonce     flag 32    6 bytes milliseconds since 1970, 2 random bytes
//	...   headers            flag 64    uvarint count, then uvarint length and bytes of each name and value,
//	                                    sorted by name
//	...   payload
//
// The group and the key of a message are its first headers, in this order, with names that no other header has: the
// group's is empty, and the key's a control character, which also tells the urgency. A message without a key that has
// an urgency has an empty key. Messages without them take no byte for them.
//
// Flag 128 is never set: a first byte of 128 or more marks a later format. The Lua scripts of redisstore read the
// flags, the attempts and the expiries, so these come first and have fixed widths.
package envelope

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/laterq/later/store"
)

const (
	flagMaxAttempts = 1 << iota
	flagExpireAfter
	flagExpireAt
	flagTimeout
	flagDedup
	flagSentAt
	flagHeaders
	flagLater
)

// The names of the header with the key of a message, a byte for each urgency. The Lua scripts of redisstore know them,
// too.
var keyUrgencies = []store.Urgency{store.UrgencyNormal, store.UrgencyHigh, store.UrgencyLow}

const keyNames = "\x01\x02\x03"

// nameOf returns the name of the header with the key of a message; "" if there is none.
func nameOf(m *store.Message) string {
	i := max(0, slices.Index(keyUrgencies, m.Urgency))
	if i == 0 && m.Key == "" {
		return ""
	}
	return keyNames[i : i+1]
}

// urgencyOf returns the urgency of a message, and true, if a header with such a name has its key.
func urgencyOf(name string) (u store.Urgency, ok bool) {
	if i := strings.Index(keyNames, name); len(name) == 1 && i >= 0 {
		return keyUrgencies[i], true
	}
	return u, false
}

// ErrUnreadable is returned for bytes that are not an envelope of this format.
var ErrUnreadable = errors.New("envelope is unreadable")

// Append appends the envelope of a valid message to b. If SentAt is set, it contains a random nonce. The nonce lets an
// engine that repeats a send distinguish its own message from another one with the same id.
func Append(b []byte, m *store.Message) []byte {
	start := len(b)
	b = append(b, 0)
	flags := byte(0)
	if m.MaxAttempts != 0 {
		flags |= flagMaxAttempts
		b = binary.BigEndian.AppendUint16(b, uint16(m.MaxAttempts))
	}
	if m.ExpireAfter > 0 {
		flags |= flagExpireAfter
		b = append48(b, store.Millis(m.ExpireAfter))
	}
	if !m.ExpireAt.IsZero() {
		flags |= flagExpireAt
		b = append48(b, store.UnixMillis(m.ExpireAt))
	}
	if m.Timeout > 0 {
		flags |= flagTimeout
		b = binary.BigEndian.AppendUint32(b, uint32(store.Millis(m.Timeout)))
	}
	if m.DedupWindow > 0 {
		flags |= flagDedup
		b = append48(b, store.Millis(m.DedupWindow))
	}
	if !m.SentAt.IsZero() {
		flags |= flagSentAt
		b = append48(b, m.SentAt.UnixMilli())
		b = binary.BigEndian.AppendUint16(b, uint16(rand.Uint32()))
	}
	key := nameOf(m)
	if len(m.Headers) > 0 || m.Group != "" || key != "" {
		flags |= flagHeaders
		n := len(m.Headers)
		if m.Group != "" {
			n++
		}
		if key != "" {
			n++
		}
		b = binary.AppendUvarint(b, uint64(n))
		if m.Group != "" {
			b = appendText(appendText(b, ""), m.Group)
		}
		if key != "" {
			b = appendText(appendText(b, key), m.Key)
		}
		for _, name := range HeaderNames(m) {
			b = appendText(b, name)
			b = appendText(b, m.Headers[name])
		}
	}
	b[start] = flags
	return append(b, m.Payload...)
}

// HeaderNames returns the names of a message's headers in the order of envelopes.
func HeaderNames(m *store.Message) []string { return slices.Sorted(maps.Keys(m.Headers)) }

// Unusual reports whether the scripts of the engines must read past the flag byte, for attempts or expiry.
func Unusual(flags byte) bool {
	return flags&(flagMaxAttempts|flagExpireAfter|flagExpireAt|flagLater) != 0
}

// HasGroup reports whether an envelope may have a group, from its flag byte alone.
func HasGroup(s string) bool { return s != "" && s[0] >= flagHeaders && s[0] < flagLater }

// Size returns an upper bound for the length of the envelope.
func Size(m *store.Message) int {
	n := 1 + 32 + len(m.Payload) + len(m.Group) + 3 + len(m.Key) + 3
	for name, value := range m.Headers {
		n += len(name) + len(value) + 6
	}
	return n + 3
}

// Decode decodes an envelope into m, except for its ID. The payload and headers share memory with s, which must not be
// modified.
func Decode(s string, m *store.Message) error {
	r := reader{rest: s}
	flags := r.uint(1)
	if flags >= flagLater {
		return ErrUnreadable
	}
	if flags&flagMaxAttempts != 0 {
		m.MaxAttempts = int(r.uint(2))
	}
	if flags&flagExpireAfter != 0 {
		m.ExpireAfter = r.millis()
	}
	if flags&flagExpireAt != 0 {
		m.ExpireAt = time.UnixMilli(int64(r.uint(6)))
	}
	if flags&flagTimeout != 0 {
		m.Timeout = time.Duration(r.uint(4)) * time.Millisecond
	}
	if flags&flagDedup != 0 {
		m.DedupWindow = r.millis()
	}
	if flags&flagSentAt != 0 {
		m.SentAt = time.UnixMilli(int64(r.uint(6)))
		r.uint(2)
	} else if t, ok := store.IDTime(m.ID); ok {
		m.SentAt = t
	}
	if flags&flagHeaders != 0 {
		r.headers(m)
	}
	if r.bad {
		return ErrUnreadable
	}
	m.Payload = unsafe.Slice(unsafe.StringData(r.rest), len(r.rest))
	return nil
}

type reader struct {
	rest string
	bad  bool
}

func (r *reader) take(n uint64) string {
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *reader) uint(width uint64) uint64 {
	v := uint64(0)
	for _, c := range []byte(r.take(width)) {
		v = v<<8 | uint64(c)
	}
	return v
}

// millis reads a duration and limits it to avoid overflow.
func (r *reader) millis() time.Duration {
	ms := r.uint(6)
	if ms > uint64(store.MaxDelay/time.Millisecond) {
		r.bad = true
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

func (r *reader) uvarint() uint64 {
	v, shift := uint64(0), 0
	for {
		c := r.uint(1)
		if r.bad || shift > 28 {
			r.bad = true
			return 0
		}
		v |= (c & 0x7f) << shift
		if c < 0x80 {
			return v
		}
		shift += 7
	}
}

// headers reads the headers into m, and the group and the key before them.
func (r *reader) headers(m *store.Message) {
	n := r.uvarint()
	if n > store.MaxHeaders+2 {
		r.bad = true
		return
	}
	var headers map[string]string
	keyed := false
	for i := range n {
		name := r.take(r.uvarint())
		value := r.take(r.uvarint())
		urgency, isKey := urgencyOf(name)
		switch {
		case r.bad:
			return
		case name == "" && i == 0:
			m.Group = value
		case isKey && len(headers) == 0 && !keyed:
			m.Key, m.Urgency, keyed = value, urgency, true
		case name == "" || isKey:
			r.bad = true
			return
		default:
			if headers == nil {
				headers = make(map[string]string, n-i)
			}
			headers[name] = value
		}
	}
	m.Headers = headers
}

func append48(b []byte, v int64) []byte {
	return append(b, byte(v>>40), byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
