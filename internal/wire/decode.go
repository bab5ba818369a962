package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/store"
)

// DecodeMessage returns the message whose JSON is line, and its queue. It accepts only what a store accepts: the
// message passes Info.Check. A field that is unknown, missing, given twice or of a wrong type is an ErrInvalid, as is
// text that JSON would change silently; a value over its limit is ErrInvalid or ErrTooLarge. The error names the field.
func DecodeMessage(line []byte) (queue string, info store.Info, err error) {
	return decodeMessage(line, messageDecoder{})
}

// DecodeMessage1 is DecodeMessage for exports of version 1, in which "payload" is text and durations are milliseconds.
func DecodeMessage1(line []byte) (queue string, info store.Info, err error) {
	return decodeMessage(line, messageDecoder{version1: true})
}

func decodeMessage(line []byte, d messageDecoder) (queue string, info store.Info, err error) {
	if len(line) > MaxMessage {
		return "", store.Info{}, store.TooLarge("message is %d bytes of JSON: the limit is %d", len(line), MaxMessage)
	}
	seen, err := DecodeObject(line, d.field)
	if err != nil {
		return "", store.Info{}, err
	}
	for _, name := range []string{"queue", "id", "state", "due"} {
		if !seen[name] {
			return "", store.Info{}, store.Invalid("field %q is missing: give it", name)
		}
	}
	if d.info.Payload, d.info.Headers, err = d.payload.Message(d.info.Headers); err != nil {
		return "", store.Info{}, err
	}
	if d.info.Raw != nil {
		for name := range seen {
			if ofReadable[name] {
				return "", store.Info{}, store.Invalid(`field %q is given beside "raw_base64": an unreadable message does not `+
					`have it; leave it out`, name)
			}
		}
	}
	if err := store.CheckQueue(d.queue); err != nil {
		return "", store.Info{}, err
	}
	if err := d.info.Check(); err != nil {
		return "", store.Info{}, err
	}
	return d.queue, d.info, nil
}

// ofReadable are the fields that are not known of an unreadable message.
var ofReadable = map[string]bool{
	"payload": true, "payload_text": true, "payload_base64": true, "headers": true, "max_attempts": true,
	"timeout": true, "expire_after": true, "expire_at": true, "dedup_window": true, "group": true,
	"sent_at": true,
}

// messageDecoder gathers the fields of a message.
type messageDecoder struct {
	queue   string
	info    store.Info
	payload Payload

	version1 bool
}

// field takes in one field.
func (m *messageDecoder) field(name string, v *Value) {
	i := &m.info
	if m.version1 {
		switch name {
		case "payload":
			m.payload.PayloadText = new(v.Text())
			return
		case "timeout_ms":
			i.Timeout = v.millis()
			return
		case "expire_after_ms":
			i.ExpireAfter = v.millis()
			return
		case "dedup_window_ms":
			i.DedupWindow = v.millis()
			return
		}
	}
	switch name {
	case "queue":
		m.queue = v.Text()
	case "id":
		i.ID = v.Text()
	case "state":
		i.State = store.State(v.Text())
	case "due":
		i.Due = v.Time()
	case "payload":
		m.payload.Payload = v.JSON()
	case "payload_text":
		m.payload.PayloadText = new(v.Text())
	case "payload_base64":
		m.payload.PayloadBase64 = v.Bytes()
	case "headers":
		i.Headers = v.Texts()
	case "max_attempts":
		i.MaxAttempts = v.Count()
	case "timeout":
		i.Timeout = v.Duration()
	case "expire_after":
		i.ExpireAfter = v.Duration()
	case "expire_at":
		i.ExpireAt = v.Time()
	case "dedup_window":
		i.DedupWindow = v.Duration()
	case "group":
		i.Group = v.Text()
	case "sent_at":
		i.SentAt = v.Time()
	case "attempts":
		i.Attempts = v.Count()
	case "delivered":
		i.Delivered = v.Bool()
	case "last_error":
		i.LastError = v.Text()
	case "failures":
		i.Failures = v.Failures(m.version1)
	case "dead_reason":
		i.DeadReason = store.DeadReason(v.Text())
	case "died_at":
		i.DiedAt = v.Time()
	case "raw_base64":
		i.Raw = v.Bytes()
	default:
		v.Unknown()
	}
}

// DecodeObject calls field for each field of a JSON object, until one is refused, and returns the names of those it
// called it for. encoding/json alone would accept names in any case, names given twice, and text that is not Unicode.
func DecodeObject(line []byte, field func(name string, v *Value)) (seen map[string]bool, err error) {
	if !utf8.Valid(line) {
		return nil, errNotUTF8
	}
	if err := jsontext.CheckDepth(line); err != nil {
		return nil, err
	}
	var whole json.RawMessage
	if err := json.Unmarshal(line, &whole); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, store.Invalid("line is not one JSON object: %v at byte %d", err, syntax.Offset)
		}
		return nil, store.Invalid("line is not one JSON object: %v", err)
	}
	if hasLoneSurrogate(line) {
		return nil, errLoneSurrogate
	}
	v := &Value{json: json.NewDecoder(bytes.NewReader(line))}
	v.json.UseNumber()
	if v.next() != json.Delim('{') {
		return nil, store.Invalid("line is not a JSON object: give {…}")
	}
	seen = map[string]bool{}
	for v.json.More() && v.err == nil {
		v.name, _ = v.next().(string)
		if seen[v.name] {
			return nil, store.Invalid("field %q is given twice: give it once", v.name)
		}
		seen[v.name] = true
		field(v.name, v)
	}
	if v.err != nil {
		return nil, v.err
	}
	return seen, nil
}

