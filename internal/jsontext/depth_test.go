package jsontext

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzCheck compares Check with package encoding/json, which counts the depth in its own way.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{"", "[]", `{"a":"\\\"[[["}`, `"\`, `"a\u005b["`, "]]]]" + strings.Repeat("[", 70),
		strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat(`{"a":[`, 32) + "1" +
			strings.Repeat("]}", 32),
		strings.Repeat(`[{"a":`, 33) + "1" + strings.Repeat("}]", 33), strings.Repeat("[1],", 99), "\ufeff1",
		"1 1", "\x00"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		depth := 0
		deepest := 0
		for d := json.NewDecoder(bytes.NewReader(text)); ; {
			token, err := d.Token()
			if err != nil {
				break
			}
			switch token {
			case json.Delim('['), json.Delim('{'):
				depth++
				deepest = max(deepest, depth)
			case json.Delim(']'), json.Delim('}'):
				depth--
			}
		}
		if want := json.Valid(text) && deepest <= MaxDepth; (Check(text) == nil) != want {
			t.Errorf("%q, %d deep: %v", text, deepest, Check(text))
		}
		if deepest > MaxDepth && CheckDepth(text) == nil {
			t.Errorf("%q is %d deep", text, deepest)
		}
	})
}
