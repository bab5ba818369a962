package store

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/laterq/later/internal/reserved"
)

// Limits of queues and calls, besides the limits of messages. They are checked before anything is written.
const (
	MaxQueueName   = 128                        // bytes of a queue name
	MaxReason      = 2048                       // bytes of an error text
	MaxFailures    = 5                          // failures that a message remembers
	MaxFailureText = 256                        // bytes of the error of a Failure
	MaxWorkerName  = 128                        // bytes of the name of a worker
	MaxDelay       = 100 * 365 * 24 * time.Hour // longest delay, relative expiry or dedup window
	MinLease       = 10 * time.Millisecond      // shortest lease
	MaxLease       = 24 * time.Hour             // longest lease
	MaxLeaseName   = 64                         // bytes of a Receipt.Lease
	MaxReceipt     = 512                        // bytes of a receipt as text
	MaxBatch       = 500                        // messages in one call
	MaxBatchBytes  = 4 << 20                    // payload, header and raw bytes in one call
	MaxDeadCount   = int64(1_000_000_000_000)   // largest Retention.MaxCount
	MaxBuckets     = 500                        // parts of a Histogram
	MaxReplicas    = 16                         // replicas of a Durability
	MinConfirm     = time.Millisecond           // shortest Durability.Timeout
	MaxConfirm     = time.Hour                  // longest Durability.Timeout

	MaxFollowUpQueues = 64      // queues with follow-ups of one message
	MaxFollowUpBytes  = 3 << 19 // bytes of the follow-ups of one message, if there are several

	MaxProperties    = 1000 // properties of a queue
	MaxPropertyName  = 256  // bytes of the name of a property
	MaxPropertyValue = 4096 // bytes of the value of a property
)

// maxTime is the latest due or expiry time. All milliseconds up to it are exact in every engine.
var maxTime = time.Date(2199, 12, 31, 23, 59, 59, 0, time.UTC)

// CheckQueue returns an ErrInvalid unless name is a valid queue name.
//
// A name has 1 to MaxQueueName bytes of UTF-8 without control characters or braces, which mark hash tags in Redis
// Cluster.
func CheckQueue(name string) error {
	if name == "" {
		return Field("queue", Invalid("queue name is empty: it must have 1 to %d bytes", MaxQueueName))
	}
	err := checkText("queue name", name, MaxQueueName)
	if err == nil && strings.ContainsAny(name, "{}") {
		err = Invalid("queue name %q holds a brace: leave out { and }", name)
	}
	return Field("queue", err)
}

// CheckNewQueue returns an ErrInvalid unless a queue may be created under the name: CheckQueue accepts it, and CheckNew
// the name or, of a topic's queue, the topic's.
func CheckNewQueue(name string) error {
	if err := CheckQueue(name); err != nil {
		return err
	}
	field := "queue name"
	prefix, rest := reserved.Cut(name)
	if prefix != "" {
		field = "name in " + prefix
	}
	return CheckNew(field, rest)
}

// CheckNew returns an ErrInvalid if a name is . or .., which no new queue, message or group may have: HTTP clients and
// proxies remove these from the paths of URLs, so that a request for a message would be one for its queue. The error
// names the field. Existing queues and messages with such a name can be listed, settled, cancelled, exported and
// deleted.
func CheckNew(field, name string) error {
	if name == "." || name == ".." {
		return Invalid("%s is %q, which URLs cannot have in their paths: give another one", field, name)
	}
	return nil
}

