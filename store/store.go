// Package store is the contract between Later and the engines that keep its messages: the Store interface,
// its types, its errors and its limits. An engine can be written from this package alone and proved with
// store/storetest. The package imports nothing but the standard library.
//
// # States
//
// A living message of a queue is in exactly one state: scheduled (not yet due), ready (due and unclaimed),
// leased (held by a worker) or dead (set aside). Acked, cancelled and purged messages are gone. Scheduled and
// ready differ only by the clock; no transition leads from one to the other.
//
// # Time
//
// An engine has one clock and counts whole milliseconds of it. Delays are added to that clock inside the
// engine, in the same atomic step as the transition, so no caller's clock matters. Durations and times that
// come in are rounded up to a millisecond, and a delay counts from the end of the current one, so nothing is
// ever early; without a delay a message is due in the current millisecond, which is at once.
//
// # Atomicity
//
// Every call on one queue is one atomic step (Send, Settle and the like are atomic for each message, and no
// message is ever between two states). A call checks all it needs before its first write. Calls are bounded:
// callers pass at most MaxBatch items, and an engine does a bounded amount of housekeeping on top.
//
// # Retries
//
// A call whose reply was lost may be repeated by the engine itself with the same identifiers, and must then
// have the effect of one call, whichever of its tries arrives when: a call that was done before does nothing and answers
// as it did, whatever others have changed since. An error from a call means: nothing is known about its effect unless the error
// says otherwise; repeating it with the same ids is safe.
//
// Input was checked by the functions of this package (CheckQueue, CheckID, Outgoing.Check and so on) before
// it reaches an engine; an engine need not check it again.
package store

import (
	"context"
	"time"
)

