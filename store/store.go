// Package store is the contract between Later and its engines: the Store interface with its types, errors and limits.
// An engine can be written from this package alone; store/storetest proves that it keeps the contract. Start reading
// at Store. Of Later, the package imports only internal/reserved, the names of Later's own queues.
//
// # States
//
// A live message is in exactly one state: scheduled (not yet due), ready (due and not held), leased (held by a worker)
// or dead (set aside). Acked, cancelled and purged messages no longer exist. Only the clock separates scheduled from
// ready: no transition leads from one to the other.
//
// # Time
//
// An engine has one clock and counts it in whole milliseconds. It adds delays to that clock itself, in the same atomic
// step as the transition, so no caller's clock matters. Durations and times that callers pass in are rounded up to a
// whole millisecond, and a delay counts from the end of the current millisecond, so nothing is ever early. A message
// without a delay is due in the current millisecond, that is, at once.
//
// # Atomicity
//
// Every call on one queue is one atomic step. Send, Settle and the other calls that take several messages are atomic
// for each message; no message is ever between two states. A call checks everything it needs before its first write.
// Calls are bounded: callers pass at most MaxBatch items, and an engine adds a bounded amount of housekeeping.
//
// # Retries
//
// An engine may itself repeat a call after its reply was lost, with the same identifiers. Together the attempts must
// have the effect of one call, even if they arrive in another order. An attempt that finds the call already executed
// changes nothing and returns the original result, even if other callers have changed the messages since. For a Claim
// that is the messages that the lease still holds; see Store.Claim. A server that repeats calls for others names them
// with WithRequest.
//
// If a call returns an error, its effect is unknown unless the error says otherwise. Repeating it with the same ids is
// safe.
//
// # Input
//
// Callers check their input with the functions of this package (CheckQueue, CheckID, Outgoing.Check and so on) before
// it reaches an engine, and an engine need not check it again. A call that may create a queue needs CheckNewQueue:
// Send, Restore, Forward, follow-ups, SetPaused, SetDeadRetention, SetFlow and SetProperties. An engine itself refuses
// input that could be executed wrongly: a Selection that fails Selection.CheckReplay or Selection.CheckPurge, a
// Retention, Flow, KeyOverride, KeysRequest, ListRequest or Action that fails its check, and a cursor that it did not
// return. All are ErrInvalid and change nothing.
package store

import (
	"context"
	"fmt"
	"time"
)

