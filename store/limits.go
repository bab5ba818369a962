package store

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of what a message and a call may hold. They are checked before anything is written.
const (
	MaxQueueName   = 128                        // bytes of a queue's name
	MaxID          = 128                        // bytes of an id
	MaxPayload     = 1 << 20                    // bytes of a payload
	MaxHeaders     = 64                         // headers of a message
	MaxHeaderBytes = 16 << 10                   // bytes of all names and values of a message's headers
	MaxReason      = 2048                       // bytes kept of an error text
	MaxAttempts    = 65535                      // highest Message.MaxAttempts
	MaxDelay       = 100 * 365 * 24 * time.Hour // longest delay, expiry after due, or memory of an id
	MinLease       = 10 * time.Millisecond
	MaxLease       = 24 * time.Hour
	MaxBatch       = 500     // messages in one call
	MaxBatchBytes  = 4 << 20 // payload and header bytes in one call
	MaxBuckets     = 500     // parts of a Histogram
	MaxReplicas    = 16      // replicas of a Durability
	MinConfirm     = time.Millisecond
	MaxConfirm     = time.Hour
)

// DefaultMaxAttempts is the number of failed attempts a message has when its sender did not say.
const DefaultMaxAttempts = 20

// maxTime bounds due and expiry times: whole milliseconds up to it are exact in every engine.
var maxTime = time.Date(2199, 12, 31, 23, 59, 59, 0, time.UTC)

// CheckQueue refuses a name that is empty, too long, not UTF-8, or holds braces (they are Redis Cluster's
// hash tag) or control characters.
func CheckQueue(name string) error {
	if name == "" {
		return Invalid("queue name is empty: give a name of 1 to %d bytes", MaxQueueName)
	}
	if err := checkText("queue name", name, MaxQueueName); err != nil {
		return err
	}
	if strings.ContainsAny(name, "{}") {
		return Invalid("queue name %q holds a brace: leave out { and }", name)
	}
	return nil
}

// CheckID refuses an id that is empty, too long, not UTF-8, or holds control characters.
func CheckID(id string) error {
	if id == "" {
		return Invalid("id is empty: give 1 to %d bytes, or leave it out to have one made", MaxID)
	}
	return checkText("id", id, MaxID)
}

func checkText(field, s string, limit int) error {
	if len(s) > limit {
		return Invalid("%s is %d bytes long: the limit is %d", field, len(s), limit)
	}
	ascii := true
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return Invalid("%s %q holds a control character: leave it out", field, s)
		}
		ascii = ascii && s[i] < utf8.RuneSelf
	}
	if !ascii && !utf8.ValidString(s) {
		return Invalid("%s %q is not UTF-8", field, s)
	}
	return nil
}

// Check refuses a message that is over a limit. It names the field, the limit and what to do.
func (m *Outgoing) Check() error {
	if err := CheckID(m.ID); err != nil {
		return err
	}
	if len(m.Payload) > MaxPayload {
		return TooLarge("payload is %d bytes: the limit is %d; keep large data elsewhere and send its address",
			len(m.Payload), MaxPayload)
	}
	if err := checkHeaders(m.Headers); err != nil {
		return err
	}
	if m.MaxAttempts < 0 || m.MaxAttempts > MaxAttempts {
		return Invalid("max attempts is %d: give 1 to %d, or 0 for the default of %d",
			m.MaxAttempts, MaxAttempts, DefaultMaxAttempts)
	}
	if m.Timeout < 0 || m.Timeout > MaxLease {
		return Invalid("timeout is %v: give 0 (none) to %v", m.Timeout, MaxLease)
	}
	if m.ExpireAfter < 0 || m.ExpireAfter > MaxDelay {
		return Invalid("expiry is %v after the due time: give 0 (never) to %v", m.ExpireAfter, MaxDelay)
	}
	if m.ExpireAfter > 0 && !m.ExpireAt.IsZero() {
		return Invalid("expiry is given twice, relative and absolute: give one")
	}
	if err := checkTime("expiry", m.ExpireAt); err != nil {
		return err
	}
	if m.Remember < 0 || m.Remember > MaxDelay {
		return Invalid("remember is %v: give 0 (not at all) to %v", m.Remember, MaxDelay)
	}
	if err := m.Durable.Check(); err != nil {
		return err
	}
	return m.Due.Check()
}

