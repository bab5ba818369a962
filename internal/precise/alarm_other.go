//go:build !linux

package precise

import (
	"errors"
	"time"
)

// newAlarm fails, so that the timers are those of package time.
func newAlarm() (alarm, error) { return nil, errors.ErrUnsupported }

func isFake(time.Time) bool { return false }