// CheckText returns an ErrInvalid for JSON with text that encoding/json would change silently.
func CheckText(text []byte) error {
	switch {
	case !utf8.Valid(text):
		return errNotUTF8
	case bytes.Contains(text, unicodeEscape) && json.Valid(text) && hasLoneSurrogate(text):
		return errLoneSurrogate
	}
	return nil
}

var unicodeEscape = []byte(`\u`)

var (
	errNotUTF8       = store.Invalid("JSON is not UTF-8: give it in UTF-8, and bytes that are not text in base64")
	errLoneSurrogate = store.Invalid(`text has half of a surrogate pair, such as \ud800, which is not a character: give ` +
		`bytes that are not text in base64`)
)

// Value reads the value of a field. Exactly one of its methods is called for each field.
type Value struct {
	json *json.Decoder
	name string
	err  error // of the first value that is refused
}

// next returns the next token. The JSON is known to be valid.
func (v *Value) next() json.Token {
	token, err := v.json.Token()
	if err != nil && err != io.EOF {
		v.refuse("cannot be read: %v", err)
	}
	return token
}

func (v *Value) refuse(format string, args ...any) {
	if v.err == nil {
		v.err = store.Invalid("field %q %s", v.name, fmt.Sprintf(format, args...))
	}
}

// want refuses a value that is not of a type.
func want[T any](v *Value, what string) (value T) {
	token := v.next()
	value, ok := token.(T)
	if !ok {
		v.refuse("is %s: give %s", kindOf(token), what)
	}
	return value
}

func kindOf(token json.Token) string {
	switch t := token.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case json.Number:
		return "a number"
	case string:
		return "text"
	case json.Delim:
		if t == '[' {
			return "a list"
		}
	}
	return "an object"
}

// Unknown refuses the field.
func (v *Value) Unknown() { v.refuse("is unknown: leave it out") }

// Text reads a text.
func (v *Value) Text() string { return want[string](v, "text") }

// Bool reads true or false.
func (v *Value) Bool() bool { return want[bool](v, "true or false") }

// JSON reads any value.
func (v *Value) JSON() (value json.RawMessage) {
	if err := v.json.Decode(&value); err != nil {
		v.refuse("cannot be read: %v", err)
	}
	return value
}

// millis reads a duration in milliseconds.
func (v *Value) millis() time.Duration {
	return time.Duration(v.Int(store.MaxDelay.Milliseconds())) * time.Millisecond
}

// Bytes reads bytes in base64. They are never nil.
func (v *Value) Bytes() []byte {
	text := want[string](v, "bytes in base64")
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		v.refuse("is not in base64, %v: give the standard encoding with padding", err)
	}
	if b == nil {
		b = []byte{}
	}
	return b
}

// Texts reads an object of texts.
func (v *Value) Texts() map[string]string {
	if token := v.next(); token != json.Delim('{') {
		v.refuse("is %s: give an object of texts", kindOf(token))
		return nil
	}
	texts := map[string]string{}
	for v.json.More() && v.err == nil {
		key, _ := v.next().(string)
		if _, twice := texts[key]; twice {
			v.refuse("gives %q twice: give it once", key)
		}
		texts[key] = want[string](v, "an object of texts")
	}
	v.next() // }
	return texts
}

// Int reads a whole number of 0 to most.
func (v *Value) Int(most int64) int64 {
	text := want[json.Number](v, "a whole number")
	if v.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(text.String(), 10, 64)
	if err != nil || n < 0 || n > most {
		v.refuse("is %.40s: give a whole number of 0 to %d", text, most)
		return 0
	}
	return n
}

// Count reads a number whose limit Info.Check knows.
func (v *Value) Count() int { return int(v.Int(math.MaxInt32)) }

// Time reads a time in RFC 3339, and rounds it up to a millisecond.
func (v *Value) Time() time.Time {
	text := want[string](v, "a time such as 2030-12-31T23:59:59.000Z")
	if v.err != nil {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		v.refuse("is %.40q: give a time such as 2030-12-31T23:59:59.000Z", text)
		return time.Time{}
	}
	if t.Before(time.UnixMilli(1)) { // which would be no time at all, or one that no engine keeps
		v.refuse("is %.40q: give a time after 1970", text)
		return time.Time{}
	}
	return store.Time(store.UnixMillis(t))
}

// hasLoneSurrogate reports whether valid JSON has an escape of half a surrogate pair, which encoding/json replaces.
func hasLoneSurrogate(line []byte) bool {
	for i := 0; i < len(line); i++ {
		if line[i] != '\\' {
			continue
		}
		i++
		if line[i] != 'u' {
			continue
		}
		high := hex(line[i+1:])
		i += 4
		switch {
		case high < 0xd800 || high > 0xdfff:
			continue
		case high >= 0xdc00 || !bytes.HasPrefix(line[i+1:], []byte(`\u`)):
			return true
		}
		if low := hex(line[i+3:]); low < 0xdc00 || low > 0xdfff {
			return true
		}
		i += 6
	}
	return false
}

// hex returns the number that four hexadecimal digits are.
func hex(digits []byte) uint64 {
	n, _ := strconv.ParseUint(string(digits[:4]), 16, 16)
	return n
}
