package inspect

import (
	"errors"
	"strings"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// FuzzJSONCondition checks that a text is a condition, which a filter takes and any payload can be compared with, or an
// ErrInvalid.
func FuzzJSONCondition(f *testing.F) {
	deep := strings.Repeat("[", 70)
	for _, text := range []string{"a = 1", "$.a.b[0] >= 1e999", "a[*].b ~ \xff", "['a b'] != null", "a['\\'] < -0",
		"a = NaN", "= 1", "a[*][*] = 1", "$ = 1", "a[99999999999999999999] = 1", "[@this,@this] = 1", "a.#.b = 1", "a =",
		"a\x00 = 1", deep + " = 1"} {
		f.Add(text, []byte(`{"a":[{"b":1},"x",null,true,-0,1e400]}`))
		f.Add(text, []byte(deep))
	}
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		c, err := ParseCondition(text)
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		filter := Filter{State: later.StateDead, JSON: c}
		if err := filter.Check(); err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		is := filter.Matches(&later.Info{Payload: payload})
		opposite := map[string]string{"=": "!=", "!=": "="}[c.Op]
		if c.Op = opposite; opposite != "" && filter.Matches(&later.Info{Payload: payload}) == is {
			t.Errorf("%q of %q is %v with = and !=", text, payload, is)
		}
	})
}
