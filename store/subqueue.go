package store

import (
	"context"
	"fmt"
	"strings"
)

// SubQueues is implemented by a Store that can give queues shards.
//
// The shards of a queue are queues of the engine, the sub-queues. Every method of Store takes the name of one, and
// keeps the contract for it. The methods here create and rename sub-queues and move messages between them. They know
// neither how many there are nor which ids belong where: internal/shard does, and keeps it in the sign of the queue.
//
// A sign is a text at a name that has no queue. Every call of Store for a name with a sign returns *Moved and changes
// nothing, and so does one with such a name for a follow-up, or as the destination of a forward. The same holds for
// the name of a sub-queue that does not exist: no call but Create and Rename makes one.
//
// All sub-queues of a queue with an empty salt are on the server of the queue itself.
//
// A call that succeeds has confirmed all that it read and wrote, as far as the engine can: on the disk or on a replica,
// so that a failover keeps it. Otherwise an id could be in two places after a failover (internal/shard). The same holds
// for SetFlow of a sub-queue. Sign and Scan confirm nothing; the next other call for the same name does.
// Every call can be repeated, and several processes can make it at the same time.
type SubQueues interface {
	// Sign returns the sign at a name, or "" if there is none.
	Sign(ctx context.Context, name string) (string, error)

	// SetSign replaces the sign former at a name. An empty sign removes it. With the same text twice it confirms the
	// sign. It returns ErrConflict, and changes nothing, if there is another sign, or none.
	SetSign(ctx context.Context, name, sign, former string) error

	// Create creates an empty queue with settings. It changes nothing if a queue or a sign has the name.
	Create(ctx context.Context, name string, s Settings) error

	// Rename gives the queue from the name to, with its messages, leases, settings and everything else, and leaves
	// a sign at from. Its waiters return. It changes nothing if from has no queue, and returns ErrConflict if to has
	// one, or another sign than former, which is "" for none. Both names have the same queue and the same salt.
	Rename(ctx context.Context, from, to, sign, former string) error

	// Retire deletes a queue as Delete does, and leaves a sign at its name, also if there is no queue.
	Retire(ctx context.Context, name, sign string) error

	// Scan returns a part of the ids of a queue, and of the sends that it remembers, in no order. The cursor is "" for
	// the first call, or ScanKeys for one that leaves out the ids, and Scanned.Next of the previous one afterwards. An
	// entry that is in the queue from the first call to the last is returned at least once.
	Scan(ctx context.Context, name, cursor string) (Scanned, error)

	// SendKnown is Send, but sends a message only if its id is live or within its dedup window, or if the queue
	// remembers its Once. It replaces no message that is scheduled or ready. Otherwise ErrNotFound is in its SendResult
	// and nothing changes.
	SendKnown(ctx context.Context, name string, msgs []Outgoing) ([]SendResult, error)

	// Depart takes messages out of a queue and puts them into its outbox, in one step. Messages in the outbox are in no
	// state and are not counted. A message keeps its place in the order of its key, and takes its hold on the key with
	// it. Depart changes nothing if the outbox is not empty: then Departed has its parcel.
	Depart(ctx context.Context, name string, d Departure) (Departed, error)

	// Outbox returns the parcel in the outbox of a queue, nil if it is empty.
	Outbox(ctx context.Context, name string) (*Parcel, error)

	// Arrive puts a parcel into the queue Parcel.To, and wakes waiters as Send does. It does so once: a parcel with the
	// same From and a Number that is not larger than that of an earlier one changes nothing. A key that arrives is
	// expected no longer.
	Arrive(ctx context.Context, p *Parcel) error

	// Empty empties the outbox of a queue if its parcel has a number.
	Empty(ctx context.Context, name string, number int64) error

	// Expect prepares a queue for keys that arrive from another sub-queue, and wakes waiters if e ends what they wait
	// for. It returns the last place and fence that the queue has given to a message, in microseconds; 0 if none. It
	// returns ErrConflict, and changes nothing, if a parcel from e.From has arrived with a larger number than e.Number.
	Expect(ctx context.Context, name string, e Expected) (last int64, err error)
}

// Settings are the settings of a new sub-queue.
type Settings struct {
	Paused        bool
	DeadRetention Retention
	// Flow is the flow. All starts that its rate allows at once are used up.
	Flow Flow
}