// Store is an engine: durable or not, local or remote.
//
// All methods are safe for concurrent use. After Close every other method returns ErrClosed.
type Store interface {
	// Send adds messages that fall due at their Due. If an id is live in the queue or within its dedup window,
	// nothing changes for it and its SendResult.Duplicate is set, unless its OnDuplicate says otherwise. The first
	// of equal ids within msgs wins; the others are duplicates. Results are in the order of msgs. Send notifies a
	// waiter if one of the messages becomes the queue's earliest.
	//
	// All messages of one Send have the same Durable, see Durability, and the same If. Either all or none are
	// OneByOne.
	Send(ctx context.Context, queue string, msgs []Outgoing) ([]SendResult, error)

	// Claim takes up to req.Max ready messages under one new lease of length req.Lease.
	//
	// Messages are in order of due time, then id. Their payload bytes are bounded by about MaxBatchBytes, but
	// this bound never keeps a Claim from returning one message.
	//
	// Claim first does a bounded part of the housekeeping: expired leases end. Each of their messages counts a failed
	// attempt and becomes ready again with the deadline as its due time, or dead if it has no attempt left. Messages of
	// an Uncounted lease return as they were.
	//
	// Some ready messages become dead instead of being claimed. A message that was not delivered before its expiry
	// becomes DeadExpired. One that cannot be read becomes DeadUnreadable and keeps its bytes.
	//
	// Claim then drops dead messages that exceed the queue's Retention: up to MaxBatch per call, the oldest deaths
	// first. Messages that it sets aside afterwards stay until the next one.
	//
	// On a paused queue leases still end and dead messages are dropped, but nothing is claimed and nothing expires.
	//
	// In a queue with a Flow, Claim takes up to req.Max-req.Ahead messages, and of those as many as the limits allow to
	// start. Ready messages that a limit holds back are not more to claim: More does not tell of them. All other work
	// of a Claim goes on while a limit holds messages back; messages that expired or cannot be read before the first
	// one that is held back become dead.
	//
	// In a queue with a Fair Flow, it takes messages by turns of their keys; see there. Messages of keys that may not
	// start are not more to claim either. The first message of a key whose turn has come dies if it has expired or
	// cannot be read, and does not use up the turn; until then it may stay. More is set too if unsorted messages are
	// left, even if no message may start.
	//
	// A repeated Claim returns the messages that its lease still holds, as they were when they were claimed, even if
	// they have got successors since. It leaves out cancelled messages, which stay in the lease until the next Extend
	// reports them, and unreadable ones. It settles nothing, because the holder may have the reply to another attempt
	// and be working on the messages.
	Claim(ctx context.Context, queue string, req ClaimRequest) (Claim, error)

	// Settle ends the holding of messages. Results are in the order of s. A message that is not held under its
	// receipt, because the lease has expired or ended or because the message was already settled, cancelled or
	// purged, has ErrLeaseLost in its result and does not change.
	//
	// An Ack writes its follow-ups in the same step, and none if it is refused. A follow-up with an id that is live or
	// within its dedup window in its queue is left out, and so is one that has the id of an earlier one. A follow-up in
	// the same queue may have the id of the message itself: it takes its place, unless the message has a successor. If
	// the follow-ups of an Ack find no room, it has ErrFull in its result, and its message stays held. Follow-ups
	// notify waiters as messages of Send do. A Settlement that fails CheckThen has its error in its result and changes
	// nothing.
	//
	// A Settlement with an If that is not met has ErrConflict in its result, whether or not its message is held, and
	// changes nothing.
	Settle(ctx context.Context, queue string, s []Settlement) ([]SettleResult, error)

	// Extend moves the deadline of leases to the engine's now plus Extension.For, which changes nothing if it is 0: the
	// call then only reports cancelled messages. Results are in the order of e.
	//
	// ExtendResult.Lost lists the messages of the lease that were cancelled since its last Extend, each once. An engine
	// may leave out a message if a Settle of it was refused since then, and may leave more than MaxBatch of one call to
	// the next Extend; until then they count as remaining. If all remaining messages of the lease were cancelled, the
	// lease ends and the result has both Lost and ErrLeaseLost. A lease that has expired or ended has ErrLeaseLost in
	// its result, without Lost. A message that was purged may be in Lost too, if it counts against a Flow.
	Extend(ctx context.Context, queue string, e []Extension) ([]ExtendResult, error)

	// Wait blocks until a Claim on the queue may return messages.
	//
	// In a queue with a Flow it returns when a message is ready and the limits allow a start: at the time when the rate
	// does, in microseconds rounded up to the next time that a timer can fire, or when a message no longer counts,
	// whichever process caused that. Of the calls that wait, only as many return as messages can start.
	//
	// It is called after a Claim that returned fewer messages than it asked for. It may return early for no
	// reason. It returns within a few seconds of a message becoming ready, even if every notification is lost, or
	// within about a minute if ctx is Patient. It does not poll. When ctx ends it returns the context's cause.
	Wait(ctx context.Context, queue string) error

	// Cancel removes live messages in any state and returns the state each was in. A leased message is not
	// delivered again, and its holder learns of the cancellation from Extend. An unknown id has ErrNotFound in
	// its result. Results are in the order of req.IDs. A successor is removed with the message that it follows.
	Cancel(ctx context.Context, queue string, req CancelRequest) ([]CancelResult, error)

	// Reschedule sets a new due time for scheduled and ready messages and keeps their attempts. The error for
	// each id, in the order of ids, is nil, ErrNotFound, ErrLeased or ErrDead. Dead messages are replayed
	// instead.
	Reschedule(ctx context.Context, queue string, ids []string, due Due) ([]error, error)

	// Get returns the Info of messages, in the order of ids. The entry of an unknown id is nil.
	Get(ctx context.Context, queue string, ids []string) ([]*Info, error)

	// List returns one page of the messages in a state or group. Scheduled and ready messages are in order of due time,
	// dead ones in order of time of death, leased ones by lease, and messages of a group by id. A message that stays in
	// the state or group throughout the listing appears exactly once (if leased and listed by state, at least once);
	// others may or may not appear. The cost of a page of a group does not depend on the number of other messages,
	// except that the leases of the queue are searched for members that are leased.
	List(ctx context.Context, queue string, req ListRequest) (Page, error)

	// Restore adds messages as Get or List returned them, from this store or another. It keeps their due time, failed
	// attempts and last error and, for dead ones, their reason and time of death. A leased message is added as if it
	// had been released: scheduled or ready, according to its Due. If it has a successor, the successor is added
	// instead.
	//
	// Results are in the order of msgs. Duplicates are treated as by Send: if an id is live or within its dedup
	// window, nothing changes for it and its SendResult.Duplicate is set, and the first of equal ids within msgs
	// wins. Restore notifies waiters as Send does. A store without room returns ErrFull and may have added some.
	// Times are kept as they are, except that a time of death which this store's clock has not reached becomes
	// now. Info.Raw is kept byte by byte; an engine that can read it, because it knows more formats than the one
	// that could not, has a readable message from then on.
	//
	// Callers check every Info with Info.CheckNew. They pass at most MaxBatch messages of at most MaxBatchBytes in
	// total by Info.Size; a single message may be larger.
	Restore(ctx context.Context, queue string, msgs []Info) ([]SendResult, error)

	// Remove removes messages that are unchanged since Get or List of this store returned them.
	//
	// Info.Same decides whether a message has changed. A message that has changed, is leased or is gone is left alone
	// and has false in the result. Results are in the order of msgs. Callers pass at most MaxBatch messages.
	Remove(ctx context.Context, queue string, msgs []Info) ([]bool, error)

	// Replay makes dead messages live again at due, with no failed attempts. Their expiry no longer counts. One
	// call does a bounded amount of work; see Bulk. It returns ErrInvalid if sel fails Selection.CheckReplay.
	Replay(ctx context.Context, queue string, sel Selection, due Due) (Bulk, error)

	// Purge removes messages. One call does a bounded amount of work; see Bulk. It returns ErrInvalid if sel
	// fails Selection.CheckPurge.
	Purge(ctx context.Context, queue string, sel Selection) (Bulk, error)

	// Stats counts a queue's messages by state, in O(log n). The counts of a queue that never had a message are
	// zero.
	Stats(ctx context.Context, queue string) (Stats, error)

	// Histogram counts scheduled and ready messages by due time.
	//
	// It returns the number that fall due between each of the bounds (inclusive) and the next one (exclusive). The
	// caller has checked them with CheckBounds.
	Histogram(ctx context.Context, queue string, bounds []time.Time) ([]int64, error)

	// SetPaused stops or allows claims on the queue and creates the queue if necessary. Current leases stay
	// valid.
	SetPaused(ctx context.Context, queue string, paused bool) error

	// SetDeadRetention limits the dead messages that the queue keeps and creates the queue if necessary. Claims enforce
	// it, so a queue without claims keeps its dead messages. Stats returns it. It returns ErrInvalid if r fails
	// Retention.Check.
	//
	// If former is not nil and the queue has another retention, as Stats returns it, then it changes nothing and
	// returns ErrConflict. A queue that does not exist has the zero Retention.
	SetDeadRetention(ctx context.Context, queue string, r Retention, former *Retention) error

	// SetFlow limits how fast messages of the queue may start and creates the queue if necessary. The zero Flow removes
	// the limits. It returns the error of CheckFlow.
	//
	// If former is not nil and the queue has another flow, then it changes nothing and returns ErrConflict. A queue
	// that does not exist has the zero Flow. Flows are compared as Normal returns them.
	//
	// A new rate begins with a full burst. A changed one keeps the time of the next start that Rate describes, or sets
	// it to Burst of its intervals from now if that is earlier. All this holds for the rate of each key too.
	//
	// Halted keys go on when the order is another one than OrderHalt, and no message holds its key any more in a queue
	// without an order, in bounded steps as below.
	//
	// A Flow that is not Fair removes all overrides of keys, and makes sorted messages plain ones, in bounded steps. If
	// ctx ends before the last step, SetFlow returns its cause, and claims go on with the steps. Leases from before the
	// queue was Fair, or from before it was not Fair in between, do not count for their keys.
	SetFlow(ctx context.Context, queue string, f Flow, former *Flow) error

	// SetKeyFlow sets an override for one key of a Fair queue; the zero KeyOverride removes it. It returns the error of
	// CheckKeyFlow, NotFair if the queue is not Fair or does not exist, OneOfOrder for a Concurrency other than 1 in a
	// queue with an order, and TooManyKeyFlows if more than MaxKeyFlows keys would have an override.
	SetKeyFlow(ctx context.Context, queue, key string, o KeyOverride) error

	// ResumeKey lets a halted key go on with its next message; see OrderHalt. The dead message that halted it stays
	// dead. It returns the error of CheckResume, and ErrNotFound if the key is not halted.
	ResumeKey(ctx context.Context, queue, key string) error

	// Keys returns up to req.Limit keys of a Fair queue with their states, in the order of their bytes. A page may have
	// fewer keys although more follow; none follow an empty page. It is empty for a queue that is not Fair. It does not
	// sort messages: only those that claims have sorted are counted.
	Keys(ctx context.Context, queue string, req KeysRequest) ([]KeyState, error)

	// SetProperties sets properties of the queue, which are named texts that the queue keeps for the code that uses
	// it. An empty value removes a property. All are set and removed in one atomic step, which creates the queue if
	// necessary; a call that only removes does not create it. Nothing but SetProperties and Delete changes
	// properties.
	//
	// It returns the error of CheckProperties, ErrConflict if condition is not nil and not met, and the error of
	// CheckPropertyCount if the queue would have too many properties. After an error nothing has changed.
	SetProperties(ctx context.Context, queue string, set map[string]string, condition *Condition) error

	// Properties returns all properties of the queue: an empty or nil map if it has none or does not exist. The
	// caller may change the map.
	Properties(ctx context.Context, queue string) (map[string]string, error)

	// Queues returns a page of the names of existing queues, in no particular order.
	//
	// next is the cursor of the next page, or "" if there is none; the cursor of the first page is "". A queue
	// exists from its first message, pause, retention, flow or property until it is deleted.
	Queues(ctx context.Context, cursor string) (names []string, next string, err error)

	// Delete removes a queue with all its messages, leases, dedup windows, sends that it remembers by a Once, settings,
	// flow, properties and activity. It is no error to delete a queue that does not exist.
	Delete(ctx context.Context, queue string) error

	// Events report the work of the store's processes; see there.
	Events

	// Close frees the resources that the store itself opened and ends every Wait and Watcher with ErrClosed. It returns
	// when the store's goroutines have ended.
	Close() error
}