// Asked tells whether more is asked for than the engine gives always.
func (d Durability) Asked() bool { return d != Durability{} }

// Check refuses a number of replicas or a timeout that is out of range. The zero Durability is allowed.
func (d Durability) Check() error {
	if !d.Asked() {
		return nil
	}
	if d.Replicas < 0 || d.Replicas > MaxReplicas {
		return Invalid("durability asks for %d replicas: give 0 (the server's own disk) to %d", d.Replicas, MaxReplicas)
	}
	if d.Timeout < MinConfirm || d.Timeout > MaxConfirm {
		return Invalid("durability's timeout is %v: give %v to %v", d.Timeout, MinConfirm, MaxConfirm)
	}
	return nil
}

// Check refuses a due time that is too far away. A delay below zero means at once.
func (d Due) Check() error {
	if d.Delay > MaxDelay {
		return Invalid("delay is %v: the limit is %v", d.Delay, MaxDelay)
	}
	return checkTime("due time", d.At)
}

func checkTime(field string, t time.Time) error {
	if !t.IsZero() && (t.Before(time.UnixMilli(1)) || t.After(maxTime)) {
		return Invalid("%s is %s: give a time from 1970 to %d", field, t.Format(time.RFC3339), maxTime.Year())
	}
	return nil
}

func checkHeaders(headers map[string]string) error {
	if len(headers) > MaxHeaders {
		return TooLarge("message has %d headers: the limit is %d", len(headers), MaxHeaders)
	}
	total := 0
	for name, value := range headers {
		if name == "" {
			return Invalid("header name is empty")
		}
		if err := checkText("header name", name, MaxHeaderBytes); err != nil {
			return err
		}
		if !utf8.ValidString(value) {
			return Invalid("header %q has a value that is not UTF-8", name)
		}
		total += len(name) + len(value)
	}
	if total > MaxHeaderBytes {
		return TooLarge("headers are %d bytes in all: the limit is %d", total, MaxHeaderBytes)
	}
	return nil
}

// CheckLease refuses a lease that is too short or too long.
func CheckLease(d time.Duration) error {
	if d < MinLease || d > MaxLease {
		return Invalid("lease is %v: give %v to %v", d, MinLease, MaxLease)
	}
	return nil
}

// CheckDelay refuses a delay of a nack or snooze that is too long. One below zero means at once.
func CheckDelay(d time.Duration) error {
	if d > MaxDelay {
		return Invalid("delay is %v: the limit is %v", d, MaxDelay)
	}
	return nil
}

// CheckHistogram refuses a range or a number of buckets that a histogram cannot have.
func CheckHistogram(from, to time.Time, buckets int) error {
	if buckets < 1 || buckets > MaxBuckets {
		return Invalid("buckets is %d: give 1 to %d", buckets, MaxBuckets)
	}
	if to.Sub(from) < time.Duration(buckets)*time.Millisecond {
		return Invalid("histogram from %s to %s is shorter than a millisecond a bucket: give a longer range or fewer buckets",
			from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano))
	}
	if err := checkTime("histogram start", from); err != nil {
		return err
	}
	return checkTime("histogram end", to)
}

// HistogramBounds gives the buckets+1 bounds of a histogram in milliseconds since 1970; each part is at least
// a millisecond long.
func HistogramBounds(from, to time.Time, buckets int) []int64 {
	first, length := UnixMillis(from), UnixMillis(to)-UnixMillis(from)
	bounds := make([]int64, buckets+1)
	for i := range bounds {
		bounds[i] = first + length*int64(i)/int64(buckets)
	}
	return bounds
}

// CutReason makes an error text UTF-8 and cuts it to MaxReason bytes, at a character.
func CutReason(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxReason {
		return s
	}
	end := MaxReason
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// Millis rounds a duration up to whole milliseconds; one below zero is zero.
func Millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// UnixMillis rounds a time up to a whole millisecond since 1970.
func UnixMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

// Time is the time of a number of milliseconds since 1970; 0 gives the zero time.
func Time(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// String names an action as the docs do.
func (a Action) String() string {
	switch a {
	case Ack:
		return "ack"
	case Nack:
		return "nack"
	case Snooze:
		return "snooze"
	case Release:
		return "release"
	case Bury:
		return "bury"
	}
	return fmt.Sprintf("action %d", uint8(a))
}
