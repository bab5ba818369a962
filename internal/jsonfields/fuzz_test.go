package jsonfields

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/store"
)

// FuzzDecode checks that each object is decoded, or refused as invalid.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{`{"d":"1h","n":1,"s":"x","l":[1]}`, `{"d":"2d"}`, `{"d":-1}`, `{"n":1e999}`, `{"n":1.5}`,
		`{"x":1}`, `{"n":1,"n":2}`, `{"\u006e":1,"n":2}`, "null", "[]",
		`{"l":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + "}",
		"{\"s\":\"\xff\"}", `{"s":"\ud800"}`, `{"":{}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v struct {
			D Duration `json:"d,omitempty"`
			N int      `json:"n,omitempty"`
			S string   `json:"s,omitempty"`
			L []any    `json:"l,omitempty"`
		}
		err := Decode(text, &v)
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if jsontext.Check(text) != nil {
			t.Errorf("%q is decoded", text)
		}
		if again, err := v.D.MarshalText(); err != nil || (&v.D).UnmarshalText(again) != nil {
			t.Errorf("%q has the duration %q, %v", text, again, err)
		}
		var all map[string]json.RawMessage
		if err := json.Unmarshal(text, &all); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