// Configured is implemented by a Store with a constructor that cannot return an error. later.New calls ConfigError.
type Configured interface {
	// ConfigError returns an ErrInvalid or ErrUnsupported if the store was constructed with arguments that are not
	// allowed.
	ConfigError() error
}

// State is where a live message is.
type State string

// The states of a message. StateNone stands for a message that is not live.
const (
	StateNone      State = ""
	StateScheduled State = "scheduled"
	StateReady     State = "ready"
	StateLeased    State = "leased"
	StateDead      State = "dead"
)

// Due is when a message falls due: at At if that is not zero, otherwise Delay after the engine's now.
//
// A delay below zero and a time in the past both mean at once. A past At is kept as it is, so the message precedes
// messages that are due later.
type Due struct {
	Delay time.Duration
	At    time.Time
}

// Outgoing is a message to send.
type Outgoing struct {
	Message
	Due Due
	// Durable is how safe the message must be before Send returns. The zero value asks for nothing beyond what
	// the engine always guarantees.
	Durable Durability
	// OnDuplicate is the effect if the id is live. The zero value changes nothing.
	OnDuplicate OnDuplicate
	// If, unless it is nil, has the message sent only while a condition on its queue is met. Otherwise ErrConflict is
	// in its SendResult and nothing changes. A message with it has neither Durable nor OnDuplicate nor Once.
	If *Condition
	// Once, unless it is nil, has repetitions of the send change nothing, for OnceWindow.
	Once *Once
	// Relayed is set if the message comes from another queue, a topic or a schedule. Its Urgency was chosen there, so
	// any queue takes it.
	Relayed bool
	// AnyID is set if the id was made for this send, and the message may have another one: a queue with several shards
	// sends it to another shard if that of the id is known not to answer. Then SendResult.First has the id.
	AnyID bool
}