// Store is an engine: durable or not, local or remote. All methods may be called from many goroutines.
// After Close every method returns ErrClosed.
type Store interface {
	// Send adds messages that fall due at their Due. An id that is living in the queue, or still remembered,
	// changes nothing and is reported by SendResult.Duplicate. A duplicate id within msgs counts too: the
	// first wins. Send wakes a waiter when one of the messages became the queue's earliest.
	//
	// All messages of one Send have the same Durable; see Durability.
	Send(ctx context.Context, queue string, msgs []Outgoing) ([]SendResult, error)

	// Claim takes up to req.Max ready messages, earliest due first (ties by id), under one new lease of the
	// length req.Lease. Before that it does a bounded part of the housekeeping: leases whose deadline has
	// passed end, and each of their messages counts a failed attempt and becomes ready again with the
	// deadline as its due time, or dead when it has no attempt left. A claimable message whose expiry has
	// passed and that was never delivered goes to dead as DeadExpired instead of being claimed; one that
	// cannot be read goes to dead as DeadUnreadable with its bytes. A paused queue gives nothing,
	// and nothing expires there, but leases end.
	// The reply's payload bytes are bounded by about MaxBatchBytes, but at least one message is given.
	Claim(ctx context.Context, queue string, req ClaimRequest) (Claim, error)

	// Settle ends the holding of messages. Results come in the order of s. A message that is not held under
	// its receipt (its lease has expired or ended, it was settled already, cancelled or purged) is refused
	// with ErrLeaseLost in its result and nothing changes.
	Settle(ctx context.Context, queue string, s []Settlement) ([]SettleResult, error)

	// Extend moves the deadline of leases to the engine's now plus Extension.For. The result lists the
	// messages of the lease that were cancelled meanwhile (Lost); a lease that has expired or ended, or of which
	// all messages were cancelled, is refused with ErrLeaseLost in its result, with Lost besides.
	Extend(ctx context.Context, queue string, e []Extension) ([]ExtendResult, error)

	// Wait blocks until a Claim on the queue may give something where the last one came back with fewer than
	// it asked for. It may return early for no reason; it must return within a few seconds of a message
	// being ready, even if every hint was lost. It does not poll. It returns ctx's cause when ctx ends.
	Wait(ctx context.Context, queue string) error

	// Cancel removes living messages, whatever their state, and tells the state each was in; a leased one is
	// no longer redelivered and its holder learns of it by Extend. An unknown id has ErrNotFound in its result.
	Cancel(ctx context.Context, queue string, ids []string) ([]CancelResult, error)

	// Reschedule gives scheduled and ready messages a new due time; attempts are kept. The error for each id
	// is nil, ErrNotFound, ErrLeased, or ErrDead (a dead message is replayed, not rescheduled).
	Reschedule(ctx context.Context, queue string, ids []string, due Due) ([]error, error)

	// Get tells what is known of messages; an unknown id gives nil.
	Get(ctx context.Context, queue string, ids []string) ([]*Info, error)

	// List gives one page of the messages in a state: scheduled and ready by due time, dead by time of death,
	// leased by lease. A message that stays in the state during the listing appears in it exactly once
	// (leased: at least once); others may or may not appear.
	List(ctx context.Context, queue string, req ListRequest) (Page, error)

	// Restore adds messages as Get or List told of them, of this store or another: with their due time, failed
	// attempts, last error and, for dead ones, reason and time of death. A leased one is added as if it had been
	// released, scheduled or ready by its Due. As with Send, an id that is living or remembered changes nothing and is
	// reported by SendResult.Duplicate, the first of equal ids within msgs wins, waiters wake, and a store without
	// room refuses the call with ErrFull. Times are kept as they are, save for a time of death that this store's clock
	// has not reached, which becomes now. The infos were checked by Info.Check; they are MaxBatch at most, of
	// MaxBatchBytes by Info.Size (one alone may be larger).
	Restore(ctx context.Context, queue string, msgs []Info) ([]SendResult, error)

	// Remove removes messages that are still as Get or List of this store told of them, by Info.Same, at most MaxBatch. What
	// has changed since then, is leased, or is gone is left alone and has false in the result.
	Remove(ctx context.Context, queue string, msgs []Info) ([]bool, error)

	// Replay makes dead messages live again at due, with their attempts back at zero; an expiry they had no
	// longer counts. One call handles a bounded number; see Bulk.
	Replay(ctx context.Context, queue string, sel Selection, due Due) (Bulk, error)

	// Purge removes messages. One call handles a bounded number; see Bulk.
	Purge(ctx context.Context, queue string, sel Selection) (Bulk, error)

	// Stats counts a queue's messages by state, in O(log n). A queue that never had a message is all zero.
	Stats(ctx context.Context, queue string) (Stats, error)

	// Histogram counts the scheduled and ready messages that fall due in each of `buckets` equal parts of
	// [from, to); 1 <= buckets <= MaxBuckets, and a part is at least a millisecond.
	Histogram(ctx context.Context, queue string, from, to time.Time, buckets int) ([]int64, error)

	// SetPaused stops or allows claims on the queue, creating it if need be. Leases that are out stay valid.
	SetPaused(ctx context.Context, queue string, paused bool) error

	// Queues gives a page of the names of queues that exist, in no order, and the cursor of the next page,
	// "" when there is none. A queue exists from its first message or pause until it is deleted.
	Queues(ctx context.Context, cursor string) (names []string, next string, err error)

	// Delete removes a queue with all its messages, leases, remembered ids and settings. Deleting what does
	// not exist is no error.
	Delete(ctx context.Context, queue string) error

	// Close frees what the store opened itself, ends every Wait with ErrClosed, and returns when its
	// goroutines have ended.
	Close() error
}

// State is where a living message is.
type State string

// The states of a message. A message that is not living has StateNone.
const (
	StateNone      State = ""
	StateScheduled State = "scheduled"
	StateReady     State = "ready"
	StateLeased    State = "leased"
	StateDead      State = "dead"
)

// Due says when a message falls due: at At if that is not zero, else Delay after the engine's now. A time that
// has passed means at once, and At is kept as it is, so the message is ahead of those due later.
type Due struct {
	Delay time.Duration
	At    time.Time
}

