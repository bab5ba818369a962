package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/store"
)

func (m *Main) getCommand() *cobra.Command {
	return m.command("get QUEUE ID", "Show a message",
		fmt.Sprintf(`Get shows a message: its payload and headers, its state and due time, its attempts and its last
error, and in one sentence why it has not been handled yet. It does not claim the message. A message that was acked or
cancelled no longer exists: exit code %d.

Delivered is yes if the message was replayed, or if a worker has settled it other than by release. Its expiry then no
longer applies.

Follows says that the message was sent with --on-duplicate follow, and is delivered when a worker is done with an
earlier one. State and lease are of that one, and everything else is of the message that follows it.`,
			exitCode(store.ErrNotFound)),
		`  later get orders order-17
  later get orders order-17 --json | jq -r .payload_text`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			q := c.Queue(args[0])
			info, err := q.Get(ctx, args[1])
			if err != nil {
				return explainNotFound(ctx, c, args[0], err)
			}
			if m.json {
				return m.printJSON(info)
			}
			why, err := q.Explain(ctx, args[1])
			if err != nil && !errors.Is(err, later.ErrNotFound) { // it may have been acked in between
				return err
			}
			return m.print("%s", describe(args[0], info, why))
		}))
}

func delivered(info *later.Info) string {
	switch {
	case info.Delivered:
		return "yes"
	case info.State == later.StateLeased && !info.Follows:
		return "now, for the first time"
	}
	return "no"
}

func describeFailure(f *later.Failure) string {
	what := fmt.Sprintf("attempt %d", f.Attempt)
	if f.Attempt == 0 {
		what = "given back"
	}
	text := f.Time.Local().Format("2006-01-02 15:04:05.000") + " " + what
	if f.Duration > 0 {
		text += " after " + durations.Format(f.Duration)
	}
	if f.Worker != "" {
		text += " on " + printable(f.Worker)
	}
	return text + ": " + printable(f.Error)
}

// describe formats a message as one line per field, followed by the payload.
func describe(queue string, info *later.Info, why later.Explanation) string {
	var b strings.Builder
	now := time.Now()
	text := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-15s %s\n", name,
				strings.ReplaceAll(printable(value), "\n", "\n"+strings.Repeat(" ", 16)))
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			text(name, t.Local().Format("2006-01-02 15:04:05.000 -07:00")+" ("+formatRelative(t, now)+")")
		}
	}
	text("id", info.ID)
	text("queue", queue)
	text("state", string(info.State))
	if why.Reason != "" {
		text("why", why.Text(time.Local))
	}
	at("due", info.Due)
	text("attempts", fmt.Sprintf("%d of %d failed", info.Attempts, info.MaxAttempts))
	text("delivered", delivered(info))
	text("last error", info.LastError)
	for i, f := range info.Failures {
		name := ""
		if i == 0 {
			name = "failures"
		}
		fmt.Fprintf(&b, "%-15s %s\n", name, describeFailure(&f))
	}
	text("dead because", string(info.DeadReason))
	at("died", info.DiedAt)
	at("leased until", info.LeaseDeadline)
	if info.Follows {
		text("follows", "an earlier message, which a worker holds")
	}
	at("sent", info.SentAt)
	describeOptions(info, text, "max_attempts")
	for _, name := range slices.Sorted(maps.Keys(info.Headers)) {
		text("header", name+"="+info.Headers[name])
	}
	if info.Raw != nil {
		text("raw bytes", fmt.Sprintf("%q", info.Raw))
		return b.String()
	}
	text("payload", fmt.Sprintf("%d bytes", len(info.Payload)))
	if len(info.Payload) > 0 {
		fmt.Fprintf(&b, "\n%s\n", printable(string(info.Payload)))
	}
	return b.String()
}