// Durability is how safe a message must be before its Send returns.
//
// An engine that can never reach it refuses the whole Send with ErrUnsupported and an error text that names the missing
// part. Otherwise the message is first written and then confirmed. A message that was written but not confirmed in time
// stays in the queue and has ErrNotDurable in its SendResult, with a text that says how far it got.
//
// For a duplicate the existing message is confirmed, with everything the engine did before. A Send that is repeated
// with the same id after ErrNotDurable therefore confirms the first write and returns Duplicate.
type Durability struct {
	// Replicas is the number of replicas that must have the message, 0 to MaxReplicas. With 0 it must have
	// reached the disk of the server or of this machine.
	Replicas int
	// Timeout is how long the confirmation may take once the message is written, MinConfirm to MaxConfirm. If
	// Timeout and Replicas are both 0, no confirmation is asked for. An engine whose messages are always durable
	// before it replies does not use it.
	Timeout time.Duration
}

// SendResult is the result for one message of a Send or Restore.
type SendResult struct {
	// Duplicate is set if the id is live or within its dedup window, or if the send repeats another one; see First.
	// Nothing was changed.
	Duplicate bool
	// Replaced is set if the message took the place of the live one, or of its successor, as its OnDuplicate asked for.
	Replaced bool
	// Follows is set if the message is the successor of the one with its id that a worker holds; see OnDuplicate.
	Follows bool
	// First is the send that the Once of the message stands for: this one, or the one that it repeats. It is nil
	// without a Once, and if nothing was sent. For a message with AnyID it has the id, without a time, if that is not the
	// one of the message.
	First *FirstSend
	// Err is ErrNotDurable if the message is in the queue but not confirmed to be as durable as asked. With an
	// OnDuplicate it may be ErrLeased, ErrDead or another error, and with an If or a Once ErrConflict; then nothing was
	// changed. An engine that sends many messages in several steps sets it to the error of a step for all messages from
	// there on: after ErrFull they were not sent, after other errors they may have been. Otherwise it is nil.
	Err error
}

