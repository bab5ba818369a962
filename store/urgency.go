package store

import "github.com/laterq/later/internal/reserved"

// Urgency says which messages of a queue go before others, where the Flow has Urgency.
type Urgency string

// The urgencies of a message.
const (
	UrgencyNormal Urgency = ""
	UrgencyHigh   Urgency = "high"
	UrgencyLow    Urgency = "low"
)

// Shares of the starts of a queue that more urgent messages leave to others.
const (
	NormalEvery = 8  // of so many starts in a row at least one is of UrgencyNormal, while such a message may start
	LowEvery    = 64 // of so many starts in a row at least one is of UrgencyLow, while such a message may start
)

// Check returns an ErrInvalid unless u is one of the urgencies.
func (u Urgency) Check() error {
	switch u {
	case UrgencyNormal, UrgencyHigh, UrgencyLow:
		return nil
	}
	return Field("urgency", Invalid("urgency is %q: must be %q, %q or empty for normal", string(u), UrgencyHigh,
		UrgencyLow))
}

// UrgencyOf returns the urgency with which a message of the queue starts: UrgencyNormal unless the Flow has Urgency.
func (f *Flow) UrgencyOf(m *Message) Urgency {
	if !f.Urgency {
		return UrgencyNormal
	}
	return m.Urgency
}

// AsksUrgency returns the urgency that the queue of the message has to have: UrgencyNormal if any queue takes it.
func (o *Outgoing) AsksUrgency() Urgency {
	if o.Relayed {
		return UrgencyNormal
	}
	return o.Urgency
}

// CheckUrgency returns an ErrInvalid unless the message may be sent to a queue with the flow: only a Flow with Urgency,
// and the queues of Later's own, take another urgency than UrgencyNormal of a message that is not Relayed.
func CheckUrgency(queue string, f *Flow, o *Outgoing) error {
	if o.AsksUrgency() == UrgencyNormal || f.Urgency || UrgencyKept(queue) {
		return nil
	}
	return NoUrgency(queue, o.Urgency)
}

// UrgencyKept reports whether a queue without a Flow takes messages of any urgency: one of Later's own does, because it
// passes them on to others.
func UrgencyKept(queue string) bool {
	prefix, _ := reserved.Cut(queue)
	return prefix != ""
}

// NoUrgency returns the ErrInvalid of a message with an urgency in a queue whose Flow has none.
func NoUrgency(queue string, u Urgency) error {
	return Field("urgency", Invalid("urgency is %q, and messages of queue %q have none: leave it out, or set the flow "+
		"of the queue first, with Urgency", string(u), queue))
}
