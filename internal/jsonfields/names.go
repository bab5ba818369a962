package jsonfields

import (
	"github.com/tidwall/gjson"

	"github.com/laterq/later/store"
)

// maxDepth is how deep CheckNames looks into values. What people describe is less deep, and each level is read once
// more.
const maxDepth = 8

// CheckNames returns an ErrInvalid if an object in valid JSON has a name twice, of which encoding/json would take the
// last value. It does not look into payloads, which are the user's own.
func CheckNames(text []byte) error { return checkNames(gjson.ParseBytes(text), maxDepth) }

func checkNames(value gjson.Result, depth int) (err error) {
	isObject := value.IsObject()
	if depth == 0 || !isObject && !value.IsArray() {
		return nil
	}
	seen := map[string]bool{}
	value.ForEach(func(name, inner gjson.Result) bool {
		switch {
		case isObject && seen[name.Str]:
			err = store.Invalid("field %q is given twice: give it once", name.Str)
		case !isObject || name.Str != "payload":
			err = checkNames(inner, depth-1)
		}
		seen[name.Str] = true
		return err == nil
	})
	return err
}
