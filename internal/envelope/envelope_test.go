package envelope

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestEnvelopeRoundTrip(t *testing.T) {
	at := time.UnixMilli(1_790_000_000_123)
	made := store.NewID()
	madeAt, _ := store.IDTime(made)
	messages := map[string]store.Message{
		"usual":    {ID: made, Payload: []byte("x"), SentAt: madeAt},
		"empty":    {ID: "a", Payload: []byte{}, SentAt: at},
		"attempts": {ID: "a", Payload: []byte("x"), MaxAttempts: store.MaxAttempts, SentAt: at},
		"expiry":   {ID: "a", Payload: []byte("x"), ExpireAfter: store.MaxDelay, SentAt: at},
		"all": {ID: "a", Payload: bytes.Repeat([]byte{0xff}, 1000), MaxAttempts: 1, ExpireAt: at,
			Timeout: store.MaxLease, DedupWindow: time.Hour, SentAt: at,
			Headers: map[string]string{"k": strings.Repeat("v", 300), "é": ""}, Group: "order-42", Key: "customer-7"},
		"group": {ID: "a", Payload: []byte("x"), SentAt: at, Group: strings.Repeat("g", store.MaxGroup)},
		"key":   {ID: "a", Payload: []byte("x"), SentAt: at, Key: strings.Repeat("k", store.MaxKey)},
		"key and header": {ID: "a", Payload: []byte("x"), SentAt: at, Key: "customer-7",
			Headers: map[string]string{"!": "v"}},
		"header": {ID: "a", Payload: []byte("x"), SentAt: at, Headers: map[string]string{"k": "v"}},
	}
	for name, want := range messages {
		t.Run(name, func(t *testing.T) {
			in := want
			if in.ID == made {
				in.SentAt = time.Time{}
			}
			b := Append([]byte("before"), &in)[len("before"):]
			if len(b) > Size(&in) {
				t.Errorf("envelope has %d bytes; Size returns %d", len(b), Size(&in))
			}
			got := store.Message{ID: want.ID}
			if err := Decode(string(b), &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestEnvelopeOfDefaultMessageCostsOneByte(t *testing.T) {
	m := store.Message{ID: store.NewID(), Payload: make([]byte, 100)}
	if n := len(Append(nil, &m)); n != 101 {
		t.Errorf("envelope of a 100-byte payload has %d bytes", n)
	}
}

// The bytes are those that stores have.
func TestBytesOfGroupsAndKeys(t *testing.T) {
	for want, m := range map[string]store.Message{
		"\x40\x01\x00\x01gx":                        {Group: "g"},
		"\x40\x02\x00\x01g\x01h\x01vx":              {Group: "g", Headers: map[string]string{"h": "v"}},
		"\x40\x01\x01\x01\x01kx":                    {Key: "k"},
		"\x40\x03\x00\x01g\x01\x01\x01k\x01h\x01vx": {Group: "g", Key: "k", Headers: map[string]string{"h": "v"}},
	} {
		m.Payload = []byte("x")
		if got := string(Append(nil, &m)); got != want {
			t.Errorf("envelope of %+v is %q, want %q", m, got, want)
		}
	}
}

func TestEnvelopesOfEqualMessagesWithChosenIDsDiffer(t *testing.T) {
	m := store.Message{ID: "order-1", Payload: []byte("x"), SentAt: time.UnixMilli(1)}
	first := Append(nil, &m)
	for range 100 {
		if !bytes.Equal(first, Append(nil, &m)) {
			return
		}
	}
	t.Error("no nonce: 100 envelopes are equal")
}

func TestEnvelopeUnreadable(t *testing.T) {
	for _, s := range []string{
		"", "\x80", "\x01\x00", "\x02\xff\xff\xff\xff\xff\xff", "\x40\xff\xff\xff\xff\xff\xff", "\x40\x01\x05ab",
		// A group or key that is not first, or twice.
		"\x40\x02\x01k\x01v\x00\x01g", "\x40\x02\x01k\x01v\x01\x01\x01c", "\x40\x02\x01\x01\x01c\x01\x01\x01c",
	} {
		if err := Decode(s, &store.Message{}); err != ErrUnreadable {
			t.Errorf("Decode(%q) returned %v", s, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(string(Append(nil, &store.Message{
		Payload: []byte("x"), MaxAttempts: 3, SentAt: time.UnixMilli(5), Headers: map[string]string{"a": "b"},
	})))
	f.Add("")
	f.Add("\x80")
	f.Fuzz(func(t *testing.T, s string) {
		m := store.Message{ID: "a"}
		if Decode(s, &m) != nil {
			return
		}
		again := store.Message{ID: "a"}
		if err := Decode(string(Append(nil, &m)), &again); err != nil {
			t.Fatalf("Decode of a re-encoded message returned %v", err)
		}
		if m.ExpireAfter == 0 || m.ExpireAt.IsZero() { // a valid message never has both
			if string(again.Payload) != string(m.Payload) || len(again.Headers) != len(m.Headers) ||
				again.Group != m.Group || again.Key != m.Key || again.MaxAttempts != m.MaxAttempts {
				t.Fatalf("read %+v, again %+v", m, again)
			}
		}
	})
}

// FuzzParseFailures checks that any text can be parsed, and that the text of its failures has the same number of
// failures.
func FuzzParseFailures(f *testing.F) {
	for _, text := range []string{"", "1\x1f2\x1f3\x1fw\x1fe", "\x1e\x1e", "\x1f\x1f\x1f\x1f\x1f",
		"-1\x1f9223372036854775808\x1fx\x1f\xff\x1f\x00",
		"9223372036854775807\x1f1\x1f9223372036854775807\x1f\x1f\x1e1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all := ParseFailures(text)
		again := ParseFailures(string(AppendFailures(nil, all)))
		if len(again) != len(all) {
			t.Errorf("%q: %v becomes %v", text, all, again)
		}
	})
}