// NewName returns a name that CheckNew accepts: the name itself or, of . and .., %2E and %2E%2E.
func NewName(name string) string {
	if CheckNew("", name) != nil {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return name
}

// NewQueueName is NewName for queues: if CheckQueue accepts a name, CheckNewQueue accepts the returned one.
func NewQueueName(name string) string {
	prefix, rest := reserved.Cut(name)
	return prefix + NewName(rest)
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

// Check returns an error if the message exceeds a limit. The error names the field, the limit and the remedy.
func (m *Outgoing) Check() error {
	if err := m.Message.checkNew(); err != nil {
		return err
	}
	return m.check()
}

// check is Check for a message that may be there already.
func (m *Outgoing) check() error {
	if err := m.Message.check(); err != nil {
		return err
	}
	if err := Field("durable", m.Durable.Check()); err != nil {
		return err
	}
	if err := m.Due.Check(); err != nil {
		return err
	}
	if m.If != nil && (m.Durable.Asked() || m.OneByOne()) {
		return Invalid("a condition is given with a durability, a mode for duplicates or a once: leave out one of them")
	}
	if err := m.Once.check(); err != nil {
		return err
	}
	return Field("on_duplicate", m.OnDuplicate.check(m.Due))
}

// Asked reports whether d asks for more than the engine always guarantees.
func (d Durability) Asked() bool { return d != Durability{} }

// Check returns an ErrInvalid if Replicas or Timeout is out of range. The zero Durability is valid.
func (d Durability) Check() error {
	if !d.Asked() {
		return nil
	}
	if d.Replicas < 0 || d.Replicas > MaxReplicas {
		return Invalid("durability asks for %d replicas: must be 0 (the server's own disk) to %d", d.Replicas,
			MaxReplicas)
	}
	if d.Timeout < MinConfirm || d.Timeout > MaxConfirm {
		return Invalid("durability's timeout is %v: must be %v to %v", d.Timeout, MinConfirm, MaxConfirm)
	}
	return nil
}

// Check returns an ErrInvalid if the due time is too far away. A delay below zero is valid and means at once.
func (d Due) Check() error {
	if d.Delay > MaxDelay {
		return Field("in", Invalid("delay is %v: the limit is %v", d.Delay, MaxDelay))
	}
	return Field("at", checkTime("due time", d.At))
}

func checkTime(field string, t time.Time) error {
	if !t.IsZero() && (t.Before(time.UnixMilli(1)) || t.After(maxTime)) {
		return Invalid("%s is %s: give a time from 1970 to %d", field, t.Format(time.RFC3339), maxTime.Year())
	}
	return nil
}

// CheckLease returns an ErrInvalid unless d is MinLease to MaxLease.
func CheckLease(d time.Duration) error {
	if d < MinLease || d > MaxLease {
		return Invalid("lease is %v: must be %v to %v", d, MinLease, MaxLease)
	}
	return nil
}

// CheckDelay returns an ErrInvalid if the delay of a nack or snooze exceeds MaxDelay. A delay below zero is valid and
// means at once.
func CheckDelay(d time.Duration) error {
	if d > MaxDelay {
		return Field("in", Invalid("delay is %v: the limit is %v", d, MaxDelay))
	}
	return nil
}

// CheckProperties returns an ErrInvalid or ErrTooLarge unless Store.SetProperties accepts set.
//
// There must be 1 to MaxBatch properties. A name has 1 to MaxPropertyName bytes of UTF-8 without control characters,
// and a value up to MaxPropertyValue bytes of UTF-8.
func CheckProperties(set map[string]string) error {
	if len(set) == 0 {
		return Invalid("no properties are given: must be 1 to %d", MaxBatch)
	}
	if len(set) > MaxBatch {
		return TooLarge("%d properties are given: the limit is %d in one call; make several", len(set), MaxBatch)
	}
	for name, value := range set {
		if name == "" {
			return Invalid("property name is empty: give a name of 1 to %d bytes", MaxPropertyName)
		}
		if err := checkText("property name", name, MaxPropertyName); err != nil {
			return err
		}
		if len(value) > MaxPropertyValue {
			return TooLarge("value of property %q is %d bytes long: the limit is %d", name, len(value),
				MaxPropertyValue)
		}
		if !utf8.ValidString(value) {
			return Invalid("property %q has a value that is not UTF-8: encode it as text", name)
		}
	}
	return nil
}

// CheckPropertyCount returns an ErrTooLarge if n properties are too many for a queue: more than MaxProperties. Engines
// call it with the number that a queue would have.
func CheckPropertyCount(n int) error {
	if n > MaxProperties {
		return TooLarge("queue would have %d properties: the limit is %d; remove some first", n, MaxProperties)
	}
	return nil
}

// CheckBounds returns an ErrInvalid unless Store.Histogram accepts the bounds.
//
// There must be 2 to MaxBuckets+1 bounds, each at least a millisecond after the one before.
func CheckBounds(bounds []time.Time) error {
	if len(bounds) < 2 || len(bounds) > MaxBuckets+1 {
		return Invalid("a histogram has %d bounds: give 2 to %d", len(bounds), MaxBuckets+1)
	}
	for i, bound := range bounds {
		if err := checkTime("histogram bound", bound); err != nil {
			return err
		}
		if i > 0 && UnixMillis(bound) <= UnixMillis(bounds[i-1]) {
			return Invalid("histogram bound %d, %s, is less than a millisecond after the one before: give times "+
				"that increase", i, bound.Format(time.RFC3339Nano))
		}
	}
	return nil
}

// CheckHistogram returns an ErrInvalid unless CheckBounds accepts the result of HistogramBounds.
//
// There must be 1 to MaxBuckets buckets, and the range must last at least a millisecond for each.
func CheckHistogram(from, to time.Time, buckets int) error {
	if buckets < 1 || buckets > MaxBuckets {
		return Invalid("buckets is %d: must be 1 to %d", buckets, MaxBuckets)
	}
	if to.Sub(from) < time.Duration(buckets)*time.Millisecond {
		return Invalid("histogram from %s to %s has less than a millisecond for each bucket: "+
			"give a longer range or fewer buckets", from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano))
	}
	if err := checkTime("histogram start", from); err != nil {
		return err
	}
	return checkTime("histogram end", to)
}

// HistogramBounds returns the buckets+1 bounds of equal parts of [from, to), in whole milliseconds.
//
// Each part is at least a millisecond long if CheckHistogram accepts the arguments.
func HistogramBounds(from, to time.Time, buckets int) []time.Time {
	first, length := UnixMillis(from), UnixMillis(to)-UnixMillis(from)
	bounds := make([]time.Time, buckets+1)
	for i := range bounds {
		bounds[i] = time.UnixMilli(first + length*int64(i)/int64(buckets))
	}
	return bounds
}

// BoundMillis returns the bounds of a histogram in milliseconds since 1970, rounded up.
func BoundMillis(bounds []time.Time) []int64 {
	millis := make([]int64, len(bounds))
	for i, bound := range bounds {
		millis[i] = UnixMillis(bound)
	}
	return millis
}

// CutReason returns s as valid UTF-8, cut between characters to at most MaxReason bytes.
func CutReason(s string) string {
	return cut(strings.ToValidUTF8(s, "\uFFFD"), MaxReason)
}

// Millis returns d in milliseconds, rounded up, or 0 if d is negative.
func Millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// UnixMillis returns t in milliseconds since 1970, rounded up.
func UnixMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

// Time returns the time that is ms milliseconds after 1970, or the zero time if ms is 0.
func Time(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// String returns the action's name in lower case, such as "ack".
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
	case GiveBack:
		return "give_back"
	}
	return fmt.Sprintf("action %d", uint8(a))
}
