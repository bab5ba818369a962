package wire

import (
	"unicode/utf8"

	"github.com/laterq/later/store"
)

// SizeOf returns how many bytes the message has as JSON, or some more.
func SizeOf(i *store.Info) int {
	size := 1024 + TextSize(i.ID) + TextSize(i.Group) + TextSize(i.LastError) + len(i.Raw)*4/3
	if utf8.Valid(i.Payload) {
		size += TextSize(i.Payload)
	} else {
		size += len(i.Payload) * 4 / 3
	}
	for name, value := range i.Headers {
		size += TextSize(name) + TextSize(value) + len(`"":"",`)
	}
	for _, f := range i.Failures {
		size += 256 + TextSize(f.Error)
	}
	return size
}

// TextSize returns how many bytes a text has as JSON, or some more.
func TextSize[T string | []byte](text T) (size int) {
	for i := range len(text) {
		switch b := text[i]; {
		case b < ' ', b == '<', b == '>', b == '&':
			size += len(`\u0000`)
		case b == '"', b == '\\', b == 0xe2: // of which some line separators are escaped
			size += 2
		default:
			size++
		}
	}
	return size
}
