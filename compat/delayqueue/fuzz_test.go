package delayqueue

import (
	"strings"
	"testing"
)

// FuzzParseCommand reads commands and events of Redis' protocol. A command is refused, or has as many bytes as it says.
func FuzzParseCommand(f *testing.F) {
	for _, text := range []string{"*1\r\n$4\r\nPING\r\n", "*2\r\n$3\r\nGET\r\n$0\r\n\r\n", "*0\r\n", "*-1\r\n",
		"*1\r\n$9223372036854775807\r\nx\r\n",
		"*9223372036854775807\r\n$1\r\na\r\n", "$1\r\n", "\r\n", "*1\r\n$1\r\n", "1 2 3", "1 2",
		"-1 9223372036854775808 x"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		args, n, err := parseCommand(input)
		if n < 0 || n > len(input) || (n > 0) != (len(args) > 0) || err != nil && n != 0 ||
			len(strings.Join(args, "")) > n {
			t.Errorf("%q: %q, %d, %v", input, args, n, err)
		}
		if e, err := decodeEvent(string(input)); err == nil {
			if again, err := decodeEvent(encodeEvent(e)); err != nil || *again != *e {
				t.Errorf("%q: %v, %v", input, again, err)
			}
		}
	})
}
