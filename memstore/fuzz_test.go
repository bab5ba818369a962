package memstore

import (
	"errors"
	"strings"
	"testing"

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
	})
}
