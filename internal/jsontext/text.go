package jsontext

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/laterq/later/store"
)

// CheckText returns an ErrInvalid for JSON with text that encoding/json would change silently.
func CheckText(text []byte) error {
	switch {
	case !utf8.Valid(text):
		return errNotUTF8
	case bytes.Contains(text, unicodeEscape) && json.Valid(text) && hasLoneSurrogate(text):
		return errLoneSurrogate
	}
	return nil
}

var unicodeEscape = []byte(`\u`)

var (
	errNotUTF8       = store.Invalid("JSON is not UTF-8: give it in UTF-8, and bytes that are not text in base64")
	errLoneSurrogate = store.Invalid(
		`text has half of a surrogate pair, such as \ud800, which is not a character: give ` +
			`bytes that are not text in base64`)
)

// hasLoneSurrogate reports whether valid JSON has an escape of half a surrogate pair, which encoding/json replaces.
func hasLoneSurrogate(line []byte) bool {
	for i := 0; i < len(line); i++ {
		if line[i] != '\\' {
			continue
		}
		i++
		if line[i] != 'u' {
			continue
		}
		high := hex(line[i+1:])
		i += 4
		switch {
		case high < 0xd800 || high > 0xdfff:
			continue
		case high >= 0xdc00 || !bytes.HasPrefix(line[i+1:], unicodeEscape):
			return true
		}
		if low := hex(line[i+3:]); low < 0xdc00 || low > 0xdfff {
			return true
		}
		i += 6
	}
	return false
}

// hex returns the number that four hexadecimal digits are.
func hex(digits []byte) uint64 {
	n, _ := strconv.ParseUint(string(digits[:4]), 16, 16)
	return n
}

// Append appends the JSON of a value that always has one, in one line without its end.
func Append(dst []byte, value any) []byte {
	b := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
