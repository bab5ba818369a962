package schedule

import (
	"errors"
	"testing"

	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// FuzzStored decodes records of schedules. A program of another version or a user of the store may have written
// anything there.
func FuzzStored(f *testing.F) {
	r := &Record{Schedule: Schedule{Name: "a", Queue: "q", Payload: []byte("x"), When: recurrence.Spec{Cron: "@daily"}}}
	for _, text := range []string{string(r.Encode()), `{"v":1}`, `{"v":99}` + "\n{}",
		`{"v":2,"next":9223372036854775807}` + "\n" + `{"name":"a","queue":"q","rrule":"FREQ=DAILY"}`, "null", "[[[["} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := Decode("a", text, nil); err == nil {
			if s.Schedule.Check() == nil {
				s.Rule()
				s.Zone()
			}
			again, err := Decode("a", s.Encode(), nil)
			if err != nil || again.Next != s.Next {
				t.Errorf("%q becomes %q: %v", text, s.Encode(), err)
			}
		} else if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
