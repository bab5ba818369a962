//go:build !linux

package precise

import (
	"errors"
	"time"
)

// newAlarm fails, so that the timers come from package time.
func newAlarm() (alarm, error) { return nil, errors.ErrUnsupported }

func isFake(time.Time) bool { return false }
