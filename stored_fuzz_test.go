package later

import (
	"errors"
	"testing"
)

// FuzzStored decodes the texts that processes store for each other: reports of workers and the texts of destinations. A
// program of another version or a user of the store may have written anything there.
func FuzzStored(f *testing.F) {
	for _, text := range []string{`{"v":1}`, `{"v":99}` + "\n{}", `{"v":2,"next":9223372036854775807}` + "\n" +
		`{"name":"a","queue":"q","rrule":"FREQ=DAILY"}`,
		`{"held":[{"q":"a","id":"b","for":-9223372036854775808},1,"x"],"at":1e300}`,
		`{"queues":null,"started":9223372036854775807}`, "topic:", "queue:a", "list:\xff", "stream:x", "null", "[[[["} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if d, err := ParseDestination(string(text)); err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		} else if err == nil {
			if again, err := ParseDestination(d.String()); err != nil || again.String() != d.String() {
				t.Errorf("%q: %v, %v", text, again, err)
			}
		}
	})
}
