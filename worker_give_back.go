package later

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/internal/kind"
	"github.com/laterq/later/store"
)

// defaultGiveBackFor is the default of WorkerConfig.GiveBackFor: longer than a rolling deploy takes.
const defaultGiveBackFor = time.Hour

const (
	// minGiveBack and maxGiveBack limit the delay of a message that is given back. Between them it is as long as this
	// worker has met such messages, or as the message is old if that is shorter, so that a program that is being replaced
	// leaves messages to its successor soon, and one that is not does not spin.
	minGiveBack = time.Second
	maxGiveBack = time.Minute
	// giveBackLogPause is the pause between log messages for a kind.
	giveBackLogPause = time.Minute
	// maxMisfits is the number of kinds that are told apart. Further ones count as one.
	maxMisfits = 1000
	// maxMisfitText is the number of bytes of an error that the record of a worker has.
	maxMisfitText = 120
	// waitingSeconds is the number of seconds for which misfitCount.waiting counts messages. It exceeds maxGiveBack.
	waitingSeconds = 64
)

// GiveBack returns an error with which a handler gives its message back, because this version of the program cannot
// handle it and another one may. Typed handlers, and the errors of Typed.Decode, do so for a payload that cannot be
// decoded, and a Mux for a kind that it does not know. It works wrapped or joined; Bury, Snooze and RetryIn take
// precedence.
//
// The message is delivered again after up to a second at first, and after up to a minute when this worker has met such
// messages for longer. No attempt is counted. The text of err is kept as Info.LastError, and as a Failure of Attempt 0
// whose Time is when the message was first given back; a Snooze ends that time. A message that has been given back for
// WorkerConfig.GiveBackFor becomes dead as DeadUnreadable, by the store's clock, however many workers it met.
func GiveBack(err error) error { return &giveBack{err: err} }

type giveBack struct {
	err     error
	unknown bool // its kind has no handler; it is given back for ever
}

func (e *giveBack) Error() string {
	if e.err == nil {
		return "given back"
	}
	return e.err.Error()
}

func (e *giveBack) Unwrap() error { return e.err }

// misfit is why messages of a queue are not handled.
type misfit struct {
	kind    string
	unknown bool // the kind has no handler
}

// misfitOf returns why a message was given back with an error.
func misfitOf(headers map[string]string, err error) misfit {
	name := headers[KindHeader]
	if len(name) > kind.Max { // it was set as a header
		name = strings.ToValidUTF8(name[:kind.Max], "")
	}
	b, _ := errors.AsType[*giveBack](err)
	return misfit{name, b != nil && b.unknown}
}

// misfits knows the messages of a queue that this version of the program does not handle.
type misfits struct {
	queue    string
	limit    time.Duration // QueueConfig.GiveBackFor
	log      *slog.Logger
	patterns []string // of the queue's Mux

	mu     sync.Mutex
	counts map[misfit]*misfitCount
	others misfitCount
}

type misfitCount struct {
	first, last time.Time // when messages came
	logged      time.Time
	messages    int    // since then
	err         string // of the last one
	waiting     waitingCount
}

func newMisfits(queue string, limit time.Duration, log *slog.Logger) *misfits {
	return &misfits{queue: queue, limit: limit, log: log, counts: map[misfit]*misfitCount{}}
}

// resultOf returns the settlement of a message that is given back.
func (x *misfits) resultOf(m *Message, err error) result {
	why := misfitOf(m.Headers, err)
	age := x.seen(why, "they are given back for another version of the program", err, time.Now())
	if sent := time.Since(m.SentAt); !m.SentAt.IsZero() && sent >= 0 { // unless the sender's clock is ahead
		age = min(age, sent)
	}
	delay := min(max(age, minGiveBack), maxGiveBack)
	r := result{
		action: store.GiveBack, reason: store.CutReason(err.Error()),
		delay:  delay/2 + rand.N(delay/2), // spread, since many may come together
		within: max(0, x.limit),
	}
	if why.unknown {
		r.within = -1
	}
	return r
}

// seen records a message, logs it if that is due, and returns for how long such messages have been met.
func (x *misfits) seen(why misfit, fate string, err error, now time.Time) (age time.Duration) {
	x.mu.Lock()
	c := x.count(why, now)
	if now.Sub(c.last) > 2*maxGiveBack {
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
	what, attrs := "messages cannot be handled", []any{"queue", x.queue, "kind", why.kind, "messages", messages}
	if why.unknown {
		what, attrs = "messages have a kind without a handler", append(attrs, "patterns", x.patterns)
	} else {
		attrs = append(attrs, "error", err)
	}
	x.log.Warn("later: "+what+"; "+fate, attrs...)
	return age
}

// count returns the entry of a misfit, or the common one if there are too many. The lock is held.
func (x *misfits) count(why misfit, now time.Time) *misfitCount {
	if c := x.counts[why]; c != nil {
		return c
	}
	if len(x.counts) >= maxMisfits {
		maps.DeleteFunc(x.counts, func(_ misfit, c *misfitCount) bool { return now.Sub(c.last) > 2*maxGiveBack })
	}
	if len(x.counts) >= maxMisfits {
		return &x.others
	}
	c := &misfitCount{first: now}
	x.counts[why] = c
	return c
}

// wait records that a message waits for another version of the program for a time.
func (x *misfits) wait(why misfit, delay time.Duration) {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.count(why, now).waiting.add(now, delay)
}

// waiting returns the messages that wait for another version of the program, by kind.
func (x *misfits) waiting() (all []GivenBack) {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	add := func(kind string, c *misfitCount) {
		if n := c.waiting.sum(now); n > 0 {
			all = append(all, GivenBack{Queue: x.queue, Kind: kind, Error: c.err, Messages: n})
		}
	}
	for why, c := range x.counts {
		add(why.kind, c)
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

// givenBack returns the kinds that wait for another version of the program, most messages first.
func (r *run) givenBack() (all []GivenBack) {
	for _, qw := range r.queueWorkers {
		all = append(all, qw.misfits.waiting()...)
	}
	for _, f := range r.forwarders {
		all = append(all, f.misfits.waiting()...)
	}
	slices.SortFunc(all, func(a, b GivenBack) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// checkGiveBackFor checks a GiveBackFor.
func checkGiveBackFor(d time.Duration) error {
	if d > store.MaxDelay {
		return store.Invalid("GiveBackFor is %v: give up to %v, 0 for %v, or below zero to bury at once", d, store.MaxDelay,
			defaultGiveBackFor)
	}
	return nil
}

// unknownError is the error of a message whose kind has no handler.
func unknownError(name string) error {
	if name == "" {
		return fmt.Errorf("message has no kind (header %q), and no handler takes such messages", KindHeader)
	}
	return fmt.Errorf("kind %q has no handler", name)
}
