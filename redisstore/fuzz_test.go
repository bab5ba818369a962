package redisstore

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

// FuzzCursor reads cursors. They are refused as invalid, or are the places that their own text has again.
func FuzzCursor(f *testing.F) {
	for _, text := range storetest.Cursors {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if score, id, err := parseCursor(text); err == nil && text != "" {
			if s, i, err := parseCursor(formatCursor(score, id)); err != nil || s != score || i != id {
				t.Errorf("%q: %q, %q, %v", text, s, i, err)
			}
		} else if err != nil && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
		if step, last, err := parseLeasedCursor(text); err == nil && text != "" {
			if s, l, err := parseLeasedCursor(formatLeasedCursor(step, leaseEntry{messageEpoch: last})); err != nil ||
				s != step || l != last {
				t.Errorf("%q: %q, %v, %v", text, s, l, err)
			}
		} else if err != nil && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// FuzzRecord reads records, which no process can refuse.
func FuzzRecord(f *testing.F) {
	f.Add("1\t2\t1\t\t5\tfailed\t1\x1f1\x1f1\x1fw\x1fe\ttext")
	f.Add("\t\t\t\t\t\t\t\t")
	f.Add("9223372036854775808\t-1")
	f.Add(strings.Repeat("\x80", 9))
	f.Fuzz(func(t *testing.T, text string) {
		r := parseRecord(text)
		envelope.ParseFailures(r.failures)
		for _, state := range []store.State{store.StateScheduled, store.StateLeased, store.StateDead} {
			if in := info("a", text, text, state); in.ID != "a" || in.State != state {
				t.Errorf("%q: %+v", text, in)
			}
		}
	})
}

// FuzzReply reads replies of a server. None panics, and each is the same in pieces of one byte.
func FuzzReply(f *testing.F) {
	for _, text := range []string{":1\r\n", "$-1\r\n", "_\r\n", "-OOM\r\n", "*2\r\n$3\r\na\r\n\r\n*1\r\n+b\r\n",
		"*9999999\r\n", ">1\r\n:1\r\n+OK\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := replyOf(bytes.NewReader(text))
		again, errAgain := replyOf(iotest.OneByteReader(bytes.NewReader(text)))
		if !reflect.DeepEqual(got, again) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Errorf("%q: %v, %v, in pieces %v, %v", text, got, err, again, errAgain)
		}
		if err == nil && got == nil {
			t.Errorf("%q is nil", text)
		}
	})
}
