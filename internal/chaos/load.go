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

// Kinds of payloads, which decide about their handler's action.
const (
	normal  = 'n' // handled as chosen by chooseAction
	headed  = 'h' // like normal, with the key also in a header
	poison  = 'X' // kills the process
	failing = 'F' // fails most attempts
	lasting = 'L' // handled for a while before it is acked
)

// makePayload returns a payload of about size bytes that contains its key, kind and checksum.
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

// readPayload returns the key and kind passed to makePayload. whole is false if the bytes are damaged.
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

// action is a handler's action on a message.
type action int

const (
	doAck action = iota
	doFail
	doSnooze
	doBury
	doPanic
	doRetryIn
	doWork    // works for some milliseconds, then acks
	doWorkOn  // works beyond the lease, then acks
	doAbandon // a receiver does not settle the message; a worker's handler acks it
	doRelease // a receiver releases the message; a worker's handler acks it
	doHold    // works for a while, then acks; see holdFor
	doCancel  // cancels the message while it is leased, then acks it
)

// Delays that handlers request.
const (
	backoff   = 100 * time.Millisecond
	retryIn   = 200 * time.Millisecond
	snoozeFor = 50 * time.Millisecond
)

// chooseAction returns a random action. About 900 of 1,000 messages are acked at once.
func chooseAction() action {
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
	case n < 92:
		return doWorkOn
	case n < 95:
		return doAbandon
	case n < 100:
		return doRelease
	case n < 103:
		return doCancel
	}
	return doAck
}

var errRequested = errors.New("failure requested by the message")

// Flags of a send in the journal.
const (
	flagNone       = "-"
	flagDedup      = 'r'
	flagFar        = 'f' // due long after the run
	flagExpires    = 'x' // is expired before it is delivered
	flagDurable    = 'd'
	flagOnce       = 'o' // has a store.Once, which also refuses what flagDedup does
	flagUnreadable = 'u' // its stored bytes were damaged on purpose
)

const (
	farAway     = 4 * time.Hour // delay of messages that outlast the run; longer than the steps of the clock
	dedupWindow = time.Minute   // longer than any send is retried
)

// atOnce is the due time in the journal of a message that is sent without a delay.
const atOnce = "+0"

// outgoing returns the next message of a producer, with its due time and flags for the journal.
func (p *producer) outgoing(q *later.Queue, random *rand.Rand, key string) (o later.Outgoing, due, flags string) {
	kind := byte(normal)
	if random.IntN(10) == 0 {
		kind, o.Headers = headed, map[string]string{headerKey: key}
	} else if p.Sharded && (random.IntN(16) == 0 || !p.ordered(q) && random.IntN(10) == 0) {
		kind = lasting
	}
	o.ID, o.Payload = key, makePayload(key, kind, p.PayloadMin+random.IntN(p.PayloadMax-p.PayloadMin+1))
	spread := time.Millisecond + time.Duration(random.Int64N(int64(p.Spread))) // not atOnce
	switch n := random.IntN(100); {
	case n < 40:
		due = atOnce
	case n < 80:
		o.When, due = later.In(spread), fmt.Sprint("+", spread.Milliseconds())
	case n < 95:
		at := time.Now().Add(spread)
		o.When, due = later.At(at), fmt.Sprint("@", at.UnixMilli())
	case n < 99 && !(p.Sharded && n >= 90) || p.DrainsFully: // messages that wait move
		at := time.Now().Add(-spread)
		o.When, due = later.At(at), fmt.Sprint("@", at.UnixMilli())
	default:
		delay := p.Far
		if delay < farAway { // randomized, so that a step of the clock makes it due at once or soon
			delay += time.Duration(random.Int64N(int64(time.Minute))) - time.Minute/2
		}
		o.When, due, flags = later.In(delay), fmt.Sprint("+", delay.Milliseconds()), string(flagFar)
	}
	if p.Keyed {
		o.Key = keyOf(random)
		if !p.refuses(q, random) {
			o.Urgency = urgencyOf(random, 40, 25)
		}
		o.ID = p.idOf(key, o.Key)
	}
	if p.ordered(q) && random.IntN(12) == 0 {
		o.Payload, o.Headers = makePayload(key, failing, p.PayloadMin), nil
		o.MaxAttempts = 1 + random.IntN(3)
	}
	if p.Dies {
		flags += p.doom(random, key, &o, &due)
	}
	if random.IntN(10) == 0 {
		o.DedupWindow = dedupWindow
		flags += string(flagDedup)
	}
	if o.MaxAttempts == 0 && random.IntN(10) == 0 {
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

// keyOf returns a key for a message: one of the hot ones, one of many rare ones, or none.
func keyOf(random *rand.Rand) string {
	switch n := random.IntN(100); {
	case n < 35:
		return hotKey
	case n < 50:
		return "warm"
	case n < 90:
		return fmt.Sprint("rare-", random.IntN(40))
	}
	return ""
}

// hotKey is the key of a third of the messages.
const hotKey = "hot"

// doom makes a share of the messages fail after one to three attempts or expire, and returns the flags for that.
func (p *producer) doom(random *rand.Rand, key string, o *later.Outgoing, due *string) string {
	switch n := random.IntN(100); {
	case n < 15:
		o.Payload, o.Headers = makePayload(key, failing, p.PayloadMin), nil
		o.MaxAttempts = 1 + random.IntN(3)
	case n < 20 && o.ID != "" && *due == "+0":
		at := time.Now().Add(-time.Second)
		o.When, *due = later.At(at), fmt.Sprint("@", at.UnixMilli())
		o.ExpireAfter = time.Millisecond
		return string(flagExpires)
	case n < 30:
		o.MaxAttempts = 1
	}
	return ""
}
