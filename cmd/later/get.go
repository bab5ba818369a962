package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
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
			why, err := inspect.Explain(ctx, c, q.Name(), args[1])
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
func describe(queue string, info *later.Info, why inspect.Explanation) string {
	f := &fields{width: 15}
	f.add("id", info.ID)
	f.add("queue", queue)
	f.add("state", string(info.State))
	if why.Reason != "" {
		f.add("why", why.Text(time.Local))
	}
	f.at("due", info.Due.Local())
	f.addf("attempts", "%d of %d failed", info.Attempts, info.MaxAttempts)
	f.add("delivered", delivered(info))
	f.add("last error", info.LastError)
	for i, failure := range info.Failures {
		name := ""
		if i == 0 {
			name = "failures"
		}
		f.add(name, describeFailure(&failure))
	}
	f.add("dead because", string(info.DeadReason))
	f.at("died", info.DiedAt.Local())
	f.at("leased until", info.LeaseDeadline.Local())
	if info.Follows {
		f.add("follows", "an earlier message, which a worker holds")
	}
	f.at("sent", info.SentAt.Local())
	describeOptions(info, f.add, "max_attempts")
	if info.Raw != nil {
		f.addf("raw bytes", "%q", info.Raw)
	} else {
		f.content(info.Headers, info.Payload)
	}
	return f.String()
}
