package later

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/internal/kind"
)

// UnknownPolicy is what a Mux does with messages that no pattern matches, with or without a kind. For each kind, the
// worker's logger gets a warning about once a minute, which names the queue, the kind and the patterns of the mux.
type UnknownPolicy uint8

// The policies for messages of unknown kinds.
const (
	// UnknownRelease snoozes the message for another version of the program, which handles the kind: for up to a
	// second at first, and for up to a minute when this worker has met the kind, and the message was sent, a minute
	// ago. No attempt is counted, so the message is kept as long as it takes. Each time costs a claim and a settle. As
	// after any Snooze, its expiry no longer counts.
	UnknownRelease UnknownPolicy = iota
	// UnknownFail makes the attempt fail. The message is retried after the backoff, and dead after its last attempt.
	UnknownFail
	// UnknownBury moves the message to dead at once.
	UnknownBury
)

const (
	// minUnknownDelay and maxUnknownDelay limit how long a message of an unknown kind is snoozed. Between them it is as
	// long as this worker has met the kind, or as the message is old if that is shorter, so that a program that is being
	// replaced leaves messages to its successor soon, and one that is not does not spin.
	minUnknownDelay = time.Second
	maxUnknownDelay = time.Minute
	// unknownLogPause is the pause between log messages for a kind.
	unknownLogPause = time.Minute
	// maxUnknownKinds is the number of kinds that are told apart. Further ones count as one.
	maxUnknownKinds = 1000
)

// unknownKinds decides about messages of a queue whose kinds have no handler.
type unknownKinds struct {
	policy   UnknownPolicy
	queue    string
	patterns []string
	log      *slog.Logger

	mu     sync.Mutex
	kinds  map[string]*unknownKind
	others unknownKind
}

type unknownKind struct {
	first, last time.Time // when messages came
	logged      time.Time
	messages    int // since then
}

func newUnknownKinds(policy UnknownPolicy, queue string, patterns []string, log *slog.Logger) *unknownKinds {
	return &unknownKinds{policy: policy, queue: queue, patterns: patterns, log: log, kinds: map[string]*unknownKind{}}
}

// handle returns the result of a message.
func (u *unknownKinds) handle(m *Message) error {
	name := m.Kind()
	if len(name) > kind.Max { // it was set as a header
		name = strings.ToValidUTF8(name[:kind.Max], "")
	}
	age := u.seen(name, time.Now())
	if sent := time.Since(m.SentAt); !m.SentAt.IsZero() && sent >= 0 { // unless the sender's clock is ahead
		age = min(age, sent)
	}
	err := fmt.Errorf("kind %q has no handler", name)
	if name == "" {
		err = fmt.Errorf("message has no kind (header %q), and no handler takes such messages", KindHeader)
	}
	switch u.policy {
	case UnknownFail:
		return err
	case UnknownBury:
		return Bury(err)
	}
	delay := min(max(age, minUnknownDelay), maxUnknownDelay)
	return fmt.Errorf("%w: %w", err, Snooze(delay/2+rand.N(delay/2))) // spread, since many may come together
}

// seen records a message of a kind, logs it if that is due, and returns how long the kind has been met.
func (u *unknownKinds) seen(name string, now time.Time) (age time.Duration) {
	u.mu.Lock()
	k := u.kinds[name]
	if k == nil {
		k = u.add(name, now)
	}
	if now.Sub(k.last) > 2*maxUnknownDelay {
		k.first = now
	}
	k.last = now
	k.messages++
	due, messages := k.logged.IsZero() || now.Sub(k.logged) >= unknownLogPause, k.messages
	if due {
		k.logged, k.messages = now, 0
	}
	age = now.Sub(k.first)
	u.mu.Unlock()
	if due {
		u.warn(name, messages)
	}
	return age
}

// add returns the entry of a new kind, or the common one if there are too many. The lock is held.
func (u *unknownKinds) add(name string, now time.Time) *unknownKind {
	if len(u.kinds) >= maxUnknownKinds {
		maps.DeleteFunc(u.kinds, func(_ string, k *unknownKind) bool { return now.Sub(k.last) > 2*maxUnknownDelay })
	}
	if len(u.kinds) >= maxUnknownKinds {
		return &u.others
	}
	k := &unknownKind{first: now}
	u.kinds[name] = k
	return k
}

func (u *unknownKinds) warn(name string, messages int) {
	fate := map[UnknownPolicy]string{
		UnknownRelease: "they are given back for another version of the program",
		UnknownFail:    "their attempts fail",
		UnknownBury:    "they are dead",
	}[u.policy]
	u.log.Warn("later: messages have a kind without a handler; "+fate,
		"queue", u.queue, "kind", name, "messages", messages, "patterns", u.patterns)
}
