package activity

import (
	"errors"
	"strings"
	"testing"

	"github.com/laterq/later/store"
)

// FuzzParse checks that a text is refused as corrupt, or is a Ring with a text that is parsed as the same.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "s1 5 sent 3 acked 4\n", "s1 5", "s1\n", "s999999 1", "s1 -1 sent -1",
		"s1 9223372036854775808", "x1 1", "s+1 1\ns1 2", strings.Repeat("m0 1 a 1\n", 9), "s1 1 \xff 1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		again, err := Parse(string(r.Append(nil)))
		if err != nil || string(again.Append(nil)) != string(r.Append(nil)) {
			t.Errorf("%q becomes %q: %v", text, r.Append(nil), err)
		}
	})
}
