//go:build unix

package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Result is the result of one run. Durations in JSON are in seconds.
type Result struct {
	Fault    string  `json:"fault"`
	Form     string  `json:"form"`
	Seed     uint64  `json:"seed"`
	Seconds  float64 `json:"seconds"`
	Injected int     `json:"strikes"`
	Journals string  `json:"journals,omitempty"` // directory, if they were kept
	Command  string  `json:"command,omitempty"`  // command that made the run, possibly with other runs
	CutShort bool    `json:"cut_short,omitempty"`
	Planned  float64 `json:"planned_seconds,omitempty"` // of a run cut short; its Seconds are the actual load

	Sent           int `json:"sent"` // acknowledged
	Delivered      int `json:"delivered"`
	StillThere     int `json:"still_there"`
	Dead           int `json:"dead"`
	Cancelled      int `json:"cancelled"`
	Lost           int `json:"lost"`
	LostPermitted  int `json:"lost_permitted"` // acknowledged and not durable, in a time of writes that may be undone
	Undone         int `json:"undone"`         // other guarantees broken in such a time
	Unsure         int `json:"unsure"`         // of Delivered: the reply to the ack was lost
	Unacknowledged int `json:"unacknowledged"` // delivered, but the sender never learned that the send succeeded
	Refused        int `json:"refused"`        // sends refused by a full server
	Deliveries     int `json:"deliveries"`
	Redelivered    int `json:"redelivered"` // after a lease expired
	Resent         int `json:"resent"`      // redelivered because they were sent again after they were done
	Doubled        int `json:"doubled"`     // claimed after an acknowledged ack
	Early          int `json:"early"`
	TwoHolders     int `json:"two_holders"`

	Stall             Longest `json:"stall"`               // between claims that returned messages, under load
	AfterDeath        Longest `json:"after_death"`         // from a consumer's death until others claimed its messages
	AfterRestart      Longest `json:"after_restart"`       // from when a server serves again to the next claim
	AfterPromotion    Longest `json:"after_promotion"`     // from a promotion to the next claim
	AfterPrimaryDeath Longest `json:"after_primary_death"` // from a primary's death to the claim after the promotion
	WhileFrozen       Longest `json:"while_frozen"`        // lateness on queues of other nodes while one is frozen
	Lateness          Longest `json:"lateness"`            // otherwise, in such runs
	DrainSeconds      float64 `json:"drain_seconds"`
	LatestMicros      int64   `json:"latest_micros"`
	EarlyMost         Longest `json:"early_most"` // due to a stepped clock

	EventsSeen     int        `json:"events_seen,omitempty"`     // by watchers, of single messages
	EventsMissed   int64      `json:"events_missed,omitempty"`   // as watchers were told
	Gaps           int        `json:"gaps,omitempty"`            // as watchers were told
	StreamsChecked int        `json:"streams_checked,omitempty"` // of events, without a gap
	LocksHeld      int        `json:"locks_held,omitempty"`      // by handlers
	LocksLost      int        `json:"locks_lost,omitempty"`      // of LocksHeld, as handlers were told
	LocksBeside    int        `json:"locks_beside,omitempty"`    // one with an expired lock ran
	LockFreed      Longest    `json:"lock_freed"`                // from a holder's death to the key's next handler
	Copied         int        `json:"copied,omitempty"`          // to queues that were subscribed for a while
	Told           int        `json:"told,omitempty"`            // commands to single workers
	Obeyed         int        `json:"obeyed,omitempty"`
	FlowChanges    int        `json:"flow_changes,omitempty"` // of limits
	FlowQueues     FlowFacts  `json:"flow_queues,omitzero"`
	FlowKeys       FlowFacts  `json:"flow_keys,omitzero"`
	Order          OrderFacts `json:"order,omitzero"`
	Urgency        ShareFacts `json:"urgency,omitzero"`
	ShardChanges   int        `json:"shard_changes,omitempty"` // of the numbers of shards of queues
	FlowTurns      int        `json:"flow_turns,omitempty"`    // claims for which it is known since when their key may go
	FlowPassed     int        `json:"flow_passed,omitempty"`   // most messages of another key before one of FlowTurns
	FlowWait       Longest    `json:"flow_wait"`               // of a message that the limits allowed, without a fault
	FlowWaited     string     `json:"flow_waited,omitempty"`   // which message FlowWait is of

	Slow       string      `json:"slow,omitempty"` // missed targets; see TooSlow
	Usage      []Usage     `json:"usage,omitempty"`
	Violated   int         `json:"violated,omitempty"`   // broken guarantees
	Violations []Violation `json:"violations,omitempty"` // the first maxViolations of them
}

// Usage is the resource usage of the longest-lived worker and of the servers at one time.
type Usage struct {
	Seconds    float64 `json:"seconds"`
	WorkerKiB  int64   `json:"worker_kib"`
	Goroutines int64   `json:"goroutines"`
	HeapKiB    int64   `json:"heap_kib"`
	RedisKiB   int64   `json:"redis_kib,omitempty"`
}

