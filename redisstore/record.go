package redisstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// record is what lua/_record.lua keeps of an unusual message.
type record struct {
	epoch     int64
	attempts  int
	delivered bool
	due       time.Time        // of a dead message
	reason    store.DeadReason // of a dead message
	text      string           // the last error
}

func parseRecord(s string) record {
	var r record
	fields := strings.SplitN(s, "\t", 7)
	r.epoch, _ = strconv.ParseInt(fields[0], 10, 64)
	if len(fields) > 1 {
		r.attempts, _ = strconv.Atoi(fields[1])
	}
	if len(fields) > 2 {
		r.delivered = fields[2] == "1"
	}
	if len(fields) == 7 {
		if fields[4] != "" {
			r.due = parseMillis(fields[4])
		}
		r.reason, r.text = store.DeadReason(fields[5]), fields[6]
	}
	return r
}

// prefixSize is the length of what a message that was ever far has before its envelope, in msg: byte 128, which begins no
// envelope, and its due time and the class of its bucket then. So the bucket of a message is found by its id; once it has left
// it, nobody looks.
const prefixSize = 1 + 6

// bare is the envelope in a value of msg.
func bare(value string) string {
	if len(value) >= prefixSize && value[0] == 128 {
		return value[prefixSize:]
	}
	return value
}

// info puts together what is known of a message from its value in msg and its record (nil: none).
func info(id, value string, recorded any, state store.State) store.Info {
	text := bare(value)
	in := store.Info{Message: store.Message{ID: id}, State: state}
	if err := envelope.Decode(text, &in.Message); err != nil {
		in.Message, in.Raw = store.Message{ID: id}, []byte(text)
	}
	if s, ok := recorded.(string); ok {
		r := parseRecord(s)
		in.Attempts, in.Delivered, in.LastError = r.attempts, r.delivered, r.text
		if state == store.StateDead {
			in.DeadReason, in.Due = r.reason, r.due
		}
	}
	return in
}
