package jsonfields

import (
	"strings"
	"unicode"

	"github.com/tidwall/gjson"

	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

// maxDepth is how deep CheckNames looks into values. What people describe is less deep, and each level is read once
// more.
const maxDepth = 8

// CheckNames returns an ErrInvalid if an object in valid JSON has a name twice, of which encoding/json would take the
// last value, and a check may have seen another one, or a name that encoding/json would take for another one because
// that is the same in lower case, as those of all fields are. Headers may have names in any case. CheckNames does not
// look into payloads, which are the user's own.
func CheckNames(text []byte) error { return checkNames(gjson.ParseBytes(text), maxDepth, false) }

func checkNames(value gjson.Result, depth int, anyCase bool) (err error) {
	isObject := value.IsObject()
	if depth == 0 || !isObject && !value.IsArray() {
		return nil
	}
	seen := map[string]bool{}
	value.ForEach(func(name, inner gjson.Result) bool {
		lower := lowered(name.Str)
		switch {
		case !isObject:
			err = checkNames(inner, depth-1, false)
		case seen[name.Str]:
			err = store.Invalid("field %q is given twice: give it once", name.Str)
		case !anyCase && lower != name.Str:
			err = store.Invalid("field %q is unknown: did you mean %s?", nearest.Clip(name.Str), nearest.Clip(lower))
		case name.Str != "payload":
			err = checkNames(inner, depth-1, name.Str == "headers")
		}
		seen[name.Str] = true
		return err == nil
	})
	return err
}

// lowered returns a name in lower case. It is the same for all names that package encoding/json takes for each other.
func lowered(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return unicode.ToLower(next)
			}
			r = next
		}
	}, name)
}