// Violation is a broken guarantee.
type Violation struct {
	Kind    string `json:"kind"`
	ID      string `json:"id"`
	Text    string `json:"text"`
	History string `json:"history,omitempty"`
}

// maxViolations limits the violations kept with their history. All are counted.
const maxViolations = 20

// Longest keeps the longest of several durations, and their number.
type Longest struct {
	micros int64
	times  int
}

func (l *Longest) add(micros int64) {
	l.micros = max(l.micros, micros)
	l.times++
}

// addKnown adds a duration unless it is negative, which means unknown.
func (l *Longest) addKnown(micros int64) {
	if micros >= 0 {
		l.add(micros)
	}
}

// merge adds the durations of another Longest.
func (l *Longest) merge(o Longest) { l.micros, l.times = max(l.micros, o.micros), l.times+o.times }

func (l Longest) seconds() float64 { return float64(l.micros) / 1e6 }

// String returns the longest duration in seconds, or "-" if there is none.
func (l Longest) String() string {
	if l.times == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", l.seconds())
}

// longestJSON is the JSON form of a Longest.
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

// OK reports whether every guarantee was kept.
func (r *Result) OK() bool { return r.Violated == 0 }

func (r *Result) violate(kind, id, format string, args ...any) {
	r.violateWith(func() string { return "" }, kind, id, format, args...)
}

func (r *Result) violateWith(history func() string, kind, id, format string, args ...any) {
	r.Violated++
	if len(r.Violations) < maxViolations {
		r.Violations = append(r.Violations, Violation{kind, id, fmt.Sprintf(format, args...), history()})
	}
}

// Line returns a one-line summary of the run.
func (r *Result) Line() string {
	state := "ok"
	if !r.OK() {
		state = fmt.Sprintf("FAILED (%d)", r.Violated)
	}
	line := fmt.Sprintf("%-14s %-8s seed %-4d faults %-2d sent %-6d delivered %-6d dead %-3d "+
		"lost %d doubled %d early %d holders %d stall %ss",
		r.Fault, r.Form, r.Seed, r.Injected, r.Sent, r.Delivered, r.Dead, r.Lost, r.Doubled, r.Early, r.TwoHolders,
		r.Stall)
	for _, x := range []struct {
		name string
		of   Longest
	}{{"death", r.AfterDeath}, {"restart", r.AfterRestart}, {"promotion", r.AfterPromotion}} {
		if x.of.times > 0 {
			line += fmt.Sprintf(" after %s %ss", x.name, x.of)
		}
	}
	if r.WhileFrozen.times > 0 {
		line += fmt.Sprintf(" late while frozen %ss (else %ss)", r.WhileFrozen, r.Lateness)
	}
	if r.LostPermitted+r.Undone > 0 {
		line += fmt.Sprintf(" permitted: lost %d, undone %d", r.LostPermitted, r.Undone)
	}
	if r.Resent > 0 {
		line += fmt.Sprintf(" resent %d", r.Resent)
	}
	if r.ShardChanges > 0 {
		line += fmt.Sprintf(" changes of shards %d", r.ShardChanges)
	}
	if slow := r.TooSlow(); slow != "" {
		line += " SLOW: " + slow
	}
	if r.CutShort {
		line += fmt.Sprintf(" CUT SHORT after %.1f of %.0f s", r.Seconds, r.Planned)
	}
	return line + " " + state
}

// Failure describes the first violations, with the histories of the first messages, and counts the others. It returns
// "" if there are none.
func (r *Result) Failure() string {
	var b strings.Builder
	for i, v := range r.Violations {
		if i >= 3 {
			v.History = "" // the JSON has more histories
		}
		fmt.Fprintf(&b, "%s: seed %d: message %s: %s: %s\n%s\n", r.Fault, r.Seed, v.ID, v.Kind, v.Text, v.History)
	}
	if more := r.Violated - len(r.Violations); more > 0 {
		fmt.Fprintf(&b, "%s: seed %d: %d more\n", r.Fault, r.Seed, more)
	}
	if b.Len() > 0 {
		fmt.Fprintf(&b, "journals and logs are in %s\n", r.Journals)
	}
	return b.String()
}

// joinSorted sorts and joins lines that start with a time of fixed width.
func joinSorted(lines []string) string {
	slices.Sort(lines)
	return "    " + strings.Join(lines, "\n    ")
}

// FlowFacts says how the limits of queues, or those of keys, were used.
type FlowFacts struct {
	Starts int // of messages
	Full   int // claims that used up the concurrency
	Paced  int // claims that used up the rate
}

func (f *FlowFacts) add(o FlowFacts) {
	f.Starts += o.Starts
	f.Full += o.Full
	f.Paced += o.Paced
}