// Message is what the sender gave.
type Message struct {
	ID      string
	Payload []byte
	Headers map[string]string

	// MaxAttempts is the number of failed attempts after which the message is dead; 0 means DefaultMaxAttempts.
	MaxAttempts int
	// Timeout limits one run of the handler; 0 means the worker's limit. Engines keep it and do not act on it.
	Timeout time.Duration
	// ExpireAfter and ExpireAt send a message that has not been delivered so long after its due time, or by
	// that time, to dead. At most one of them is set.
	ExpireAfter time.Duration
	ExpireAt    time.Time
	// Remember is how long the id is refused after the message was acked; 0 means not at all.
	Remember time.Duration
	// SentAt is the sender's clock at Send, in milliseconds. It is set when the sender chose the id itself;
	// an id made by NewID carries its time.
	SentAt time.Time
}

// Outgoing is a message to send.
type Outgoing struct {
	Message
	Due Due
	// Durable is how safe the message must be before Send returns; the zero value asks for no more than what
	// the engine gives always.
	Durable Durability
}

// Durability is how safe a message must be before its Send is over. An engine that can never give it refuses
// the Send whole with ErrUnsupported, naming what is missing. Else the message is written first and then
// confirmed; a message that was written but not confirmed in time has ErrNotDurable in its SendResult, with a
// text that says how far it got, and stays.
//
// What is confirmed of a duplicate is the message that is there: all that the engine did before. So a Send that
// is repeated with the same id after ErrNotDurable confirms the first one's write, and tells Duplicate.
type Durability struct {
	// Replicas is the number of replicas that must have the message, 0 to MaxReplicas. With 0 it must have
	// reached the disk of the server, or of the machine, itself.
	Replicas int
	// Timeout is how long the confirmation may take once the message is written, MinConfirm to MaxConfirm; with
	// 0, and Replicas 0 too, nothing is asked for. An engine that is durable before it answers does not need it.
	Timeout time.Duration
}

// SendResult tells what became of one message of a Send.
type SendResult struct {
	// Duplicate: the id is living (or remembered) and nothing was changed.
	Duplicate bool
	// Err is ErrNotDurable when the message is there but not confirmed as durable as was asked, else nil.
	Err error
}

// ClaimRequest asks for messages.
type ClaimRequest struct {
	Max   int           // 1 to MaxBatch
	Lease time.Duration // MinLease to MaxLease
	// Buffer is memory that Claim.Messages may use, so that who claims again and again need not have it made anew each
	// time; what is in it is overwritten. It may be nil.
	Buffer []Claimed
}

// Claim is what a Claim gave.
type Claim struct {
	Messages []Claimed
	// Now is the engine's clock at the claim.
	Now time.Time
	// Deadline is when the lease ends unless it is extended; zero when Messages is empty.
	Deadline time.Time
	// More: the claim gave all that was asked for, or reached its bound, and more may be ready.
	More bool
	// Died lists the ids that this claim moved to dead, and Expired those of Died that had expired.
	Died    []string
	Expired []string
}

// Claimed is a message under a lease.
type Claimed struct {
	Message
	Receipt Receipt
	Due     time.Time
	Attempt int // 1 at first; failed attempts so far plus one
}

// Receipt is what the holder of a message shows to settle it.
type Receipt struct {
	Lease string
	ID    string
	Epoch int64
	// Claim is the engine's own note on the claim, the same for all its messages, and Index the message's place in
	// it, below MaxBatch. They make settling cheaper; both may be zero.
	Claim any
	Index int
}

// Action is a way to settle a message.
type Action uint8

// The ways to settle a message.
const (
	// Ack: done; the message is gone.
	Ack Action = iota + 1
	// Nack: the attempt failed; again after Delay, or dead as DeadFailed when it was the last one.
	Nack
	// Snooze: again after Delay; not an attempt.
	Snooze
	// Release: given back untouched, with its old due time; not an attempt and not a delivery.
	Release
	// Bury: to dead as DeadBuried; counts as an attempt.
	Bury
)

