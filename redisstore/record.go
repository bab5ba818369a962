package redisstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// record is the state of a message that lua/_record.lua stores.
type record struct {
	epoch     int64
	attempts  int
	delivered bool
	due       time.Time        // only of a dead message or a successor
	follows   bool             // the message is a successor
	reason    store.DeadReason // only of a dead message
	failures  string           // see envelope.AppendFailures
	text      string           // the last error
}

// parseRecord returns the record in a text, which lua/claim.lua cuts after its first fields.
func parseRecord(s string) record {
	var r record
	fields := strings.SplitN(s, "\t", 8)
	r.epoch, _ = strconv.ParseInt(fields[0], 10, 64)
	if len(fields) > 1 {
		r.attempts, _ = strconv.Atoi(fields[1])
	}
	if len(fields) > 2 {
		r.delivered = fields[2] == "1"
	}
	if len(fields) == 8 {
		if fields[4] != "" {
			r.due = parseMillis(fields[4])
		}
		r.reason, r.failures, r.text = store.DeadReason(fields[5]), fields[6], fields[7]
		if r.follows = r.reason == "follows"; r.follows {
			r.reason = ""
		}
	}
	return r
}

// prefixSize is the length of the prefix before the envelope, in messages, of a message that was ever packed: byte 128,
// which starts no envelope, then its due time and the class of its bucket at that time. It locates the bucket of a
// message by id. The prefix is ignored once the message has left the bucket.
const prefixSize = 1 + 6

// stripPrefix returns the envelope in a value of messages.
func stripPrefix(value string) string {
	if len(value) >= prefixSize && value[0] == 128 {
		return value[prefixSize:]
	}
	return value
}

// info assembles a message from its value in messages and its record, nil if it has none.
func info(id, value string, recorded any, state store.State) store.Info {
	text := stripPrefix(value)
	in := store.Info{Message: store.Message{ID: id}, State: state}
	if err := envelope.Decode(text, &in.Message); err != nil {
		in.Message, in.Raw = store.Message{ID: id}, []byte(text)
	}
	if s, ok := recorded.(string); ok {
		r := parseRecord(s)
		in.Attempts, in.Delivered, in.LastError = r.attempts, r.delivered, r.text
		in.Failures = envelope.ParseFailures(r.failures)
		switch state {
		case store.StateDead:
			in.DeadReason, in.Due = r.reason, r.due
		case store.StateLeased:
			in.Follows, in.Due = r.follows, r.due
		}
	}
	return in
}
