package jsonfields

import (
	"strings"
	"unicode"

	"github.com/tidwall/gjson"

	"github.com/laterq/later/store"
)

// maxDepth is how deep CheckNames looks into values. What people describe is less deep, and each level is read once
// more.
const maxDepth = 8

// CheckNames returns an ErrInvalid if an object in valid JSON has a name twice, of which encoding/json would take the
// last value, and a check may have seen another one. Names that differ in case only are the same to encoding/json,
// unless they are those of headers. CheckNames does not look into payloads, which are the user's own.
func CheckNames(text []byte) error { return checkNames(gjson.ParseBytes(text), maxDepth, folded) }

func checkNames(value gjson.Result, depth int, same func(string) string) (err error) {
	isObject := value.IsObject()
	if depth == 0 || !isObject && !value.IsArray() {
		return nil
	}
	seen := map[string]bool{}
	value.ForEach(func(name, inner gjson.Result) bool {
		key := same(name.Str)
		switch {
		case isObject && seen[key]:
			err = store.Invalid("field %q is given twice: give it once", name.Str)
		case !isObject:
			err = checkNames(inner, depth-1, folded)
		case key == folded("headers"):
			err = checkNames(inner, depth-1, strings.Clone)
		case name.Str != "payload":
			err = checkNames(inner, depth-1, folded)
		}
		seen[key] = true
		return err == nil
	})
	return err
}

// folded returns what names of one field have in common, as package encoding/json folds them.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, name)
}