// Expected tells a sub-queue which keys another one still has. It has no effect in a queue that is not Fair, but for
// From and Number.
type Expected struct {
	From   string // the other sub-queue, or ""
	Number int64  // of the last parcel that has departed from there; see Departed
	// Keys start no message until a parcel from any sub-queue has them among its keys.
	Keys []string
	// None ends that for all keys but Keys, and adds none.
	None bool
	// Last is smaller than all places and fences that the queue gives from now on, in microseconds.
	Last int64
}

// ScanKeys is the cursor for a Scan that returns only Keys and Holds.
const ScanKeys = "keys"

// Limits of a Departure.
const (
	MaxDeparture      = 100     // ids, keys of sends and keys of one Departure
	MaxDepartureBytes = 1 << 20 // of the messages of a parcel, about; a single one may be larger
)

// Departure names messages that are to depart to another sub-queue.
type Departure struct {
	To string
	// IDs are ids of messages in any state but leased, and ids within their dedup windows, which move too.
	IDs []string
	// Once are keys of sends that the queue remembers. A key with a leased message stays.
	Once []string
	// Keys are keys of messages that depart without messages, with their state in a Fair queue: the override, and when
	// the rate allows the next start. A key stays while messages take its slots, one holds it, or one is sorted.
	// The caller sees to it that the queue has no other messages of them.
	Keys []string
}

// Departed is the result of a Depart.
type Departed struct {
	// Parcel is in the outbox now, nil if the outbox is empty. If it was there before, Before is set, and nothing else
	// has departed.
	Parcel *Parcel
	Before bool
	// Leased has the ids that are leased, and stay. Kept has the keys of sends of such ids, which stay too.
	Leased, Kept []string
	// Busy has the keys of the messages in Leased, and the keys of Departure.Keys that stay. A queue that is not Fair has
	// none.
	Busy []string
	// More is set if something else stays, because the parcel is full.
	More bool
	// Number is that of the last parcel that has departed, 0 if none has.
	Number int64
}

// Parcel is messages that move from one sub-queue to another together.
type Parcel struct {
	From, To string
	Number   int64 // of the parcels that depart from a sub-queue, in order from 1
	Data     any   // private data of the engine
}

// Scanned is a part of the contents of a queue.
type Scanned struct {
	IDs  []string // of messages in any state, or within their dedup windows
	Once []OnceID
	// Leases is the number of leases, including expired ones and ones with only cancelled messages.
	Leases int
	// Keys are keys of a Fair queue that have a state that departs, or messages that take slots. They come in parts
	// behind all IDs, as do Holds, which are keys that a message holds.
	Keys, Holds []string
	Next        string // "" if this is the last part
	// Run is another text after a restart or a failover of the server, "" if that loses nothing. If two calls of Scan
	// return the same Run, and a call in between has confirmed all that was read and written, then a failover keeps all
	// that was read between the first Scan and that call.
	Run string
}

// OnceID is the key of a send that a queue remembers, and the id that was sent.
type OnceID struct{ Key, ID string }

// Moved is the error of a call for a name that has a sign, or for a sub-queue that does not exist: the queue has other
// shards than the caller knows. It is an ErrUnavailable.
type Moved struct {
	Name string
	Sign string // "" if there is none
}

func (m *Moved) Error() string {
	queue, _, _, _ := CutSubQueue(m.Name)
	return fmt.Sprintf("shards of queue %q have changed: try again", queue)
}

func (m *Moved) Unwrap() error { return ErrUnavailable }

// SubQueue returns the name of a sub-queue. No other queue has such a name, because braces are not allowed there. The
// generation and the salt have letters and digits. The salt decides on which server the sub-queue is.
func SubQueue(queue, generation, salt string) string { return queue + "{" + generation + "}" + salt }

// CutSubQueue returns the parts of the name of a sub-queue. It returns the whole name, and false, for any other queue.
func CutSubQueue(name string) (queue, generation, salt string, ok bool) {
	queue, rest, ok := strings.Cut(name, "{")
	if !ok || queue == "" {
		return name, "", "", false
	}
	generation, salt, ok = strings.Cut(rest, "}")
	return queue, generation, salt, ok
}

// IsSubQueue reports whether a name is one of a sub-queue.
func IsSubQueue(name string) bool {
	_, _, _, ok := CutSubQueue(name)
	return ok
}

// Salter is implemented by a Store that keeps its queues on several servers.
type Salter interface {
	// Salts returns n different salts for the sub-queues of a queue, the first one empty. They are on as many servers
	// as there are, and on each of them there are about as many as on any other. The first ones are those of former.
	Salts(ctx context.Context, queue string, n int, former []string) ([]string, error)
}
