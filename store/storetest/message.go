package storetest

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/laterq/later/store"
)

// fullMessage returns a message with a value for each option, except for an absolute expiry, which excludes a relative
// one, and an urgency, which few queues take.
func fullMessage() store.Message {
	payload := make([]byte, 256)
	for i := range payload {
		payload[i] = byte(i)
	}
	return store.Message{
		ID: "every field", Payload: payload,
		Headers:     map[string]string{"trace": "a=1;b=\x00\n", "größe": "übergroß", "empty": ""},
		MaxAttempts: 7, Timeout: 1500 * time.Millisecond, ExpireAfter: time.Hour, DedupWindow: 48 * time.Hour,
		SentAt: time.UnixMilli(1_700_000_000_123), Group: "order-42", Key: "customer-7",
	}
}

// largestMessage returns a message whose options are at their limits.
func largestMessage() store.Message {
	headers := map[string]string{}
	for i := range store.MaxHeaders {
		headers[strings.Repeat("h", 100)+string(rune('0'+i))] = strings.Repeat("v", 100)
	}
	return store.Message{
		ID: strings.Repeat("ÿ", store.MaxID/2), Payload: []byte(strings.Repeat("\x00", store.MaxPayload)),
		Headers:     headers,
		MaxAttempts: store.MaxAttempts, Timeout: store.MaxLease, ExpireAfter: store.MaxDelay,
		DedupWindow: store.MaxDelay, Group: strings.Repeat("g", store.MaxGroup), Key: strings.Repeat("k", store.MaxKey),
	}
}

// drawMessage draws a message of a history.
func (m *machine) drawMessage(r *rapid.T) store.Outgoing {
	out := store.Outgoing{
		Message: store.Message{
			ID:          rapid.SampledFrom(someIDs).Draw(r, "id"),
			Payload:     []byte(rapid.StringN(0, 3, -1).Draw(r, "payload")),
			MaxAttempts: rapid.IntRange(0, 3).Draw(r, "max attempts"),
			Timeout:     drawDelay(r, "timeout"),
			DedupWindow: drawDelay(r, "dedup window"),
			Group:       rapid.SampledFrom(append([]string{"", ""}, someGroups...)).Draw(r, "group"),
			Key:         rapid.SampledFrom(someKeys).Draw(r, "key"),
			Urgency:     rapid.SampledFrom(someUrgencies).Draw(r, "urgency"),
		},
		Due: m.drawDue(r),
	}
	if m.model.ordered() && rapid.Bool().Draw(r, "in the order of sends") {
		out.Key, out.Due = "k", store.Due{}
	}
	switch rapid.IntRange(0, 3).Draw(r, "expiry") {
	case 2:
		out.ExpireAfter = time.Millisecond + drawDelay(r, "expire after")
	case 3:
		out.ExpireAt = m.drawTime(r, "expire at")
	}
	if rapid.Bool().Draw(r, "with headers") {
		out.Headers = map[string]string{"k": rapid.StringN(0, 2, -1).Draw(r, "header")}
		out.SentAt = time.UnixMilli(m.model.now)
	}
	return out
}

// describe returns all fields of a message in one line, with times in milliseconds.
func describe(i *store.Info) string {
	if i == nil {
		return "none"
	}
	return fmt.Sprintf("%q %s payload=%q headers=%q due=%d attempts=%d of %d timeout=%v expire=%v/%d dedup=%v group=%q"+
		" key=%q urgency=%q sent=%d lease=%d follows=%v error=%q reason=%q died=%d delivered=%v raw=%q failures=%s",
		i.ID, i.State, i.Payload, i.Headers, ms(i.Due), i.Attempts, i.MaxAttempts, i.Timeout, i.ExpireAfter,
		ms(i.ExpireAt), i.DedupWindow, i.Group, i.Key, i.Urgency, ms(i.SentAt), ms(i.LeaseDeadline), i.Follows,
		i.LastError, i.DeadReason, ms(i.DiedAt), i.Delivered, i.Raw, describeFailures(i.Failures))
}

func describeFailures(failures []store.Failure) string {
	var b strings.Builder
	for _, f := range failures {
		fmt.Fprintf(&b, "[%d #%d %v %q %q]", ms(f.Time), f.Attempt, f.Duration, f.Worker, f.Error)
	}
	return b.String()
}

func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return store.UnixMillis(t)
}
