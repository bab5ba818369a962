package durations

import (
	"errors"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// FuzzParse checks that a text is a duration within the limit, which its own text has again, or an ErrInvalid.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"500ms", "2d12h", "1.5d", "36500d", "36500d1ns", "-5m", "--5m", "NaNd",
		"Infd", "1e400d",
		"0x1p4d", "1_0d", "d", "1dd", "", "9223372036854775807ns", "106751d24h", "2562047h47m16.854775807s",
		"0.1d0.1d", "1d-1h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse(text)
		if delay, derr := ParseDelay(text); err == nil && (derr != nil || delay != d) {
			t.Errorf("%q is %v, and as a delay %v, %v", text, d, delay, derr)
		}
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if d < 0 || d > store.MaxDelay {
			t.Fatalf("%q is %v", text, d)
		}
		again, err := Parse(Format(d))
		if off := max(again-d, d-again); err != nil || off > 30*time.Second && again != store.MaxDelay {
			t.Errorf("%q is %v, whose text %q is %v, %v", text, d, Format(d), again, err)
		}
	})
}
