package store

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Failure is a failed attempt to handle a message: a nack, a bury, or the end of its lease. It can also be that the
// message was given back.
type Failure struct {
	// Time is when the attempt ended, or when the message was first given back, in whole milliseconds of the engine's
	// clock.
	Time time.Time
	// Attempt is the number of the attempt. A replay counts from 1 again. It is 0 for a message that was given back.
	Attempt int
	// Duration is how long the attempt took, in whole milliseconds, or 0 if unknown.
	Duration time.Duration
	// Worker is the name of the worker that held the message, or "" if unknown.
	Worker string
	// Error is the first line of the error, cut to MaxFailureText bytes.
	Error string
}

// NewFailure returns the failure of an attempt as engines store it. Duration is rounded up, control characters become
// spaces, and texts are cut to their limits.
func NewFailure(at time.Time, attempt int, s *Settlement) Failure {
	return Failure{
		Time: at, Attempt: attempt, Duration: time.Duration(Millis(s.Duration)) * time.Millisecond,
		Worker: cutLine(s.Worker, MaxWorkerName), Error: cutLine(s.Reason, MaxFailureText),
	}
}

// LeaseExpired returns the failure of an attempt that ended with its lease.
func LeaseExpired(deadline time.Time, attempt int) Failure {
	return Failure{Time: deadline, Attempt: attempt, Error: LeaseExpiredText}
}

// AddFailure returns the last MaxFailures failures, latest first, after f. It does not change earlier.
func AddFailure(f Failure, earlier []Failure) []Failure {
	return append([]Failure{f}, earlier[:min(len(earlier), MaxFailures-1)]...)
}

// cutLine returns the first line of s as valid UTF-8 without control characters, cut between characters to at most max
// bytes.
func cutLine(s string, max int) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return cut(strings.TrimSpace(s), max)
}

// cut returns s, cut between characters to at most max bytes.
func cut(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max]
}

func (i *Info) checkFailures() error {
	if len(i.Failures) > MaxFailures {
		return Invalid("%d failures are given: the limit is %d; give the latest", len(i.Failures), MaxFailures)
	}
	for _, f := range i.Failures {
		if err := f.check(); err != nil {
			return err
		}
	}
	return nil
}

func (f *Failure) check() error {
	switch {
	case f.Attempt < 0 || f.Attempt > MaxAttempts+1:
		return Invalid("attempt of a failure is %d: must be 0 to %d", f.Attempt, MaxAttempts+1)
	case f.Duration < 0 || f.Duration > MaxDelay:
		return Invalid("duration of a failure is %v: must be 0 to %v", f.Duration, MaxDelay)
	case f.Time.IsZero():
		return Invalid("time of a failure is missing: give the one that List or Get returned")
	case f.Worker != cutLine(f.Worker, MaxWorkerName):
		return Invalid("worker of a failure is %q: give one line of up to %d bytes", f.Worker, MaxWorkerName)
	case f.Error != cutLine(f.Error, MaxFailureText):
		return Invalid("error of a failure is %d bytes long or not one line: the limit is %d; cut it", len(f.Error),
			MaxFailureText)
	}
	return checkTime("time of a failure", f.Time)
}

func sameFailures(a, b []Failure) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		f, g := &a[i], &b[i]
		if !sameTime(f.Time, g.Time) || f.Attempt != g.Attempt || Millis(f.Duration) != Millis(g.Duration) ||
			f.Worker != g.Worker || f.Error != g.Error {
			return false
		}
	}
	return true
}