// Settlement settles one message.
type Settlement struct {
	Receipt Receipt
	Action  Action
	Delay   time.Duration // Nack, Snooze
	Reason  string        // Nack, Bury: the error, cut to MaxReason bytes by CutReason
	// Remember repeats Message.Remember for an Ack, so that engines need not read the message again.
	Remember time.Duration
}

// SettleResult tells what became of one message of a Settle.
type SettleResult struct {
	// State is the message's state afterwards; StateNone when it is gone or Err is set.
	State State
	Err   error
}

// Extension asks for more time for a lease.
type Extension struct {
	Lease string
	For   time.Duration
}

// ExtendResult answers one Extension.
type ExtendResult struct {
	Deadline time.Time
	Lost     []Receipt
	Err      error
}

// CancelResult answers for one id of a Cancel.
type CancelResult struct {
	State State
	Err   error
}

// DeadReason is why a message is dead.
type DeadReason string

// The reasons for which a message is set aside.
const (
	DeadFailed       DeadReason = "failed"        // its last attempt was nacked
	DeadLeaseExpired DeadReason = "lease_expired" // its last attempt never came back
	DeadBuried       DeadReason = "buried"        // Bury
	DeadExpired      DeadReason = "expired"       // not delivered before its expiry
	DeadUnreadable   DeadReason = "unreadable"    // the engine holds bytes that it cannot read as a message
)

// Info is what is known of a living message.
type Info struct {
	Message
	State State
	// Due is when the message falls, or last fell, due.
	Due time.Time
	// Attempts counts the failed attempts so far.
	Attempts int
	// Delivered: the message came back from a worker otherwise than by Release, or was replayed, so that its expiry no
	// longer counts.
	Delivered bool
	// LeaseDeadline is when the holder's lease ends, for a leased message.
	LeaseDeadline time.Time
	// LastError tells of the last failure: the reason given with a nack or bury, cut to MaxReason bytes, or
	// LeaseExpiredText, ExpiredText or UnreadableText.
	LastError string
	// DeadReason and DiedAt are set for a dead message.
	DeadReason DeadReason
	DiedAt     time.Time
	// Raw is the bytes of an unreadable message; then ID is set and the other parts of Message are not.
	Raw []byte
}

// ListRequest asks for a page of a listing.
type ListRequest struct {
	State State
	// From and To limit the due time (for dead: the time of death) to [From, To); a zero one does not limit.
	From, To time.Time
	Cursor   string // "" for the first page, else Page.Next
	Limit    int    // 1 to MaxBatch; a page may be shorter
}

// Page is one page of a listing.
type Page struct {
	Messages []Info
	Next     string // "" when this was the last page
}

// Selection names messages for Replay (dead ones) and Purge.
type Selection struct {
	// IDs names up to MaxBatch dead messages. When it is empty all of State are meant.
	IDs []string
	// State is StateDead for Replay; for Purge StateScheduled, StateReady or StateDead, or StateNone for every
	// message of the queue, leased ones too (their holders learn of it as of a lost lease).
	State State
	// Before is zero in the first call and Bulk.Before in the following ones: messages that fell due or died
	// after the first call are left alone, so that the loop ends.
	Before time.Time
}

// Bulk tells how far a Replay or Purge got. While More is set, call again with Before.
type Bulk struct {
	Done   int
	More   bool
	Before time.Time
}

// Stats counts a queue's messages.
type Stats struct {
	Scheduled, Ready, Leased, Dead int64
	// NextDue is the due time of the earliest message that is scheduled or ready; zero when there is none.
	NextDue time.Time
	Paused  bool
	// Exists is false for a queue that had no message and no pause since it was deleted, or ever.
	Exists bool
	// Now is the engine's clock.
	Now time.Time
}

// The error texts that every engine gives to what dies without a handler's word.
const (
	LeaseExpiredText = "lease expired: its worker died or stalled"
	ExpiredText      = "expired: not delivered in time"
	UnreadableText   = "unreadable: these bytes are no message of this version"
)
