package envelope

import (
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestARestoredEnvelopeIsThatOfTheSentMessage(t *testing.T) {
	id := store.NewID()
	at, _ := store.IDTime(id)
	for name, m := range map[string]store.Message{
		"an id that was made":         {ID: id, Payload: []byte("x")},
		"an id that was chosen":       {ID: "a", Payload: []byte("x"), SentAt: at},
		"an id made and sent later":   {ID: id, Payload: []byte("x"), SentAt: at.Add(time.Hour)},
		"headers, of a sent-at in ns": {ID: "a", Headers: map[string]string{"k": "v"}, SentAt: at.Add(time.Microsecond)},
	} {
		sent := Append(nil, &m)
		told := store.Info{Message: store.Message{ID: m.ID}}
		if err := Decode(string(sent), &told.Message); err != nil {
			t.Fatal(err)
		}
		restored := AppendInfo(nil, &told)
		if len(restored) != len(sent) || len(restored) > InfoSize(&told) {
			t.Errorf("%s: %d bytes were sent and %d restored; InfoSize is %d", name, len(sent), len(restored), InfoSize(&told))
		}
		again := store.Info{Message: store.Message{ID: m.ID}}
		if err := Decode(string(restored), &again.Message); err != nil || !again.SameMessage(&told) {
			t.Errorf("%s: got %+v, %v, want %+v", name, again.Message, err, told.Message)
		}
	}
	if restored := AppendInfo(nil, &store.Info{Message: store.Message{ID: id, SentAt: at}}); len(restored) != 1 {
		t.Errorf("the envelope of an empty message is %q", restored)
	}
}

func TestUnreadableBytesAreRestoredAsTheyAre(t *testing.T) {
	for _, raw := range []string{"", "\xff", strings.Repeat("\x01", 100)} {
		info := store.Info{Message: store.Message{ID: "a", SentAt: time.Now()}, Raw: []byte(raw)}
		if got := AppendInfo([]byte("before"), &info); string(got) != "before"+raw || len(raw) > InfoSize(&info) {
			t.Errorf("%q became %q", raw, got)
		}
	}
}
