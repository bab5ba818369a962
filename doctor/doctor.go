// Package doctor checks the content of a store and repairs it: whether the messages, indexes and counters of each queue
// agree, the schedules, the files of an embedded store, the settings of a Redis server. It may import package later and
// package store, and no engine. Start with Check.
package doctor

import (
	"context"
	"fmt"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

// Config configures Check. The zero value changes nothing in the store.
type Config struct {
	// Repair also repairs mismatches in Redis. A repair never removes a message that can be read. An embedded store is
	// not repaired in place: see diskstore.Recover. Default: only check.
	Repair bool
}

// Result is one result of Check. Result.IsIssue reports whether something is wrong.
type Result = store.CheckResult

// Severity is how bad a Result is.
type Severity = store.Severity

// The severities, in increasing order.
const (
	OK      = store.SeverityOK      // nothing is wrong
	Note    = store.SeverityNote    // worth knowing; nothing needs to be done
	Warning = store.SeverityWarning // nothing is lost, but something should be done
	Error   = store.SeverityError   // messages are lost or cannot be delivered correctly, or counts are wrong
)

// Check checks everything that the client's store holds, and calls report for each Result, from one goroutine. It
// reads the whole store, so it takes a while, but workers and other calls continue.
//
// Damage is a Result, not an error. An error means that the check could not be completed: ErrUnavailable, ErrClosed or
// the cause of ctx. Repeat a Check with Repair that failed: it completes the repairs that it began. Check returns
// ErrUnsupported for a store that has nothing to check, such as one in memory. Do not close the client before Check
// returns.
//
// A damaged embedded store that cannot be opened has no client: see diskstore.Inspect and diskstore.Recover.
func Check(ctx context.Context, client *later.Client, cfg Config, report func(Result)) error {
	checker, ok := store.As[store.Checker](client.Store())
	if !ok {
		return fmt.Errorf("%w: it has nothing to check", store.ErrUnsupported)
	}
	if err := checker.Check(ctx, store.CheckOptions{Repair: cfg.Repair}, report); err != nil {
		return err
	}
	return checkSchedules(ctx, client, report)
}

// checkSchedules reports schedules that cannot be read. They do not run.
func checkSchedules(ctx context.Context, client *later.Client, report func(Result)) error {
	for cursor := ""; ; {
		page, err := client.Schedules().List(ctx, cursor, store.MaxBatch)
		if err != nil {
			return err
		}
		for _, unreadable := range page.Unreadable {
			report(Result{
				Severity: Error, Check: "schedules", Queue: reserved.Schedules, Text: unreadable.Error(), Count: 1,
				Advice: "upgrade if another version wrote it, else delete the schedule and put it again",
			})
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}
