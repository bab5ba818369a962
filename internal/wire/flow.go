package wire

import (
	"time"

	"github.com/laterq/later/store"
)

// Flow is the limits of a queue and of its keys.
type Flow struct {
	Concurrency int      `json:"concurrency,omitempty" minimum:"0" maximum:"1000000" doc:"So many messages in flight at once. Default: no limit"`
	Rate        *Rate    `json:"rate,omitempty" doc:"How many messages may start in a span of time. Default: no limit"`
	Fair        bool     `json:"fair,omitempty" doc:"Keys take turns. Limits of keys and urgency imply it"`
	Urgency     bool     `json:"urgency,omitempty" doc:"Messages may be urgent, or of low urgency"`
	Key         *KeyFlow `json:"key,omitempty" doc:"The limits of each key. Default: no limits"`
}

// KeyFlow is the limits of a key and its share.
type KeyFlow struct {
	Concurrency int         `json:"concurrency,omitempty" minimum:"0" maximum:"1000000" doc:"So many messages of a key in flight at once. Default: no limit"`
	Rate        *Rate       `json:"rate,omitempty" doc:"How many messages of a key may start in a span of time. Default: no limit"`
	Weight      int         `json:"weight,omitempty" minimum:"0" maximum:"1000" doc:"The share of a key among the keys that wait. Default: 1"`
	Order       store.Order `json:"order,omitempty" enum:"continue,halt" doc:"Messages of a key start one at a time, in order: after a dead one the key goes on, or it halts. Default: no order"`
}

// Rate is a limit of starts in a span of time.
type Rate struct {
	N     int      `json:"n" minimum:"1" maximum:"1000000" doc:"So many messages"`
	Per   Duration `json:"per" doc:"In so long, such as 1s: at least a microsecond for each message"`
	Burst int      `json:"burst,omitempty" minimum:"0" maximum:"1000000" doc:"So many may start at once. Default: 1"`
}

// NewFlow returns the JSON of the limits of a queue.
func NewFlow(f store.Flow) Flow {
	w := Flow{Concurrency: f.Concurrency, Rate: NewRate(f.Rate), Fair: f.Fair, Urgency: f.Urgency}
	if f.Key.Normal() != (store.KeyFlow{}).Normal() {
		w.Key = newKeyFlow(f.Key)
	}
	return w
}

func newKeyFlow(f store.KeyFlow) *KeyFlow {
	w := &KeyFlow{Concurrency: f.Concurrency, Rate: NewRate(f.Rate), Weight: f.Weight, Order: f.Order}
	if w.Weight == 1 {
		w.Weight = 0
	}
	return w
}

// NewRate returns the JSON of a rate, nil for none.
func NewRate(r store.Rate) *Rate {
	if r == (store.Rate{}) {
		return nil
	}
	return &Rate{r.N, Duration(r.Per), r.Burst}
}

// Flow returns the limits.
func (f Flow) Flow() store.Flow {
	of := store.Flow{Concurrency: f.Concurrency, Rate: f.Rate.rate(), Fair: f.Fair, Urgency: f.Urgency}
	if f.Key != nil {
		of.Key = store.KeyFlow{Concurrency: f.Key.Concurrency, Rate: f.Key.Rate.rate(), Weight: f.Key.Weight,
			Order: f.Key.Order}
	}
	return of
}

func (r *Rate) rate() store.Rate {
	if r == nil {
		return store.Rate{}
	}
	return store.Rate{N: r.N, Per: time.Duration(r.Per), Burst: r.Burst}
}

// FlowState is the limits of a queue, with how many messages count as in flight, when the next one may start, and how
// many keys wait.
type FlowState struct {
	Flow
	Leased int        `json:"leased"`
	Next   string     `json:"next,omitempty"`
	Keys   *KeyCounts `json:"keys,omitempty"`
}

// KeyCounts counts the keys of a queue that wait.
type KeyCounts struct {
	Waiting int64 `json:"waiting" doc:"Keys with ready messages; one that may start messages of several urgencies counts for each"`
	Full    int64 `json:"full" doc:"Of them, keys with as many messages in flight as they may have, and keys that wait for the message that holds them"`
	Resting int64 `json:"resting" doc:"Of them, keys that wait until their rate allows a start"`
	Halted  int64 `json:"halted,omitempty" doc:"Keys that a dead message halts, whether or not other messages wait"`
}

