//go:build unix

package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Result is what came of one run. Durations are in seconds in JSON.
type Result struct {
	Fault    string  `json:"fault"`
	Form     string  `json:"form"`
	Seed     uint64  `json:"seed"`
	Seconds  float64 `json:"seconds"`
	Strikes  int     `json:"strikes"`
	Journals string  `json:"journals,omitempty"` // where they are, when they were kept
	Command  string  `json:"command,omitempty"`  // that made the run, with others perhaps
	CutShort bool    `json:"cut_short,omitempty"`
	Planned  float64 `json:"planned_seconds,omitempty"` // of a run that was cut short; Seconds is how long its load was

	Sent           int `json:"sent"` // acknowledged
	Delivered      int `json:"delivered"`
	StillThere     int `json:"still_there"`
	Dead           int `json:"dead"`
	Cancelled      int `json:"cancelled"`
	Lost           int `json:"lost"`
	LostPermitted  int `json:"lost_permitted"` // acknowledged, in a time whose writes may be undone, and not durable
	Undone         int `json:"undone"`         // other promises broken in such a time
	Unsure         int `json:"unsure"`         // of Delivered: the ack's answer was not heard
	Unacknowledged int `json:"unacknowledged"` // delivered, and their sender does not know that they were sent
	Refused        int `json:"refused"`        // sends that a full server refused
	Deliveries     int `json:"deliveries"`
	Redelivered    int `json:"redelivered"` // because a lease ended
	Resent         int `json:"resent"`      // sent again after they were done, so that they came again
	Doubled        int `json:"doubled"`     // claimed after an ack that was answered
	Early          int `json:"early"`
	TwoHolders     int `json:"two_holders"`

	Stall             Longest `json:"stall"`               // between claims that gave messages, under load
	AfterDeath        Longest `json:"after_death"`         // of a consumer, until its messages were claimed by others
	AfterRestart      Longest `json:"after_restart"`       // from the time a server served again to the next claim
	AfterPromotion    Longest `json:"after_promotion"`     // from a promotion to the next claim
	AfterPrimaryDeath Longest `json:"after_primary_death"` // from a primary's death to the next claim of the next
	DrainSeconds      float64 `json:"drain_seconds"`
	LatestMicros      int64   `json:"latest_micros"`
	EarlyMost         Longest `json:"early_most"` // by a stepped clock

	Slow       string      `json:"slow,omitempty"` // which targets were missed; see TooSlow
	Usage      []Usage     `json:"usage,omitempty"`
	Violations []Violation `json:"violations,omitempty"`
	violated   int
}

// Usage is what the longest-lived worker and the server used at one time.
type Usage struct {
	Seconds    float64 `json:"seconds"`
	WorkerKiB  int64   `json:"worker_kib"`
	Goroutines int64   `json:"goroutines"`
	HeapKiB    int64   `json:"heap_kib"`
	RedisKiB   int64   `json:"redis_kib,omitempty"`
}

// Violation is a promise that was broken.
type Violation struct {
	Kind    string `json:"kind"`
	ID      string `json:"id"`
	Text    string `json:"text"`
	History string `json:"history,omitempty"`
}

// maxViolations bounds how many are kept with their history; all are counted.
const maxViolations = 20

// Longest keeps the longest of some times, and their number.
type Longest struct {
	micros int64
	times  int
}

func (l *Longest) add(micros int64) {
	l.micros = max(l.micros, micros)
	l.times++
}

// addIf adds a time that is known, which is one not below zero.
func (l *Longest) addIf(micros int64) {
	if micros >= 0 {
		l.add(micros)
	}
}

// join adds the times of another.
func (l *Longest) join(o Longest) { l.micros, l.times = max(l.micros, o.micros), l.times+o.times }

func (l Longest) seconds() float64 { return float64(l.micros) / 1e6 }

// String gives the longest time in seconds, or "-" when there was none.
func (l Longest) String() string {
	if l.times == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", l.seconds())
}

// longestJSON is a Longest in JSON.
type longestJSON struct {
	Seconds float64 `json:"seconds"`
	Times   int     `json:"times"`
}

// MarshalJSON implements json.Marshaler.
func (l Longest) MarshalJSON() ([]byte, error) {
	return json.Marshal(longestJSON{l.seconds(), l.times})
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Longest) UnmarshalJSON(b []byte) error {
	var j longestJSON
	err := json.Unmarshal(b, &j)
	l.micros, l.times = int64(j.Seconds*1e6+0.5), j.Times
	return err
}

func newResult(f *fault, cfg Config) *Result {
	return &Result{Fault: f.name, Form: string(f.setting.form), Seed: cfg.Seed, Seconds: cfg.Duration.Seconds()}
}

// OK tells whether every promise was kept.
func (r *Result) OK() bool { return len(r.Violations) == 0 }

func (r *Result) violate(kind, id, format string, args ...any) {
	r.violateWith(func() string { return "" }, kind, id, format, args...)
}

func (r *Result) violateWith(history func() string, kind, id, format string, args ...any) {
	r.violated++
	if len(r.Violations) < maxViolations {
		r.Violations = append(r.Violations, Violation{kind, id, fmt.Sprintf(format, args...), history()})
	}
}

// Line tells of the run in one line.
func (r *Result) Line() string {
	state := "ok"
	if !r.OK() {
		state = fmt.Sprintf("FAILED (%d)", len(r.Violations))
	}
	line := fmt.Sprintf("%-14s %-8s seed %-4d blows %-2d sent %-6d delivered %-6d dead %-3d lost %d doubled %d early %d holders %d stall %ss",
		r.Fault, r.Form, r.Seed, r.Strikes, r.Sent, r.Delivered, r.Dead, r.Lost, r.Doubled, r.Early, r.TwoHolders, r.Stall)
	for _, x := range []struct {
		name string
		of   Longest
	}{{"death", r.AfterDeath}, {"restart", r.AfterRestart}, {"promotion", r.AfterPromotion}} {
		if x.of.times > 0 {
			line += fmt.Sprintf(" after %s %ss", x.name, x.of)
		}
	}
	if r.LostPermitted+r.Undone > 0 {
		line += fmt.Sprintf(" permitted: lost %d, undone %d", r.LostPermitted, r.Undone)
	}
	if r.Resent > 0 {
		line += fmt.Sprintf(" resent %d", r.Resent)
	}
	if slow := r.TooSlow(); slow != "" {
		line += " SLOW: " + slow
	}
	if r.CutShort {
		line += fmt.Sprintf(" CUT SHORT after %.1f of %.0f s", r.Seconds, r.Planned)
	}
	return line + " " + state
}

// Failure tells all that went wrong, with the histories of the messages; "" when nothing did.
func (r *Result) Failure() string {
	var b strings.Builder
	for i, v := range r.Violations {
		if i >= 3 {
			v.History = "" // the JSON has more of them
		}
		fmt.Fprintf(&b, "%s: seed %d: message %s: %s: %s\n%s\n", r.Fault, r.Seed, v.ID, v.Kind, v.Text, v.History)
	}
	if b.Len() > 0 {
		fmt.Fprintf(&b, "journals and logs are in %s\n", r.Journals)
	}
	return b.String()
}

// joinSorted joins lines that begin with a time of equal length.
func joinSorted(lines []string) string {
	slices.Sort(lines)
	return "    " + strings.Join(lines, "\n    ")
}
