//go:build unix

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"time"

	"github.com/laterq/later"
)

// Kinds of payloads: what they do to their handler.
const (
	normal = 'n' // see decide
	headed = 'h' // likewise; the key is in a header too
	poison = 'X' // kills the process
)

// makePayload makes a payload of about size bytes that tells its key and whether it is whole.
func makePayload(key string, kind byte, size int) []byte {
	b := fmt.Appendf(nil, "%s %c ", key, kind)
	for len(b) < size {
		b = append(b, key...)
	}
	b = append(b, ' ')
	return fmt.Appendf(b, "%08x", crc32.ChecksumIEEE(b))
}

// headerKey is the header that repeats the key of a headed message.
const headerKey = "key"

// readPayload gives what makePayload was given; whole is false when the bytes are not what was made.
func readPayload(b []byte) (key string, kind byte, whole bool) {
	if len(b) < 8 || fmt.Sprintf("%08x", crc32.ChecksumIEEE(b[:len(b)-8])) != string(b[len(b)-8:]) {
		return "-", 0, false
	}
	parts := bytes.SplitN(b, []byte(" "), 3)
	if len(parts) != 3 || len(parts[1]) != 1 {
		return "-", 0, false
	}
	return string(parts[0]), parts[1][0], true
}

// what a handler does with a message.
type what int

const (
	doAck what = iota
	doFail
	doSnooze
	doBury
	doPanic
	doRetryIn
	doWork    // for some milliseconds, then ack
	doWorkOn  // beyond a lease, then ack
	doAbandon // a receiver forgets the message; a worker's handler acks
	doRelease // a receiver gives it back; a worker's handler acks
	doCancel  // it is cancelled while it is held, then ack
)

// Delays that handlers ask for.
const (
	backoff   = 100 * time.Millisecond
	retryIn   = 200 * time.Millisecond
	snoozeFor = 50 * time.Millisecond
)

// decide draws what to do. Of a thousand, about 900 are acked at once.
func decide() what {
	switch n := rand.IntN(1000); {
	case n < 40:
		return doWork
	case n < 65:
		return doFail
	case n < 75:
		return doRetryIn
	case n < 82:
		return doSnooze
	case n < 85:
		return doBury
	case n < 88:
		return doPanic
	case n < 90:
		return doWorkOn
	case n < 93:
		return doAbandon
	case n < 98:
		return doRelease
	case n < 101:
		return doCancel
	}
	return doAck
}

var errAsked = errors.New("fails because its message is to fail")

// Flags of a send in the journal.
const (
	flagNone       = "-"
	flagRemember   = 'r'
	flagFar        = 'f' // due long after the run
	flagDurable    = 'd'
	flagUnreadable = 'u' // its bytes were made unreadable on purpose
)

const (
	farAway  = 4 * time.Hour // the delay of a message that stays; more than the steps of a clock
	remember = time.Minute   // longer than any send is tried again
)

// outgoing makes the n-th message of a producer, and its due time and flags for the journal.
func (p *producer) outgoing(random *rand.Rand, key string) (o later.Outgoing, due, flags string) {
	kind := byte(normal)
	if random.IntN(10) == 0 {
		kind, o.Headers = headed, map[string]string{headerKey: key}
	}
	o.ID, o.Payload = key, makePayload(key, kind, p.PayloadMin+random.IntN(p.PayloadMax-p.PayloadMin+1))
	spread := time.Duration(random.Int64N(int64(p.Spread)))
	switch n := random.IntN(100); {
	case n < 40:
		due = "+0"
	case n < 80:
		o.When, due = later.In(spread), fmt.Sprint("+", spread.Milliseconds())
	case n < 95:
		at := time.Now().Add(spread)
		o.When, due = later.At(at), fmt.Sprint("@", at.UnixMilli())
	case n < 99 || p.NoRest:
		at := time.Now().Add(-spread)
		o.When, due = later.At(at), fmt.Sprint("@", at.UnixMilli())
	default:
		delay := p.Far
		if delay < farAway { // about so long: a step of the clock makes it due at once, or soon
			delay += time.Duration(random.Int64N(int64(time.Minute))) - time.Minute/2
		}
		o.When, due, flags = later.In(delay), fmt.Sprint("+", delay.Milliseconds()), string(flagFar)
	}
	if random.IntN(10) == 0 {
		o.Remember = remember
		flags += string(flagRemember)
	}
	if random.IntN(10) == 0 {
		o.MaxAttempts = 5 + random.IntN(20)
	}
	if p.Durable > 0 {
		flags += string(flagDurable)
	}
	if flags == "" {
		flags = flagNone
	}
	return o, due, flags
}
