package wire

import (
	"time"

	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/store"
)

// Duration is a duration that JSON has as text, as time.Duration writes it: 1h30m0s, 250ms.
type Duration time.Duration

// MarshalText returns the text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the text.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Measured returns a duration that was measured, truncated to microseconds.
func Measured(d time.Duration) Duration { return Duration(d.Truncate(time.Microsecond)) }

// wholeMillis returns a duration rounded up to a whole millisecond, as engines do.
func wholeMillis(d time.Duration) Duration {
	return Duration(time.Duration(store.Millis(d)) * time.Millisecond)
}

// Duration reads a duration, and rounds it up to a millisecond.
func (v *Value) Duration() time.Duration {
	text := v.Text()
	if v.err != nil {
		return 0
	}
	d, err := durations.Parse(text)
	if err != nil {
		v.refuse("is %.40q: %v", text, err)
	}
	return time.Duration(wholeMillis(d))
}
