package diskstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

// FuzzCursor reads cursors. They are refused as invalid, or are the places that their own text has again.
func FuzzCursor(f *testing.F) {
	for _, text := range storetest.Cursors {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if e, err := parseCursor(text); err == nil && text != "" {
			last := entry{e.at, strings.TrimSuffix(e.id, "\x00")}
			if again, err := parseCursor(last.cursor()); err != nil || again != e {
				t.Errorf("%q: %v, %v", text, again, err)
			}
		} else if err != nil && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
		if lease, id, err := parseLeaseCursor(text); err == nil && text != "" {
			if l, i, err := parseLeaseCursor(leaseCursor(lease, id)); err != nil || l != lease || i != id {
				t.Errorf("%q: %q, %q, %v", text, l, i, err)
			}
		} else if err != nil && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// FuzzStored decodes values of keys. A value is refused as corrupt, or it decodes and encodes to the same value again.
func FuzzStored(f *testing.F) {
	f.Add(codec.Append(nil, &meta{Paused: true, Due: 3}))
	fair := store.Flow{Urgency: true, Key: store.KeyFlow{Concurrency: 2, Rate: store.Rate{N: 7, Per: time.Hour}}}.Normal()
	f.Add(codec.Append(nil, &meta{Flow: flow{Flow: fair, ID: 1, Keyed: 2}}))
	concurrency, weight := 5, 6
	f.Add(codec.Append(nil, &store.KeyOverride{Concurrency: &concurrency, Rate: &fair.Rate, Weight: &weight}))
	f.Add(codec.Append(nil, &turns.State{Starts: gcra.State{Micros: 5, Part: 6}, N: 7}))
	f.Add(codec.Append(nil, &turns.State{Holder: "a", Dead: true}))
	f.Add(codec.Append(nil, &turns.State{Starts: gcra.State{Micros: 5}, N: 7, Holder: "a", Expected: true}))
	f.Add(codec.Append(nil, &turns.State{Expected: true}))
	f.Add(appendDueValue(nil, &record{rank: rank{micros: 5, arrived: true, class: 6}}))
	f.Add(codec.Append(nil, &meta{Flow: flow{Arrivals: 6, Fences: 7, Passed: turns.Passed{Normal: 8, Low: 9}}}))
	f.Add(appendRecord(nil, &record{due: 5, failures: "1\x1f1\x1f1\x1fw\x1fe", lastError: "e",
		deadReason: store.DeadFailed}))
	f.Add(appendMessage(nil, 5, &store.Message{ID: "a", Payload: []byte("x"), Headers: map[string]string{"k": "v"}}))
	f.Add(binary.AppendUvarint(make([]byte, timeLength), 1<<63))
	data := appendItem(nil, &item{ID: "a", Message: make([]byte, timeLength)})
	f.Add(data)
	keyed := appendMessage(nil, 5, &store.Message{ID: "b", Key: "k"})
	handover := turns.Handover{Starts: gcra.State{Micros: 5}, N: 7, Override: &store.KeyOverride{Weight: &weight}}
	f.Add(appendItem(appendItem(data, &item{ID: "b", Message: keyed, Holds: true}),
		&item{ID: "k", Handover: &handover}))
	f.Add(appendOutbox(nil, &outbox{parcelHead: parcelHead{Number: 5}}))
	f.Add(appendOutbox(nil, &outbox{parcelHead{5, "q{g}a", "q{g}b"}, data}))
	f.Add([]byte(strings.Repeat("\xff", 64)))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		refused := func(err error) bool {
			if err != nil && !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%q: %v", b, err)
			}
			return err != nil
		}
		same := func(again []byte) {
			if !bytes.Equal(again, b) {
				t.Errorf("%x becomes %x", b, again)
			}
		}
		if m, err := parseMeta(b); !refused(err) {
			same(codec.Append(nil, &m))
		}
		if r, err := parseRecord(b); !refused(err) && b[2*timeLength] <= 1 {
			same(appendRecord(nil, &r))
			envelope.ParseFailures(r.failures)
		}
		if m, err := parseMessage(b); !refused(err) {
			var decoded store.Message
			_ = envelope.Decode(m.envelope, &decoded) // which FuzzDecode of package envelope checks
		}
		if _, err := parseEntry(b); !refused(err) {
			same(b)
		}
		if _, err := parseLease("lease", b); !refused(err) {
			same(b)
		}
		if o, err := parseOverride("key", b); !refused(err) {
			same(codec.Append(nil, o))
		}
		if s, err := parseKeyState("key", b); !refused(err) {
			same(codec.Append(nil, &s))
		}
		if stored, k, ok := parseDueValue(b); ok {
			same(appendDueValue(nil, &record{stored: stored, rank: k}))
		}
		if o, err := parseOutbox(b); !refused(err) {
			again, err := parseOutbox(appendOutbox(nil, &o))
			if err != nil || again.parcelHead != o.parcelHead || !bytes.Equal(again.data, o.data) {
				t.Errorf("%x becomes %+v, %v", b, again, err)
			}
		}
		if all, err := parseItems(b); !refused(err) {
			var again []byte
			for i := range all {
				again = appendItem(again, &all[i].item)
			}
			if all2, err := parseItems(again); err != nil || len(all2) != len(all) {
				t.Errorf("%x becomes %x, %v", b, again, err)
			}
		}
		if _, err := parseRequest("session", b); !refused(err) {
			same(b)
		}
	})
}
