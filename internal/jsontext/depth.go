package jsontext

import (
	"github.com/tidwall/gjson"

	"github.com/laterq/later/store"
)

// MaxDepth is how deep JSON may be nested.
const MaxDepth = 64

// Check returns an ErrInvalid unless text is JSON that is nested at most MaxDepth deep. Parsers that recurse may read
// it then.
func Check(text []byte) error {
	if err := CheckDepth(text); err != nil {
		return err
	}
	if !gjson.ValidBytes(text) {
		return errNotJSON
	}
	return nil
}

var errNotJSON = store.Invalid("text is not JSON")

// CheckDepth returns an ErrInvalid for JSON that is nested more than MaxDepth deep. It does not recurse and allocates
// nothing. Text that is not JSON may pass.
func CheckDepth(text []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case inString && b == '\\':
			i++
		case b == '"':
			inString = !inString
		case inString:
		case b == '{' || b == '[':
			if depth++; depth > MaxDepth {
				return store.Invalid("JSON is nested more than %d deep at byte %d: the limit is %d; send a payload that is "+
					"nested deeper as text", MaxDepth, i+1, MaxDepth)
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	return nil
}

// What values take as encoding/json decodes them: each map, with room for eight members, each list and each value.
const (
	mapMemory   = 320
	listMemory  = 40
	valueMemory = 40
)

// Memory returns about how many bytes a JSON text takes in memory when it is decoded, with the text itself. Text that is
// not JSON has a size, too.
func Memory(text []byte) (bytes int64) {
	inString := false
	bytes = 2*int64(len(text)) + valueMemory
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case inString && b == '\\':
			i++
		case b == '"':
			inString = !inString
		case inString:
		case b == '{':
			bytes += mapMemory
		case b == '[':
			bytes += listMemory
		case b == ',':
			bytes += valueMemory
		}
	}
	return bytes
}
