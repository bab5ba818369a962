package jsontext

import (
	"bytes"
	"encoding/json"
)

// Append appends the JSON of a value that always has one, in one line without its end.
func Append(dst []byte, value any) []byte {
	b := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
