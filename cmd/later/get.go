package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

func (m *Main) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get QUEUE ID",
		Short: "Show a message",
		Long: fmt.Sprintf(`Get shows a message: its payload and headers, its state and due time, its attempts and its last
error. It does not claim the message. A message that was acked or cancelled no longer exists: exit code %d.

Delivered is yes if the message was replayed, or if a worker has settled it other than by release. Its expiry then no
longer applies.`,
			store.ErrNotFound.Code.Exit),
		Example: `  later get orders order-17
  later get orders order-17 --json | jq -r .payload`,
		Args:              arguments(2, 2),
		ValidArgsFunction: m.queueNames(false),
		RunE: m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			info, err := c.Queue(args[0]).Get(ctx, args[1])
			if err != nil {
				return explainNotFound(ctx, c, args[0], err)
			}
			if m.json {
				return m.printJSON(newInfoJSON(args[0], info))
			}
			return m.print("%s", describe(args[0], info))
		}),
	}
}

type infoJSON struct {
	ID    string `json:"id"`
	Queue string `json:"queue"`
	State string `json:"state"`
	payloadJSON
	Headers       map[string]string `json:"headers,omitempty"`
	Due           string            `json:"due,omitempty"`
	Attempts      int               `json:"attempts"`
	MaxAttempts   int               `json:"max_attempts"`
	Delivered     bool              `json:"delivered"`
	TimeoutMS     float64           `json:"timeout_ms,omitempty"`
	ExpireAfterMS float64           `json:"expire_after_ms,omitempty"`
	ExpireAt      string            `json:"expire_at,omitempty"`
	RememberMS    float64           `json:"remember_ms,omitempty"`
	SentAt        string            `json:"sent_at,omitempty"`
	LeaseDeadline string            `json:"lease_deadline,omitempty"`
	LastError     string            `json:"last_error,omitempty"`
	DeadReason    string            `json:"dead_reason,omitempty"`
	DiedAt        string            `json:"died_at,omitempty"`
	RawBase64     []byte            `json:"raw_base64,omitempty"`
}

func newInfoJSON(queue string, info *later.Info) infoJSON {
	return infoJSON{
		ID:            info.ID,
		Queue:         queue,
		State:         string(info.State),
		payloadJSON:   newPayloadJSON(info.Payload),
		Headers:       info.Headers,
		Due:           timeJSON(info.Due),
		Attempts:      info.Attempts,
		MaxAttempts:   maxAttempts(info),
		Delivered:     info.Delivered,
		TimeoutMS:     millisJSON(info.Timeout),
		ExpireAfterMS: millisJSON(info.ExpireAfter),
		ExpireAt:      timeJSON(info.ExpireAt),
		RememberMS:    millisJSON(info.Remember),
		SentAt:        timeJSON(sentAt(info)),
		LeaseDeadline: timeJSON(info.LeaseDeadline),
		LastError:     info.LastError,
		DeadReason:    string(info.DeadReason),
		DiedAt:        timeJSON(info.DiedAt),
		RawBase64:     info.Raw,
	}
}

func maxAttempts(info *later.Info) int {
	if info.MaxAttempts == 0 {
		return store.DefaultMaxAttempts
	}
	return info.MaxAttempts
}

// sentAt returns the time of the send by the sender's clock. Generated ids contain it.
func sentAt(info *later.Info) time.Time {
	if info.SentAt.IsZero() {
		t, _ := store.IDTime(info.ID)
		return t
	}
	return info.SentAt
}

func delivered(info *later.Info) string {
	switch {
	case info.Delivered:
		return "yes"
	case info.State == later.StateLeased:
		return "now, for the first time"
	}
	return "no"
}

// describe formats a message as one line per field, followed by the payload.
func describe(queue string, info *later.Info) string {
	var b strings.Builder
	now := time.Now()
	text := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-15s %s\n", name, strings.ReplaceAll(printable(value), "\n", "\n"+strings.Repeat(" ", 16)))
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			text(name, t.Local().Format("2006-01-02 15:04:05.000 -07:00")+" ("+formatRelative(t, now)+")")
		}
	}
	duration := func(name string, d time.Duration) {
		if d > 0 {
			text(name, formatDuration(d))
		}
	}
	text("id", info.ID)
	text("queue", queue)
	text("state", string(info.State))
	at("due", info.Due)
	text("attempts", fmt.Sprintf("%d of %d failed", info.Attempts, maxAttempts(info)))
	text("delivered", delivered(info))
	text("last error", info.LastError)
	text("dead because", string(info.DeadReason))
	at("died", info.DiedAt)
	at("leased until", info.LeaseDeadline)
	at("sent", sentAt(info))
	duration("timeout", info.Timeout)
	if info.ExpireAfter > 0 {
		text("expires", formatDuration(info.ExpireAfter)+" after it is due")
	}
	at("expires", info.ExpireAt)
	duration("remember", info.Remember)
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
