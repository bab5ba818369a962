package store

import (
	"crypto/sha256"
	"time"
)

const (
	// OnceWindow is how long a queue remembers a Once, counted from the send.
	OnceWindow = 24 * time.Hour
	// OnceSize is the length of the Key and of the Fingerprint of a Once, in bytes.
	OnceSize = 16
)

// Once makes a request that sends a message safe to repeat, even if each attempt sends it under another id.
//
// A Send that adds a message, replaces one or makes it follow another stores its Once in the same step. The queue
// remembers it for OnceWindow, even if the message is acked, cancelled, purged or dead by then. A Send with the same
// Key and Fingerprint in that time changes nothing: its result is Duplicate, with the first send in SendResult.First.
// With another Fingerprint it changes nothing either, and ErrConflict is in its result. Both come before everything
// else that a Send checks about its message. A Send that is refused, because its id is a duplicate or because of the
// live message, stores nothing.
//
// Delete forgets the keys of a queue, and an export or a Restore does not have them. Keys are a namespace of their own:
// they never equal an id. An engine forgets ended keys a bounded number at a time, or all at once at no cost. Each key
// takes about 100 bytes and the id.
type Once struct {
	Key         string // names the request
	Fingerprint string // of its request
}

// NewOnce returns a Once of any key and request. Its parts are the first bytes of their SHA-256.
func NewOnce(key, request []byte) *Once {
	k, f := sha256.Sum256(key), sha256.Sum256(request)
	return &Once{Key: string(k[:OnceSize]), Fingerprint: string(f[:OnceSize])}
}

func (o *Once) check() error {
	if o != nil && (len(o.Key) != OnceSize || len(o.Fingerprint) != OnceSize) {
		return Invalid("once has a key of %d bytes and a fingerprint of %d: must be %d each, as from NewOnce",
			len(o.Key), len(o.Fingerprint), OnceSize)
	}
	return nil
}

// FirstSend is the send that a Once stands for.
type FirstSend struct {
	ID  string
	Due time.Time // as it was when the message was sent
}

// OneByOne reports whether a Send decides about the message alone, because it may change a live one or be a repetition.
// Either all messages of a Send are such, or none is. Equal ids and keys within such a Send take effect in order.
func (m *Outgoing) OneByOne() bool { return m.OnDuplicate.Collapses() || m.Once != nil }
