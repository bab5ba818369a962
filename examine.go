package later

import (
	"context"
	"fmt"

	"github.com/laterq/later/store"
)

// Finding is one result of Examine, good or bad.
type Finding = store.Finding

// Examination holds the options of Examine.
type Examination = store.Examination

// Severity is the severity of a Finding.
type Severity = store.Severity

// The severities, in rising order.
const (
	SeverityOK      = store.SeverityOK      // checked and correct
	SeverityNote    = store.SeverityNote    // worth knowing
	SeverityWarning = store.SeverityWarning // nothing is lost, but something should be done
	SeverityError   = store.SeverityError   // messages are lost or cannot be delivered, or counts are wrong
)

// Examine checks everything that the store keeps, and calls report for each Finding. With
// Examination.Repair it also repairs inconsistencies; a repair never removes a message that can be read.
// Examine reads the whole store, so it takes a while, but other calls and workers continue meanwhile.
//
// Damage is reported as a Finding, not as an error. An error means that the check could not be completed.
// Examine returns ErrUnsupported for a store that has nothing to check.
func (c *Client) Examine(ctx context.Context, opts Examination, report func(Finding)) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.calls.Done()
	examiner, ok := c.store.(store.Examiner)
	if !ok {
		return fmt.Errorf("%w: it has nothing to check", ErrUnsupported)
	}
	return examiner.Examine(ctx, opts, report)
}
