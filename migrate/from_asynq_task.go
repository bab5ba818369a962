package migrate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/laterq/later/internal/kind"
	"github.com/laterq/later/store"
)

// asynqTask is a task as asynq stores it, a TaskMessage of its asynq.proto.
type asynqTask struct {
	kind         string
	payload      []byte
	id           string
	queue        string
	retry        int64 // most retries
	retried      int64
	errorMsg     string
	timeout      int64 // seconds
	deadline     int64 // seconds since 1970
	uniqueKey    string
	lastFailedAt int64 // seconds since 1970
	headers      map[string]string
}

var errMalformedTask = errors.New("task is not encoded as asynq encodes one")

// decodeAsynqTask decodes a TaskMessage. Unknown fields are ignored.
func decodeAsynqTask(data []byte) (*asynqTask, error) {
	t := &asynqTask{}
	texts := map[protowire.Number]*string{1: &t.kind, 3: &t.id, 4: &t.queue, 7: &t.errorMsg, 10: &t.uniqueKey}
	numbers := map[protowire.Number]*int64{5: &t.retry, 6: &t.retried, 8: &t.timeout, 9: &t.deadline,
		11: &t.lastFailedAt}
	err := eachField(data, func(number protowire.Number, varint uint64, text []byte) error {
		switch {
		case texts[number] != nil:
			*texts[number] = string(text)
		case numbers[number] != nil:
			*numbers[number] = int64(varint)
		case number == 2:
			t.payload = text
		case number == 15:
			return t.addHeader(text)
		}
		return nil
	})
	if err == nil && t.id == "" {
		err = errMalformedTask
	}
	return t, err
}

func (t *asynqTask) addHeader(entry []byte) error {
	var key, value string
	err := eachField(entry, func(number protowire.Number, _ uint64, text []byte) error {
		switch number {
		case 1:
			key = string(text)
		case 2:
			value = string(text)
		}
		return nil
	})
	if t.headers == nil {
		t.headers = map[string]string{}
	}
	t.headers[key] = value
	return err
}

// eachField calls f for each field of a message of protocol buffers that is a number or bytes.
func eachField(data []byte, f func(number protowire.Number, varint uint64, text []byte) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errMalformedTask
		}
		data = data[n:]
		var varint uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return errMalformedTask
		}
		data = data[n:]
		if err := f(number, varint, text); err != nil {
			return err
		}
	}
	return nil
}

// The headers of a message that was a task of asynq.
const (
	asynqKindHeader    = kind.Header  // the task's type
	asynqOwnKindHeader = "asynq-kind" // the task's own header "kind"
	asynqIDHeader      = "asynq-id"   // the task's id, unless it is the message's, or if it is unique
)

// info returns the message of a task. locked is set if the task holds its uniqueness lock.
func (t *asynqTask) info(locked bool) (m *store.Info, aliases []string) {
	m = &store.Info{
		Message: store.Message{
			ID:          t.id,
			Payload:     t.payload,
			Headers:     maps.Clone(t.headers),
			MaxAttempts: attemptsOf(int(min(max(t.retry, t.retried), store.MaxAttempts)) + 1),
		},
		State:     store.StateScheduled,
		Attempts:  int(min(max(t.retried, 0), store.MaxAttempts)),
		Delivered: t.retried > 0 || t.lastFailedAt > 0,
		LastError: store.CutReason(t.errorMsg),
	}
	if m.Headers == nil {
		m.Headers = map[string]string{}
	}
	if own, ok := m.Headers[asynqKindHeader]; ok {
		m.Headers[asynqOwnKindHeader] = own
	}
	m.Headers[asynqKindHeader] = t.kind
	if t.timeout > 0 && t.timeout <= int64(store.MaxTimeout/time.Second) {
		m.Timeout = time.Duration(t.timeout) * time.Second
	}
	if t.deadline > 0 {
		m.ExpireAt = time.Unix(t.deadline, 0)
	}
	plain := t.id
	if store.CheckID(plain) != nil {
		plain = hashOf(plain)
	}
	unique := t.uniqueID()
	switch {
	case unique == "" || unique == plain:
		m.ID = plain
	case locked:
		m.ID, aliases = unique, []string{plain}
	default: // an earlier run may have seen the lock
		m.ID, aliases = plain, []string{unique}
	}
	if m.ID != t.id || unique != "" {
		m.Headers[asynqIDHeader] = strings.ToValidUTF8(t.id, string(utf8.RuneError))
	}
	return m, aliases
}

// uniqueID returns the id of a message that has the place of the task's uniqueness lock: TYPE:MD5 of the payload, as
// asynq names the lock, or a hash of that if it is too long. It returns "" for a task without a lock.
func (t *asynqTask) uniqueID() string {
	if t.uniqueKey == "" {
		return ""
	}
	name := strings.TrimPrefix(t.uniqueKey, asynqKeys(t.queue)+"unique:")
	if store.CheckID(name) != nil {
		return hashOf(name)
	}
	return name
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