// NewFlowState returns the JSON of a flow with its state, nil for a plain queue.
func NewFlowState(s store.FlowState) *FlowState {
	if !s.Limited() {
		return nil
	}
	w := &FlowState{Flow: NewFlow(s.Flow), Leased: s.Leased}
	if s.Next.After(s.Now) {
		w.Next = FormatTime(s.Next)
	}
	if s.Fair {
		w.Keys = &KeyCounts{s.Keys.Waiting, s.Keys.Full, s.Keys.Resting, s.Keys.Halted}
	}
	return w
}

// KeyOverride is the limits of a single key that differ from the limits of each key. A field that is left out
// is inherited; a concurrency of 0 and a rate with n 0 are no limit.
type KeyOverride struct {
	Concurrency *int          `json:"concurrency,omitempty" minimum:"0" maximum:"1000000" doc:"So many messages of the key in flight at once; 0: no limit"`
	Rate        *OverrideRate `json:"rate,omitempty" doc:"How many messages of the key may start in a span of time; n 0: no limit"`
	Weight      *int          `json:"weight,omitempty" minimum:"1" maximum:"1000" doc:"The share of the key among the keys that wait"`
}

// OverrideRate is a limit of starts in a span of time, or none.
type OverrideRate struct {
	N     int      `json:"n" minimum:"0" maximum:"1000000" doc:"So many messages; 0: no limit"`
	Per   Duration `json:"per,omitempty" doc:"In so long, such as 1s: at least a microsecond for each message"`
	Burst int      `json:"burst,omitempty" minimum:"0" maximum:"1000000" doc:"So many may start at once. Default: 1"`
}

// NewKeyOverride returns the JSON of an override, nil for none.
func NewKeyOverride(o *store.KeyOverride) *KeyOverride {
	if o.IsZero() {
		return nil
	}
	w := &KeyOverride{Concurrency: o.Concurrency, Weight: o.Weight}
	if o.Rate != nil {
		w.Rate = &OverrideRate{o.Rate.N, Duration(o.Rate.Per), o.Rate.Burst}
	}
	return w
}

// KeyOverride returns the override.
func (o KeyOverride) KeyOverride() store.KeyOverride {
	of := store.KeyOverride{Concurrency: o.Concurrency, Weight: o.Weight}
	if o.Rate != nil {
		of.Rate = &store.Rate{N: o.Rate.N, Per: time.Duration(o.Rate.Per), Burst: o.Rate.Burst}
	}
	return of
}

// Key is a key of a queue with its limits and their state.
type Key struct {
	Key string `json:"key"`
	KeyFlow
	Override *KeyOverride `json:"override,omitempty"`
	Waiting  int64        `json:"waiting" doc:"Ready messages that claims have found"`
	Since    string       `json:"since,omitempty" doc:"When the first of them fell due"`
	Leased   int          `json:"leased" doc:"Messages in flight"`
	Holder   string       `json:"holder,omitempty" doc:"The message that holds a key with an order and is not in flight: the next to start, or dead if the key is halted"`
	Halted   bool         `json:"halted,omitempty" doc:"The holder is dead, and the key waits until it is replayed or removed or the key is resumed"`
	Next     string       `json:"next,omitempty" doc:"When the rate of the key allows the next start, unless that is now"`
	Reason   string       `json:"reason,omitempty" enum:"full,held,halted,resting,turn" doc:"What the key waits for: one of its messages in flight, the due time of its holder, a halt, its rate, its turn; none if no message waits"`
}

// The reasons of a Key.
const (
	KeyFull    = "full"
	KeyHeld    = "held"
	KeyHalted  = "halted"
	KeyResting = "resting"
	KeyTurn    = "turn"
)

// NewKey returns the JSON of the state of a key.
func NewKey(s *store.KeyState) Key {
	w := Key{Key: s.Key, KeyFlow: *newKeyFlow(s.KeyFlow), Override: NewKeyOverride(s.Override), Waiting: s.Waiting,
		Since: FormatTime(s.Since), Leased: s.Leased, Holder: s.Holder, Halted: s.Halted}
	if s.Resting() {
		w.Next = FormatTime(s.Next)
	}
	if s.Waiting > 0 || s.Halted {
		w.Reason = keyReason(s)
	}
	return w
}

func keyReason(s *store.KeyState) string {
	switch {
	case s.Halted:
		return KeyHalted
	case s.Full():
		return KeyFull
	case s.Held:
		return KeyHeld
	case s.Resting():
		return KeyResting
	}
	return KeyTurn
}

// Limited is a queue with its limits, if it has some.
type Limited struct {
	Queue string     `json:"queue"`
	Flow  *FlowState `json:"flow,omitempty"`
}

// LimitedKey is a key of a queue.
type LimitedKey struct {
	Queue string `json:"queue"`
	Key
}
