package envelope

import (
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// Failures are stored as text, latest first, separated by byte 30. The fields of one are separated by byte 31: time in
// ms, attempt, duration in ms, worker, error. Fields have no control characters, so neither byte occurs in one.
const (
	failureEnd = "\x1e"
	fieldEnd   = "\x1f"
)

// AppendFailures appends failures to b.
func AppendFailures(b []byte, failures []store.Failure) []byte {
	for i := range failures {
		if i > 0 {
			b = append(b, failureEnd...)
		}
		f := &failures[i]
		b = append(strconv.AppendInt(b, store.UnixMillis(f.Time), 10), fieldEnd...)
		b = append(strconv.AppendInt(b, int64(f.Attempt), 10), fieldEnd...)
		b = append(b, FailureTail(f)...)
	}
	return b
}

// FailureTail returns the text of a failure after its attempt.
func FailureTail(f *store.Failure) string {
	return strconv.FormatInt(store.Millis(f.Duration), 10) + fieldEnd + f.Worker + fieldEnd + f.Error
}

// ParseFailures returns the failures in a text of AppendFailures. It leaves out unreadable ones.
func ParseFailures(text string) (failures []store.Failure) {
	if text == "" {
		return nil
	}
	for one := range strings.SplitSeq(text, failureEnd) {
		fields := strings.SplitN(one, fieldEnd, 5)
		if len(fields) < 5 {
			continue
		}
		var numbers [3]int64
		for i := range numbers {
			numbers[i], _ = strconv.ParseInt(fields[i], 10, 64)
		}
		failures = append(failures, store.Failure{
			Time: store.Time(numbers[0]), Attempt: int(numbers[1]),
			Duration: time.Duration(numbers[2]) * time.Millisecond,
			Worker:   fields[3], Error: fields[4],
		})
	}
	return failures
}
