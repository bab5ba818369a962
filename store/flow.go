package store

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/internal/reserved"
)

// Limits of a Flow.
const (
	MaxConcurrency = 1_000_000            // largest Flow.Concurrency
	MaxRate        = 1_000_000            // largest Rate.N and Rate.Burst
	MinInterval    = time.Microsecond     // shortest average time between two starts of a Rate
	MaxPeriod      = 366 * 24 * time.Hour // longest Rate.Per, and longest time in which a burst gathers
)

// Flow limits how fast messages of a queue may start. A message starts when it is claimed or forwarded. The zero Flow
// is a plain queue.
//
// Every process obeys a change of a Flow from its next call on. Messages that were leased before the queue had a Flow
// do not count, nor do they when it gets another one after it was plain.
type Flow struct {
	// Concurrency is how many messages may be leased at once, by all workers of the queue: 1 to MaxConcurrency, or 0
	// for no limit. A message that is cancelled or purged while it is leased counts until its holder has learned of it
	// from Extend or a refused Settle, or its lease has ended. A Forward takes no slot, but a Wait for it lasts while
	// all are taken.
	Concurrency int
	// Rate limits how many messages may start in a span of time. The zero Rate is no limit.
	Rate Rate
	// Fair has keys take turns: of the keys that wait and may start, the one with the fewest starts for its weight goes
	// next. A key that begins to wait counts as if it had just started a message together with the key that went last.
	// So it has no credit for the time in which it was idle. It starts after at most one message of each waiting key of
	// its weight, and each of them goes on after one message of it, so a stream of new keys starves no other.
	//
	// Any field of Key implies Fair. Messages of a key are claimed in order of due time, then id; messages that were sent
	// without a delay while the queue had an Order keep it. Engines sort ready messages by key in bounded steps, in the
	// order of due times: a message takes part in the turns when a Claim has sorted it. A message that expires while its
	// key waits dies when it is next.
	Fair bool
	// Urgency lets messages have an Urgency, and implies Fair. Of the messages that may start, one of UrgencyHigh goes
	// first, then one of UrgencyNormal, and one of UrgencyLow last; NormalEvery and LowEvery say how often the others
	// go nevertheless. Keys take turns among the messages of each urgency by themselves. The limits of a key count its
	// messages of all urgencies. The messages of a key with an Order start in their order, whatever their urgency: the
	// key takes its turn with the urgency of its next message.
	//
	// A message has the urgency with which it was sorted, by a Claim or by the Send that gave it its place in an Order,
	// also after a change of the Flow. Messages sorted while the Flow had no Urgency are of UrgencyNormal. Which
	// urgency goes next begins anew when a Flow becomes Fair.
	Urgency bool
	// Key limits the messages of each key.
	Key KeyFlow
}

// Rate is a limit of starts: in any span of time t at most Burst + N·t/Per messages start, repeated attempts included.
// A message that is released has started nevertheless. The time is the engine's clock, in microseconds.
//
// Under a lower rate, starts of the burst that were used up stay used up; under a higher one, the next start is allowed
// no later than before.
//
// It is the generic cell rate algorithm (GCRA, ITU-T I.371): the queue keeps the time of the next start as if all
// starts were spaced evenly, and a start is allowed from Burst-1 intervals before it. A start that finds this time
// further ahead than Burst intervals counts from Burst intervals ahead, so that a clock that is set back does not stall
// the queue.
type Rate struct {
	N     int           // 1 to MaxRate; 0 in the zero Rate
	Per   time.Duration // MinInterval·N to MaxPeriod, in whole microseconds
	Burst int           // how many may start at once, 1 to MaxRate, with Burst·Per/N up to MaxPeriod; 0 means 1
}

// FlowState is a Flow with the state that its limits have now.
type FlowState struct {
	Flow // Normal
	// Leased is how many messages count against Concurrency. It is 0 in a plain queue.
	Leased int
	// Next is when the rate allows the next start: Now if a message may start at once, and zero without a rate.
	Next time.Time
	// Keys counts the keys that wait. It is zero unless the queue is Fair.
	Keys KeyCounts
	// Now is the engine's clock in whole microseconds.
	Now time.Time
}

// Limited reports whether there is a limit.
func (f Flow) Limited() bool { return f != Flow{} }

// HoldsBack reports whether the limits of the queue let no message start now.
func (s FlowState) HoldsBack() bool {
	return s.Concurrency > 0 && s.Leased >= s.Concurrency || s.Next.After(s.Now)
}

