package envelope

import (
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestRestoreKeepsSentEnvelope(t *testing.T) {
	id := store.NewID()
	at, _ := store.IDTime(id)
	for name, m := range map[string]store.Message{
		"a generated id":             {ID: id, Payload: []byte("x")},
		"a chosen id":                {ID: "a", Payload: []byte("x"), SentAt: at},
		"a generated id, sent later": {ID: id, Payload: []byte("x"), SentAt: at.Add(time.Hour)},
		"headers, of a sent-at in ns": {ID: "a", Headers: map[string]string{"k": "v"},
			SentAt: at.Add(time.Microsecond)},
	} {
		sent := Append(nil, &m)
		decoded := store.Info{Message: store.Message{ID: m.ID}}
		if err := Decode(string(sent), &decoded.Message); err != nil {
			t.Fatal(err)
		}
		restored := AppendInfo(nil, &decoded)
		if len(restored) != len(sent) || len(restored) > InfoSize(&decoded) {
			t.Errorf("%s: %d bytes sent, %d restored; InfoSize returns %d",
				name, len(sent), len(restored), InfoSize(&decoded))
		}
		again := store.Info{Message: store.Message{ID: m.ID}}
		if err := Decode(string(restored), &again.Message); err != nil || !again.SameMessage(&decoded) {
			t.Errorf("%s: got %+v, %v, want %+v", name, again.Message, err, decoded.Message)
		}
	}
	if restored := AppendInfo(nil, &store.Info{Message: store.Message{ID: id, SentAt: at}}); len(restored) != 1 {
		t.Errorf("the envelope of an empty message is %q", restored)
	}
}

func TestRestoreKeepsUnreadableBytes(t *testing.T) {
	for _, raw := range []string{"", "\xff", strings.Repeat("\x01", 100)} {
		info := store.Info{Message: store.Message{ID: "a", SentAt: time.Now()}, Raw: []byte(raw)}
		if got := AppendInfo([]byte("before"), &info); string(got) != "before"+raw || len(raw) > InfoSize(&info) {
			t.Errorf("%q became %q", raw, got)
		}
	}
}
