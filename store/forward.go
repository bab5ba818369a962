package store

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/laterq/later/internal/reserved"
)

// TargetKind is a kind of destination.
type TargetKind string

// The kinds of destination. All but TargetQueue are keys and channels of Redis, for programs that do not use Later.
const (
	TargetQueue   TargetKind = "queue"   // a queue, where messages keep their ids and due times
	TargetList    TargetKind = "list"    // a list of payloads
	TargetStream  TargetKind = "stream"  // a stream with an entry for each message; see StreamFields
	TargetChannel TargetKind = "channel" // a pub/sub channel, in a Cluster a sharded one, that gets payloads
)

// Target is where messages are moved to or delivered.
type Target struct {
	Kind TargetKind
	// Name is the name of the queue or channel, or the key of the list or stream.
	Name string
	// Front adds messages to the front of a list (LPUSH) instead of its end (RPUSH).
	Front bool
	// MaxLen is about how many entries a stream keeps, the newest; 0 means all.
	MaxLen int64
}

// The fields of a stream entry, in this order. A message's headers follow, each named HeaderField plus its name.
const (
	StreamID      = "id"
	StreamPayload = "payload"
	StreamDue     = "due" // milliseconds since 1970
	HeaderField   = "header:"
)

// Limits of targets.
const (
	MaxTargetName = 1024              // bytes of a key or channel
	MaxStreamLen  = 1_000_000_000_000 // largest Target.MaxLen
)

func (t Target) String() string { return string(t.Kind) + ":" + t.Name }

// ParseTarget returns the target that String returned. It also knows topic:NAME, which is the topic's queue.
func ParseTarget(text string) (Target, error) {
	if strings.HasPrefix(text, reserved.Topic) {
		text = string(TargetQueue) + ":" + text
	}
	kind, name, ok := strings.Cut(text, ":")
	if !ok {
		return Target{}, unknownTarget(text)
	}
	t := Target{Kind: TargetKind(kind), Name: name}
	return t, t.Check()
}

// Check returns an ErrInvalid unless t is a valid target.
func (t Target) Check() error {
	switch t.Kind {
	case TargetQueue:
		if err := CheckNewQueue(t.Name); err != nil {
			return err
		}
	case TargetList, TargetStream, TargetChannel:
		switch {
		case t.Name == "":
			return Invalid("destination %q has no name: give %s:NAME", t, t.Kind)
		case len(t.Name) > MaxTargetName:
			return Invalid("destination's name has %d bytes: the limit is %d", len(t.Name), MaxTargetName)
		case !utf8.ValidString(t.Name):
			return Invalid("destination's name %q is not valid UTF-8", t.Name)
		}
	default:
		return unknownTarget(t.String())
	}
	switch {
	case t.Front && t.Kind != TargetList:
		return Invalid("destination %q has no front: only a list has", t)
	case t.MaxLen != 0 && t.Kind != TargetStream:
		return Invalid("destination %q has no maximum length: only a stream has", t)
	case t.MaxLen < 0 || t.MaxLen > MaxStreamLen:
		return Invalid("maximum length of %q is %d: must be 1 to %d, or 0 for none", t, t.MaxLen, int64(MaxStreamLen))
	}
	return nil
}

func unknownTarget(text string) error {
	return Invalid("destination %q is unknown: give queue:NAME, topic:NAME, list:KEY, stream:KEY or channel:NAME", text)
}

// ForwardRequest asks to move messages.
type ForwardRequest struct {
	To  Target
	Max int  // 1 to MaxBatch
	IDs bool // return the ids of the messages that were moved
}

// Forwarded is the result of a Forward.
type Forwarded struct {
	Count int      // number of messages that left the queue
	IDs   []string // their ids, if asked for
	Now   time.Time
	More  bool // more messages were ready, or housekeeping was left; see Claim.More
	// Died, Expired and Dropped are the same as for a Claim.
	Died, Expired, Dropped []string
}

// Forwarder is implemented by a Store that can move messages to a destination.
type Forwarder interface {
	// ForwardsTo reports whether Forward can move a queue's messages to a destination. The answer never changes; from or
	// to a queue with several shards Forward needs several steps, and messages move at least once. It
	// returns an ErrInvalid or ErrUnsupported if neither Forward nor Deliver can write there.
	ForwardsTo(queue string, to Target) (bool, error)

	// Forward moves up to req.Max ready messages from a queue to a destination in one step, earliest first.
	//
	// They leave the queue as by an Ack, with their dedup windows. In another queue they appear as by a Send under the
	// same ids, with the same due times and no failed attempts; one with an id that is live there or within its dedup
	// window is left out. A queue that is moved to is created if necessary. The step includes the housekeeping of a
	// Claim, and messages die as in a Claim. A paused queue moves nothing. The rate of a Flow limits the messages that
	// leave the queue, and More does not tell of those that it holds back; Concurrency does not limit them.
	//
	// A destination that cannot take messages, such as a key of another type, refuses all of them with an
	// ErrUnavailable, and nothing is moved. A call that an engine repeats can move further messages, each once.
	Forward(ctx context.Context, queue string, req ForwardRequest) (Forwarded, error)

	// Deliver writes messages that this process holds to a list, stream or channel, in their order: up to MaxBatch with
	// up to MaxBatchBytes, as a Claim returns them. After an error some of them may have been written. An engine may
	// repeat the call, and a message can then be there twice.
	Deliver(ctx context.Context, to Target, msgs []Claimed) error
}
