package memstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/laterq/later/store"
)

// FuzzCursor reads cursors. They are refused as invalid, or are the places that their own text has again.
func FuzzCursor(f *testing.F) {
	for _, text := range []string{"", ":", ".", "1:a", "1.YQ", "-1:", "9223372036854775808:a", "1:a\x00", "0.MQlh", "0.CQ", "l:\"a\"", "l:`a`",
		"l:'a'", "l:\"\\xff\"", "\xff", "18446744073709551615.", "+1:a", "1.MTIJ\n", strings.Repeat("9", 999) + ":"} {
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
	})
}