// KeysHoldBack reports whether keys wait, and the limits of keys let none of them start a message now.
func (s FlowState) KeysHoldBack() bool {
	return s.Keys.Waiting > 0 && s.Keys.Full+s.Keys.Resting >= s.Keys.Waiting
}

// Normal returns f as engines keep it: the burst of a rate is 1 instead of 0, and a flow with limits of keys is Fair
// and has a weight, and so is one with Urgency.
func (f Flow) Normal() Flow {
	f.Rate = f.Rate.Normal()
	if f.Fair = f.Fair || f.Urgency || f.Key != (KeyFlow{}); f.Fair {
		f.Key = f.Key.Normal()
	}
	return f
}

// Normal returns r as engines keep it: the burst is 1 instead of 0.
func (r Rate) Normal() Rate {
	if r.N != 0 && r.Burst == 0 {
		r.Burst = 1
	}
	return r
}

// Version returns a text that is different for another flow.
func (f Flow) Version() string {
	f = f.Normal()
	text := fmt.Sprintf("%d-%s", f.Concurrency, f.Rate.version())
	if f.Fair {
		text += fmt.Sprintf("-%d-%s-%d", f.Key.Concurrency, f.Key.Rate.version(), f.Key.Weight)
		if f.Key.Order != OrderNone {
			text += "-" + string(f.Key.Order)
		}
		if f.Urgency {
			text += "-urgency"
		}
	}
	return text
}

func (r Rate) version() string {
	return fmt.Sprintf("%d-%d-%d", r.N, r.Per.Microseconds(), r.Burst)
}

// CheckFlow returns an ErrInvalid unless Store.SetFlow accepts f for the queue: f passes Check, and the queue is not
// one of Later's own.
func CheckFlow(queue string, f Flow) error {
	if prefix, _ := reserved.Cut(queue); prefix != "" {
		return Field("queue", Invalid("queue %q is one of Later's own, which have no limits: give another queue",
			queue))
	}
	return f.Check()
}

// Check returns an ErrInvalid unless f can be set.
func (f Flow) Check() error {
	if f.Concurrency < 0 || f.Concurrency > MaxConcurrency {
		return Field("concurrency", Invalid("concurrency is %d: must be 1 to %d, or 0 for no limit", f.Concurrency,
			MaxConcurrency))
	}
	if err := Field("rate", f.Rate.Check()); err != nil {
		return err
	}
	return Field("key", f.Key.Check())
}

// Check returns an ErrInvalid unless r is the zero Rate or one that can be set.
func (r Rate) Check() error {
	if r == (Rate{}) {
		return nil
	}
	if r.N < 1 || r.N > MaxRate {
		return Field("n", Invalid("rate is %d messages: must be 1 to %d, or have no period and burst for no limit", r.N,
			MaxRate))
	}
	if shortest := time.Duration(r.N) * MinInterval; r.Per < shortest || r.Per > MaxPeriod {
		return Field("per", Invalid("period of the rate is %v: must be %v, which is %v a message, to %v", r.Per,
			shortest, MinInterval, MaxPeriod))
	}
	if r.Per%time.Microsecond != 0 {
		return Field("per", Invalid("period of the rate is %v: must be whole microseconds", r.Per))
	}
	if r.Burst < 0 || r.Burst > MaxRate {
		return Field("burst", Invalid("burst of the rate is %d: must be 1 to %d, or 0 for 1", r.Burst, MaxRate))
	}
	if most := r.maxBurst(); r.Burst > most {
		return Field("burst", Invalid("burst of the rate is %d: must be 1 to %d, which gather in %v", r.Burst, most,
			MaxPeriod))
	}
	return nil
}

// maxBurst returns how many starts gather in MaxPeriod, up to MaxRate. Every rate has room for a burst of N.
func (r Rate) maxBurst() int {
	hi, lo := bits.Mul64(uint64(MaxPeriod/time.Microsecond), uint64(r.N))
	per := uint64(r.Per / time.Microsecond)
	if hi >= per {
		return MaxRate
	}
	most, _ := bits.Div64(hi, lo, per)
	return int(min(most, MaxRate))
}

// String returns the rate as text, such as "100/1s" or, with a burst, "100/1s burst 10". The zero Rate is "".
func (r Rate) String() string {
	if r == (Rate{}) {
		return ""
	}
	per := r.Per.String()
	for _, zero := range []string{"m0s", "h0m"} { // 1h0m0s is 1h
		if strings.HasSuffix(per, zero) {
			per = per[:len(per)-2]
		}
	}
	text := strconv.Itoa(r.N) + "/" + per
	if r.Burst > 1 {
		text += " burst " + strconv.Itoa(r.Burst)
	}
	return text
}