// Retention limits the dead messages that a queue keeps. The zero value keeps all of them for ever.
type Retention struct {
	// MaxAge is how long a message is kept after its death, 1 ms to MaxDelay; 0 is no limit. Restored messages
	// keep their time of death.
	MaxAge time.Duration
	// MaxCount is the number of dead messages that are kept, the latest deaths; 0 is no limit.
	MaxCount int64
}

// Version returns a text that is different for another retention, in whole milliseconds.
func (r Retention) Version() string { return fmt.Sprintf("%d-%d", Millis(r.MaxAge), r.MaxCount) }

// Claimed is a message under a lease.
type Claimed struct {
	Message
	Receipt Receipt
	Due     time.Time
	Attempt int // 1 for the first; the failed attempts so far plus one
	// Fence is above 0 for a message that was claimed with a key in a queue with an Order. It is larger than the Fence
	// of every earlier claim of the key, as long as the engine keeps its acknowledged writes: a resource that remembers
	// the largest Fence of a key refuses a handler that has outlived its lease. It is below 2^53.
	Fence int64
}

// Receipt is the proof that the holder of a message presents to settle it. Any process can present it.
type Receipt struct {
	Lease string // 1 to MaxLeaseName letters, digits, - and _; set by the engine
	ID    string
	Epoch int64 // set by the engine; distinguishes claims of the same id
	// Claim and Index make settling cheaper; each may be zero, and is in another process. Claim is private data of
	// the engine, the same for all messages of a claim. Index is the message's position in the claim, below
	// MaxBatch.
	Claim any
	Index int
}

// CancelRequest names the messages of a Cancel.
type CancelRequest struct {
	IDs []string
	// KeepIDs starts the dedup window of the messages, as an Ack does: until it ends their ids are refused as
	// duplicates. It has no effect on a message that has no dedup window or cannot be read.
	KeepIDs bool
}

// CancelResult is the result for one id of a Cancel.
type CancelResult struct {
	State State
	Err   error
}

// DeadReason is why a message is dead.
type DeadReason string

