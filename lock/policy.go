package lock

import "time"

// Policy decides about a message while another message holds its lock. The zero value is Fail. A lock server that
// cannot be reached counts as a held lock.
type Policy struct {
	kind  policyKind
	limit time.Duration // of Wait and Later: how long a message waits in all
	delay time.Duration // of Later
}

type policyKind int

const (
	fail policyKind = iota
	wait
	requeue
)

// defaultLimit is how long a message of Later waits in all.
const defaultLimit = time.Hour

// Fail returns the policy that fails the attempt with ErrHeld, so that the message is retried after the worker's
// backoff.
func Fail() Policy { return Policy{} }

// Wait returns the policy that waits for the lock while the worker keeps the message's lease, and fails the attempt
// after max.
//
// So that waiting for one key does not delay other messages, at most one message of a key waits in a handler, and at
// most half of the worker's handlers wait. Further messages are snoozed until their turn is near, which does not count
// as an attempt; the time counts towards max.
func Wait(max time.Duration) Policy { return Policy{kind: wait, limit: max} }

// Later returns the policy that snoozes the message for delay, which does not count as an attempt. A delay below 10 ms
// means 10 ms. A message that has waited for an hour fails the attempt, and then waits again; Policy.For sets another
// limit.
func Later(delay time.Duration) Policy {
	return Policy{kind: requeue, delay: max(delay, minDelay), limit: defaultLimit}
}

// For returns the policy with another limit for how long a message waits in all before its attempt fails. It is counted
// by each process from when the process first found the lock held.
func (p Policy) For(limit time.Duration) Policy {
	p.limit = limit
	return p
}
