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

// info puts together what is known of a message from its envelope and its record (nil: none).
func info(id, text string, recorded any, state store.State) store.Info {
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
