package wire

import (
	"time"

	"github.com/laterq/later/internal/jsonfields"
)

// Duration is a duration that JSON has as text, as time.Duration writes it: 1h30m0s, 250ms.
type Duration = jsonfields.Duration

// Measured returns a duration that was measured, truncated to microseconds.
func Measured(d time.Duration) Duration { return Duration(d.Truncate(time.Microsecond)) }
