//go:build unix

package chaos

import (
	"fmt"
	"strings"
	"time"
)

// The targets for how soon deliveries resume. A run that misses one says so but does not fail, because a busy machine
// can make anything slow.
const (
	targetAfterLease     = time.Second     // after the lease of a consumer that died expires
	targetAfterRestart   = 2 * time.Second // after the server serves again
	targetAfterPromotion = 3 * time.Second
	targetFrozen         = 500 * time.Millisecond // beyond the lateness at other times
	// targetAllowed is how long a message of a queue with limits waits although they allow it and there is no fault.
	targetAllowed = time.Second
)

// targetsText lists the targets for the table.
var targetsText = fmt.Sprintf("lease + %.0f / %.0f / %.0f / %.1f",
	targetAfterLease.Seconds(), targetAfterRestart.Seconds(), targetAfterPromotion.Seconds(), targetFrozen.Seconds())

// TooSlow returns the targets the run missed and by how much, or "" if it missed none.
func (r *Result) TooSlow() string {
	lease, death, restart := time.Duration(0), r.AfterDeath, r.AfterRestart
	if f, err := findFault(r.Fault); err == nil {
		lease = f.load.lease
		if f.load.limited { // they have the time that the limits require
			death, restart = Longest{}, Longest{}
		}
	}
	var missed []string
	for _, x := range []struct {
		what   string
		took   Longest
		target time.Duration
	}{
		{"death of a consumer", death, lease + targetAfterLease},
		{"restart", restart, targetAfterRestart},
		{"promotion", r.AfterPromotion, targetAfterPromotion},
		{"start was allowed (" + r.FlowWaited + ")", r.FlowWait, targetAllowed},
	} {
		if x.took.micros > x.target.Microseconds() {
			missed = append(missed, fmt.Sprintf("%ss after a %s; the target is %.1fs", x.took, x.what,
				x.target.Seconds()))
		}
	}
	if allowed := r.Lateness.micros + targetFrozen.Microseconds(); r.WhileFrozen.micros > allowed {
		missed = append(missed, fmt.Sprintf("%ss late while another node is frozen; the target is %.1fs",
			r.WhileFrozen, float64(allowed)/1e6))
	}
	return strings.Join(missed, ", ")
}
