package outcome

import (
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/kind"
	"github.com/laterq/later/store"
)

const (
	// MinGiveBack and MaxGiveBack limit the delay of a message that is given back. Between them it is as long as this
	// worker has met such messages, or as the message is old if that is shorter, so that a program that is being
	// replaced leaves messages to its successor soon, and another one does not spin.
	MinGiveBack = time.Second
	MaxGiveBack = time.Minute
	// giveBackLogPause is the pause between log messages for a kind.
	giveBackLogPause = time.Minute
	// maxMisfits is the number of kinds that are told apart. Further ones count as one.
	maxMisfits = 1000
	// maxMisfitText is the number of bytes of an error that the record of a worker has.
	maxMisfitText = 120
	// waitingSeconds is the number of seconds for which misfitCount.waiting counts messages. It exceeds MaxGiveBack.
	waitingSeconds = 64
)

// Misfit is why messages of a queue are not handled.
type Misfit struct {
	Kind    string
	Unknown bool // the kind has no handler
}

// MisfitOf returns why a message was given back with an error.
func MisfitOf(headers map[string]string, err error) Misfit {
	name := headers[kind.Header]
	if len(name) > kind.Max { // it was set as a header
		name = strings.ToValidUTF8(name[:kind.Max], "")
	}
	b, _ := errors.AsType[*GiveBack](err)
	return Misfit{name, b != nil && b.Unknown}
}

// Misfits knows the messages of a queue that this version of the program does not handle.
type Misfits struct {
	queue    string
	limit    time.Duration // QueueConfig.GiveBackFor
	log      *slog.Logger
	Patterns []string // of the queue's handlers; not to be changed after the first message

	mu     sync.Mutex
	counts map[Misfit]*misfitCount
	others misfitCount
}

type misfitCount struct {
	first, last time.Time // when messages came
	logged      time.Time
	messages    int    // since then
	err         string // of the last one
	waiting     waitingCount
}

// NewMisfits returns the Misfits of a queue, which give messages back for limit.
func NewMisfits(queue string, limit time.Duration, log *slog.Logger) *Misfits {
	return &Misfits{queue: queue, limit: limit, log: log, counts: map[Misfit]*misfitCount{}}
}

// resultOf returns the settlement of a message that is given back.
func (x *Misfits) resultOf(a Attempt, err error) Result {
	why := MisfitOf(a.Headers, err)
	age := x.Seen(why, "they are given back for another version of the program", err, time.Now())
	if sent := time.Since(a.SentAt); !a.SentAt.IsZero() && sent >= 0 { // unless the sender's clock is ahead
		age = min(age, sent)
	}
	delay := min(max(age, MinGiveBack), MaxGiveBack)
	r := Result{
		Action: store.GiveBack, Reason: store.CutReason(err.Error()),
		Delay:  delay/2 + rand.N(delay/2), // spread, since many may come together
		Within: max(0, x.limit),
	}
	if why.Unknown {
		r.Within = -1
	}
	return r
}

// Seen records a message, logs it if that is due, and returns for how long such messages have been met.
func (x *Misfits) Seen(why Misfit, fate string, err error, now time.Time) (age time.Duration) {
	x.mu.Lock()
	c := x.count(why, now)
	if now.Sub(c.last) > 2*MaxGiveBack {
		c.first = now
	}
	c.last = now
	c.messages++
	text, _, _ := strings.Cut(err.Error(), "\n")
	c.err = strings.ToValidUTF8(text[:min(len(text), maxMisfitText)], "")
	due, messages := c.logged.IsZero() || now.Sub(c.logged) >= giveBackLogPause, c.messages
	if due {
		c.logged, c.messages = now, 0
	}
	age = now.Sub(c.first)
	x.mu.Unlock()
	if !due {
		return age
	}
	what, attrs := "messages cannot be handled", []any{"queue", x.queue, "kind", why.Kind, "messages", messages}
	if why.Unknown {
		what, attrs = "messages have a kind without a handler", append(attrs, "patterns", x.Patterns)
	} else {
		attrs = append(attrs, "error", err)
	}
	x.log.Warn("later: "+what+"; "+fate, attrs...)
	return age
}

// count returns the entry of a misfit, or the common one if there are too many. The lock is held.
func (x *Misfits) count(why Misfit, now time.Time) *misfitCount {
	if c := x.counts[why]; c != nil {
		return c
	}
	if len(x.counts) >= maxMisfits {
		maps.DeleteFunc(x.counts, func(_ Misfit, c *misfitCount) bool { return now.Sub(c.last) > 2*MaxGiveBack })
	}
	if len(x.counts) >= maxMisfits {
		return &x.others
	}
	c := &misfitCount{first: now}
	x.counts[why] = c
	return c
}

// Wait records that a message waits for another version of the program for a time.
func (x *Misfits) Wait(why Misfit, delay time.Duration) {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.count(why, now).waiting.add(now, delay)
}

// Waiting returns the messages that wait for another version of the program, by kind.
func (x *Misfits) Waiting() (all []fleet.GivenBack) {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	add := func(kind string, c *misfitCount) {
		if n := c.waiting.sum(now); n > 0 {
			all = append(all, fleet.GivenBack{Queue: x.queue, Kind: kind, Error: c.err, Messages: n})
		}
	}
	for why, c := range x.counts {
		add(why.Kind, c)
	}
	add("", &x.others)
	return all
}

// waitingCount counts messages by the second in which they fall due again.
type waitingCount struct {
	second int64 // the latest that was looked at
	due    [waitingSeconds]int
}

func (w *waitingCount) add(now time.Time, delay time.Duration) {
	w.forget(now)
	w.due[now.Add(delay).Unix()%waitingSeconds]++
}

func (w *waitingCount) sum(now time.Time) (n int) {
	w.forget(now)
	for _, due := range w.due {
		n += due
	}
	return n
}

// forget forgets the messages that have fallen due.
func (w *waitingCount) forget(now time.Time) {
	second := now.Unix()
	for s := max(w.second, second-waitingSeconds); s < second; s++ {
		w.due[s%waitingSeconds] = 0
	}
	w.second = second
}
