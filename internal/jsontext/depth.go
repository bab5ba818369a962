package jsontext

import (
	"bytes"
	"encoding/json"

	"github.com/tidwall/gjson"

	"github.com/laterq/later/store"
)

// MaxDepth is how deep JSON may be nested, and MaxValueDepth how deep a value that is sent, shown and exported inside
// of other JSON may be.
const (
	MaxDepth      = 64
	MaxValueDepth = 60
)

// Check returns an ErrInvalid unless text is JSON that is nested at most MaxDepth deep. Parsers that recurse may read
// it then.
func Check(text []byte) error { return check(text, MaxDepth) }

// CheckDepth returns an ErrInvalid for JSON that is nested more than MaxDepth deep. It does not recurse and allocates
// nothing. Text that is not JSON may pass.
func CheckDepth(text []byte) error {
	_, err := scan(text, MaxDepth)
	return err
}

// CheckValue is Check for a value that is shown inside of other JSON.
func CheckValue(text []byte) error { return check(text, MaxValueDepth) }

func check(text []byte, limit int) error {
	if _, err := scan(text, limit); err != nil {
		return err
	}
	if !gjson.ValidBytes(text) {
		return errNotJSON
	}
	return nil
}

var errNotJSON = store.Invalid("text is not JSON")

// Compact returns JSON without the spaces between its parts: text itself if it has none. It returns an ErrInvalid for
// JSON that is nested more than MaxValueDepth deep. The text is valid.
func Compact(text []byte) ([]byte, error) {
	spaces, err := scan(text, MaxValueDepth)
	if err != nil || !spaces {
		return text, err
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, text)
	return compact.Bytes(), err
}

// scan returns an ErrInvalid for JSON that is nested deeper than a limit, and otherwise whether it has spaces between
// its parts.
func scan(text []byte, limit int) (spaces bool, err error) {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case inString && b == '\\':
			i++
		case b == '"':
			inString = !inString
		case inString:
		case b == '{' || b == '[':
			if depth++; depth > limit {
				return spaces, store.Invalid("JSON is nested more than %d deep at byte %d: the limit is %d; send a "+
					"payload that is nested deeper as payload_text", limit, i+1, limit)
			}
		case b == '}' || b == ']':
			depth--
		case b == ' ' || b == '\n' || b == '\t' || b == '\r':
			spaces = true
		}
	}
	return spaces, nil
}

// Estimates of the bytes that encoding/json takes for decoded values: each map, with room for eight members, each list,
// and each value.
const (
	mapMemory   = 320
	listMemory  = 40
	valueMemory = 40
)

// Memory returns about how many bytes a JSON text takes in memory when it is decoded, with the text itself. Text that
// is not JSON has a size, too.
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