// The reasons why a message is dead.
const (
	DeadFailed       DeadReason = "failed"        // its last attempt was nacked
	DeadLeaseExpired DeadReason = "lease_expired" // the lease of its last attempt expired
	DeadBuried       DeadReason = "buried"        // it was buried
	DeadExpired      DeadReason = "expired"       // it was not delivered before its expiry
	// The engine cannot read its bytes as a message, or no holder could handle it; see GiveBack.
	DeadUnreadable DeadReason = "unreadable"
)

// Info describes a live message.
type Info struct {
	Message
	State State
	// Due is when the message falls due, or last fell due.
	Due time.Time
	// Attempts counts the failed attempts so far.
	Attempts int
	// Delivered is set if the message has come back from a worker other than by Release, or was replayed. Its
	// expiry then no longer counts.
	Delivered bool
	// LeaseDeadline is when the lease of a leased message ends.
	LeaseDeadline time.Time
	// Follows is set for a leased message that has a successor; see OnDuplicate. State and LeaseDeadline are of the
	// message that a worker holds, and all other fields of the successor.
	Follows bool
	// LastError describes the last failure: the reason of a nack, bury or give back, cut to MaxReason bytes, or
	// LeaseExpiredText, ExpiredText or UnreadableText.
	LastError string
	// Failures are the last MaxFailures failed attempts, latest first. A replay keeps them.
	Failures []Failure
	// DeadReason and DiedAt are set for a dead message.
	DeadReason DeadReason
	DiedAt     time.Time
	// Raw holds the bytes of an unreadable message; only the ID field of its Message is set. It is nil for all other
	// messages.
	Raw []byte
}

// ListRequest asks for one page of a listing.
type ListRequest struct {
	State State
	// Group selects the messages of a group in any state, in place of State; From and To are then zero.
	Group string
	// From and To limit the due time (for dead messages the time of death) to [From, To). A zero time is no
	// limit.
	From, To time.Time
	Cursor   string // "" for the first page, else Page.Next of the previous one
	Limit    int    // 1 to MaxBatch; a page may be shorter
	// IDsOnly leaves out everything but the ids of the messages, so that their payloads are not transferred.
	IDsOnly bool
}

// Page is one page of a listing.
type Page struct {
	Messages []Info
	Next     string // "" if this is the last page
}

// Selection selects messages for Replay and Purge.
type Selection struct {
	// IDs names up to MaxBatch messages, and selects the dead ones; State is then StateDead. If IDs is empty, all
	// messages in State are selected.
	IDs []string
	// State is StateDead for Replay. For Purge it is StateScheduled, StateReady or StateDead, or StateNone for
	// every message of the queue, including leased ones: for their holders the lease is lost.
	State State
	// Before is zero in the first call and Bulk.Before in the following ones. Messages that fell due or died
	// after the first call are left alone, so that the loop ends.
	Before time.Time
}

// Bulk is the result of one call of Replay or Purge. While More is set, call again with Before.
type Bulk struct {
	Done   int
	More   bool
	Before time.Time
	// Resumed lists the halted keys that go on because a Purge has removed the messages that halted them.
	Resumed []string
}

// Stats counts a queue's messages.
type Stats struct {
	Scheduled, Ready, Leased, Dead int64
	// NextDue is the due time of the earliest scheduled or ready message, or zero if there is none.
	NextDue time.Time
	Paused  bool
	// DeadRetention is the limit that SetDeadRetention set, and Dropped the number of dead messages that it has
	// removed.
	DeadRetention Retention
	Dropped       int64
	// Flow is the flow of the queue, with the present state of its limits. It is zero for a plain queue.
	Flow FlowState
	// Shards is the number of shards of the queue, or the number that a change leads to. It is 0 for a queue that does
	// not have several.
	Shards int
	// Exists reports whether the queue has had a message, a pause, a retention, a flow or a property since it was
	// last deleted.
	Exists bool
	// Now is the engine's clock.
	Now time.Time
}

// The texts that every engine stores in Info.LastError when no handler reported the failure.
const (
	LeaseExpiredText = "lease expired: its worker died or stalled"
	ExpiredText      = "expired: not delivered in time"
	UnreadableText   = "unreadable: these bytes are no message of this version"
)
