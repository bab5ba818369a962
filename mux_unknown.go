package later

import "time"

// UnknownPolicy is what a Mux does with messages that no pattern matches, with or without a kind. For each kind, the
// worker's logger gets a warning about once a minute, which names the queue, the kind and the patterns of the mux.
type UnknownPolicy uint8

// The policies for messages of unknown kinds.
const (
	// UnknownRelease gives the message back for another version of the program, which handles the kind; see GiveBack.
	// It does so for as long as it takes, and WorkerConfig.GiveBackFor has no effect. Each time costs a claim and a
	// settle. As after any Snooze, the message's expiry no longer counts.
	//
	// A kind that nobody handles, such as a mistyped one, shows in Info.LastError, Queue.Explain and WorkerInfo.GivenBack.
	UnknownRelease UnknownPolicy = iota
	// UnknownFail makes the attempt fail. The message is retried after the backoff, and dead after its last attempt.
	UnknownFail
	// UnknownBury moves the message to dead at once.
	UnknownBury
)

// unknown returns the result of a message whose kind has no handler.
func (d *dispatcher) unknown(m *Message) error {
	err := &giveBack{unknown: true}
	why := misfitOf(m.Headers, err)
	err.err = unknownError(why.kind)
	switch d.policy {
	case UnknownFail:
		d.misfits.seen(why, "their attempts fail", err, time.Now())
		return err.err
	case UnknownBury:
		d.misfits.seen(why, "they are dead", err, time.Now())
		return Bury(err.err)
	}
	return err
}
