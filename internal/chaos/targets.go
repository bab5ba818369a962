//go:build unix

package chaos

import (
	"fmt"
	"strings"
	"time"
)

// The targets: how soon deliveries go on, at the latest. A run that took longer says so and is not failed by it, since a
// busy machine can make anything slow.
const (
	targetAfterLease     = time.Second     // of a consumer that died: its lease, and so long
	targetAfterRestart   = 2 * time.Second // from when the server serves
	targetAfterPromotion = 3 * time.Second
)

// targetsText tells the targets, in the words of the table.
var targetsText = fmt.Sprintf("lease + %.0f / %.0f / %.0f", targetAfterLease.Seconds(), targetAfterRestart.Seconds(), targetAfterPromotion.Seconds())

// TooSlow tells which targets the run missed, and by how much; "" when none.
func (r *Result) TooSlow() string {
	lease := time.Duration(0)
	if f, err := faultNamed(r.Fault); err == nil {
		lease = f.load.lease
	}
	var missed []string
	for _, x := range []struct {
		what   string
		took   Longest
		target time.Duration
	}{
		{"death of a consumer", r.AfterDeath, lease + targetAfterLease},
		{"restart", r.AfterRestart, targetAfterRestart},
		{"promotion", r.AfterPromotion, targetAfterPromotion},
	} {
		if x.took.micros > x.target.Microseconds() {
			missed = append(missed, fmt.Sprintf("%ss after a %s; the target is %.1fs", x.took, x.what, x.target.Seconds()))
		}
	}
	return strings.Join(missed, ", ")
}
