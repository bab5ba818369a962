package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestRecordHasTheMostFrequentKindsThatFit(t *testing.T) {
	var all []GivenBack
	for i := range 50 {
		all = append(all, GivenBack{"q", fmt.Sprint(i), strings.Repeat("x", 100), 50 - i})
	}
	text := record{Info: Info{GivenBack: all}}.encode()
	r, err := decode("id", text)
	if n := len(r.GivenBack); err != nil || n < 3 || n > 5 || !slices.Equal(r.GivenBack, all[:n]) {
		t.Errorf("record of %d bytes has %d kinds, %v", len(text), n, err)
	}
}

func TestRecordFitsIntoAProperty(t *testing.T) {
	escaped := strings.Repeat("\x01\"", 60) // as many bytes of JSON as a name can have
	in := record{Info: Info{Name: escaped, Host: escaped, Process: escaped, Version: escaped, Heartbeat: time.Now(),
		Started: time.Now()}, Expires: time.Now()}
	for range 200 {
		in.Queues, in.Held = append(in.Queues, escaped), append(in.Held, Held{Queue: escaped, ID: escaped, Attempt: 7})
		in.Forwards = append(in.Forwards, Forwarded{escaped, escaped})
	}
	text := in.encode()
	out, err := decode("id", text)
	if err != nil || len(text) > store.MaxPropertyValue || len(out.Queues) == 0 {
		t.Errorf("record has %d bytes and %d queues, %v", len(text), len(out.Queues), err)
	}
	in.Queues, in.Forwards = []string{"q"}, []Forwarded{{"f", "queue:g"}}
	in.Name, in.Process, in.Version, in.Host = "n", "p", "v", "h"
	since := in.Heartbeat.Add(-time.Minute)
	in.Held = []Held{{"q", "m", "k", 2, since}}
	out, err = decode("id", in.encode())
	if err != nil || !slices.Equal(out.Forwards, in.Forwards) || len(out.Held) != 1 ||
		out.Held[0] != (Held{"q", "m", "k", 2, out.Held[0].Since}) ||
		out.Held[0].Since.Sub(since).Abs() > time.Millisecond {
		t.Errorf("record became %+v, %v", out, err)
	}
}

func TestCommandsThatAreAcknowledgedAreTheLastOnes(t *testing.T) {
	var all []seen
	for i := range maxSeen + 2 {
		all = addSeen(all, fmt.Sprint(i), nil)
	}
	if all[0].ID != "2" || len(all) != maxSeen {
		t.Errorf("%d are acknowledged, from %q on", len(all), all[0].ID)
	}
	long := addSeen(nil, "id", errors.New(strings.Repeat("ä", maxRefusal)))
	if text := long[0].Refused; len(text) > maxRefusal || !strings.HasPrefix(text, "ää") {
		t.Errorf("refused because %q", text)
	}
	if none := addSeen(nil, "id", errors.New("")); none[0].Refused == "" {
		t.Error("a refusal without a text is none")
	}
}

// FuzzRecord decodes records. A program of another version or a user of the store may have written anything there.
func FuzzRecord(f *testing.F) {
	for _, text := range []string{`{"held":[{"q":"a","i":"b","f":-9223372036854775808},1,"x"]}`, `{"heartbeat":1e300}`,
		`{"queues":null,"started":"2026-11-25T00:00:00Z"}`, "null", "[[[["} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := decode("w", text); err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
