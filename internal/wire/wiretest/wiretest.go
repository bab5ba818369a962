// Package wiretest draws messages for property tests. It may import package store and rapid. Start with Info.
package wiretest

import (
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/laterq/later/store"
)

// Info draws any message that passes Info.Check, of the given id: in every state, with every field set or not, with
// payloads that are JSON, text, bytes, or empty, and unreadable ones.
func Info(id string) *rapid.Generator[store.Info] {
	return rapid.Custom(func(t *rapid.T) store.Info {
		i := store.Info{
			State: rapid.SampledFrom([]store.State{store.StateScheduled, store.StateReady, store.StateLeased,
				store.StateDead}).Draw(t, "state"),
			Due:       drawTime(t, "due"),
			Attempts:  rapid.IntRange(0, store.MaxAttempts).Draw(t, "attempts"),
			Delivered: rapid.Bool().Draw(t, "delivered"),
			LastError: store.CutReason(drawText(t, "last error")),
		}
		for range rapid.IntRange(0, store.MaxFailures).Draw(t, "failures") {
			i.Failures = append(i.Failures, store.NewFailure(drawTime(t, "failed at"),
				rapid.IntRange(1, store.MaxAttempts).Draw(t, "attempt"), &store.Settlement{
					Duration: drawDuration(t, store.MaxDelay, "took"),
					Worker:   drawText(t, "worker"), Reason: drawText(t, "error"),
				}))
		}
		if rapid.IntRange(0, 5).Draw(t, "unreadable when 0") == 0 {
			i.Raw = append([]byte{}, drawBytes(t, "raw")...)
		} else {
			i.Message = drawMessage(t)
		}
		i.ID = id
		if i.State == store.StateDead {
			i.DiedAt = drawTime(t, "died at")
			i.DeadReason = rapid.SampledFrom([]store.DeadReason{
				store.DeadFailed, store.DeadLeaseExpired, store.DeadBuried, store.DeadExpired, store.DeadUnreadable,
			}).Draw(t, "dead reason")
		}
		return i
	})
}

func drawMessage(t *rapid.T) store.Message {
	m := store.Message{Payload: drawBytes(t, "payload")}
	if rapid.Bool().Draw(t, "with limits") {
		m.MaxAttempts = rapid.IntRange(0, store.MaxAttempts).Draw(t, "max attempts")
		m.Timeout = drawDuration(t, store.MaxLease, "timeout")
		m.DedupWindow = drawDuration(t, store.MaxDelay, "dedup window")
		m.SentAt = drawTime(t, "sent at")
		m.Group = rapid.SampledFrom([]string{"", "order-42", "größe"}).Draw(t, "group")
		m.Key = rapid.SampledFrom([]string{"", "customer-7", "größe"}).Draw(t, "key")
		m.Urgency = rapid.SampledFrom([]store.Urgency{store.UrgencyNormal, store.UrgencyHigh,
			store.UrgencyLow}).Draw(t, "urgency")
	}
	switch rapid.IntRange(0, 3).Draw(t, "expiry") {
	case 2:
		m.ExpireAfter = drawDuration(t, store.MaxDelay, "expire after")
	case 3:
		m.ExpireAt = drawTime(t, "expire at")
	}
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[rapid.SampledFrom([]string{"trace", "größe", "🙂", `quo"te\`, "<&>", "\u2028"}).Draw(t,
			"name")] = drawText(t, "value")
	}
	if m.Headers != nil && rapid.Bool().Draw(t, "with a content type") {
		m.Headers["content-type"] = rapid.SampledFrom([]string{"application/json", "Application/Geo+JSON; v=1",
			"text/plain"}).Draw(t, "content type")
		m.Payload = []byte(
			rapid.SampledFrom([]string{`null`, `"<\u2028\ud83d\ude42>"`, ` {"a": [1.0, 1e999]}`, `{"b":1,"a":1,"a":2}`,
				`{`, "\"\xff\"", strings.Repeat("[", 61) + strings.Repeat("]", 61), `"\ud800"`}).Draw(t, "JSON"))
	}
	return m
}

// drawTime draws a time that stores keep, some of them finer than they keep it.
func drawTime(t *rapid.T, label string) time.Time {
	at := time.UnixMilli(rapid.Int64Range(1, 7_258_118_399_000).Draw(t, label))
	if rapid.IntRange(0, 3).Draw(t, label+" with nanoseconds when 0") == 0 {
		at = at.Add(-time.Duration(rapid.IntRange(0, 999_999).Draw(t, label+" nanoseconds")))
	}
	if at.Before(time.UnixMilli(1)) {
		return time.UnixMilli(1)
	}
	return at
}

func drawDuration(t *rapid.T, most time.Duration, label string) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, label))
}

// drawText draws text, which may have NUL, other control characters, and characters of every plane.
func drawText(t *rapid.T, label string) string {
	return rapid.OneOf(
		rapid.StringN(0, 20, 80),
		rapid.SampledFrom([]string{"", "\x00", "\x00\x1f\x7f", "tab\tand\nline\r\n", "🙂👩‍👩‍👧", "\u2028\u2029",
			"<script>&", `"\`, "\ufffd", `\ud800`, "\U0010ffff"}),
	).Draw(t, label)
}

// drawBytes draws bytes that are text or not.
func drawBytes(t *rapid.T, label string) []byte {
	return rapid.OneOf(
		rapid.Map(rapid.Custom(func(t *rapid.T) string { return drawText(t, "text") }),
			func(s string) []byte { return []byte(s) }),
		rapid.SliceOfN(rapid.Byte(), 0, 40),
		rapid.SampledFrom([][]byte{nil, {0xff}, {0xed, 0xa0, 0x80}, {'a', 0xc3}, []byte("\xef\xbb\xbf")}),
	).Draw(t, label)
}
