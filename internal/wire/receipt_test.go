package wire_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

var safe = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func drawReceipt(t *rapid.T) wire.Receipt {
	name := func(label string) string { // 1 to 128 bytes
		return rapid.StringOfN(rapid.RuneFrom([]rune("aZ09 -_./é\u4e16\"\\")), 1, -1, 128).Draw(t, label)
	}
	return wire.Receipt{
		Queue: name("queue"),
		Receipt: store.Receipt{
			Lease: rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "lease"),
			ID:    name("id"),
			Epoch: rapid.Int64Range(0, 1<<62).Draw(t, "epoch"),
			Index: rapid.IntRange(0, store.MaxBatch-1).Draw(t, "index"),
		},
		DedupWindow: time.Duration(rapid.Int64Range(0, store.Millis(store.MaxDelay)).Draw(t,
			"window")) * time.Millisecond,
		Deadline: store.Time(rapid.Int64Range(0, 1<<53).Draw(t, "deadline")),
		Attempt:  rapid.IntRange(0, store.MaxAttempts+1).Draw(t, "attempt"),
		Grouped:  rapid.Bool().Draw(t, "grouped"),
	}
}

func TestReceiptRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawReceipt(t)
		text := r.String()
		if len(text) > store.MaxReceipt || !safe.MatchString(text) {
			t.Fatalf("%q has %d bytes or is not safe in a URL", text, len(text))
		}
		got, err := wire.ParseReceipt(text)
		if err != nil || got != r {
			t.Fatalf("got %+v, %v; want %+v", got, err, r)
		}
		r.Claim = "private"
		if r.String() != text {
			t.Fatal("the engine's private data is in the text")
		}
	})
}

// The longest receipt fits the documented limit.
func TestReceiptLimit(t *testing.T) {
	longest := wire.Receipt{
		Queue: strings.Repeat("q", store.MaxQueueName),
		Receipt: store.Receipt{
			Lease: strings.Repeat("l", store.MaxLeaseName), ID: strings.Repeat("i", store.MaxID),
			Epoch: 1 << 62, Index: store.MaxBatch - 1,
		},
		DedupWindow: store.MaxDelay, Deadline: store.Time(1 << 53), Attempt: store.MaxAttempts + 1,
		Grouped: true,
	}
	text := longest.String()
	if got, err := wire.ParseReceipt(text); err != nil || got != longest {
		t.Errorf("%d bytes: %+v, %v", len(text), got, err)
	}
}

func TestReceiptThatWasChangedIsInvalid(t *testing.T) {
	valid := wire.Receipt{Queue: "q", Receipt: store.Receipt{Lease: "lease", ID: "id"}}
	text := valid.String()
	cases := []string{"", "x", text[1:], text + "A", text + "=", " " + text, strings.Repeat("A", store.MaxReceipt+1)}
	for i := range text {
		cases = append(cases, text[:i], text[:i]+string(text[i]^1)+text[i+1:])
	}
	for _, bad := range []wire.Receipt{
		{Queue: "{}", Receipt: valid.Receipt}, {Queue: "", Receipt: valid.Receipt},
		{Queue: "q", Receipt: store.Receipt{Lease: "", ID: "id"}},
		{Queue: "q", Receipt: store.Receipt{Lease: "a\tb", ID: "id"}},
		{Queue: "q", Receipt: store.Receipt{Lease: "lease", ID: ""}},
		{Queue: "q", Receipt: store.Receipt{Lease: "lease", ID: "a\nb"}},
		{Queue: "q", Receipt: store.Receipt{Lease: "lease", ID: "id", Index: store.MaxBatch}},
		{Queue: "q", Receipt: store.Receipt{Lease: "lease", ID: "id", Epoch: -1}},
	} {
		cases = append(cases, bad.String())
	}
	for _, c := range cases {
		if r, err := wire.ParseReceipt(c); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q is %+v, %v; want ErrInvalid", c, r, err)
		}
	}
}

func FuzzParseReceipt(f *testing.F) {
	r := wire.Receipt{
		Queue:       "q",
		Receipt:     store.Receipt{Lease: "lease", ID: "id", Epoch: 7, Index: 3},
		DedupWindow: time.Hour,
		Attempt:     2,
	}
	f.Add(r.String())
	f.Add("")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := wire.ParseReceipt(text)
		if err == nil && r.String() != text || err != nil && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	})
}
