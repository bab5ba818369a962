package later

import (
	"context"
	"fmt"

	"github.com/laterq/later/store"
)

// Finding is one thing that Examine found, right or wrong.
type Finding = store.Finding

// Examination says what Examine does.
type Examination = store.Examination

// Severity is how bad a Finding is.
type Severity = store.Severity

// The severities, in rising order.
const (
	SeverityOK      = store.SeverityOK      // it was looked at and is right
	SeverityNote    = store.SeverityNote    // worth knowing
	SeverityWarning = store.SeverityWarning // nothing is lost, and something should be done
	SeverityError   = store.SeverityError   // messages are lost or cannot be delivered, or counts are wrong
)

// Examine has the store check all that it keeps, and with Examination.Repair mend what contradicts itself; it calls
// report for everything it finds. It reads the whole store, so it takes a while, but other calls and workers go on
// beside it. A repair removes no message that can be read.
//
// An error means that the examination could not be finished; damage is no error but a Finding. ErrUnsupported: this
// store has nothing to examine.
func (c *Client) Examine(ctx context.Context, opts Examination, report func(Finding)) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.calls.Done()
	examiner, ok := c.store.(store.Examiner)
	if !ok {
		return fmt.Errorf("%w: it has nothing to examine", ErrUnsupported)
	}
	return examiner.Examine(ctx, opts, report)
}
