// Package undo makes changes of messages so that they can be changed back exactly. The root package makes its changes
// with Cancel, Reschedule and Edits; a server gives it a Log with the context of a call and keeps that. It imports
// package store only. Start reading at Log.
package undo

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// Log notes the changes of the calls of a context. Without one, or once there is no room, calls change messages as they
// always do, and nothing is noted.
//
// A call with a Log reads each message and changes it only if it has not changed in between. So the Log has the message
// that the change replaced, whatever other processes do. One call at a time may use it.
type Log struct {
	// Room is asked before further copies and moves are noted. Once it returns false, the calls note nothing more, and
	// Full is set. The change itself goes on.
	Room   func(copies, bytes, moves int) bool
	Copies []store.Info // messages that were cancelled
	Moves  []Move       // messages that were rescheduled
	Edited *Edit        // the message that was edited
	Full   bool
}

// Move is a reschedule of a message, from a due time to another one, in ms since 1970.
type Move struct {
	ID       string
	From, To int64
}

// Edit is a message before and after it was edited. The state and the counts of After are those of Before.
type Edit struct{ Before, After store.Info }

// CopyBytes returns how many bytes of memory a copy takes, about.
func CopyBytes(m *store.Info) int {
	n := m.Size() + len(m.LastError) + 400
	for i := range m.Failures {
		n += len(m.Failures[i].Error) + len(m.Failures[i].Worker) + 80
	}
	return n
}

type logKey struct{}

// WithLog returns a context for calls that note their changes in a Log.
func WithLog(ctx context.Context, l *Log) context.Context { return context.WithValue(ctx, logKey{}, l) }

// Stop has the calls of a context note nothing, for a change that is known to be too large.
func Stop(ctx context.Context) {
	if l := logOf(ctx); l != nil {
		l.room(math.MaxInt32, 0, 0)
	}
}

// logOf returns the Log of a context, or nil if there is none or it is full.
func logOf(ctx context.Context) *Log {
	if l, _ := ctx.Value(logKey{}).(*Log); l != nil && !l.Full {
		return l
	}
	return nil
}

type (
	dueKey   struct{}
	checkKey struct{}

	// DueOf returns the new due time of a message, or false to leave it as it is.
	DueOf func(m *store.Info) (time.Time, bool)
	// Check returns why a message is not edited, or nil.
	Check func(m *store.Info) error
)

// WithDue returns a context for calls of Reschedule that move each message to a time of its own. A message that is left
// as it is has ErrConflict.
func WithDue(ctx context.Context, due DueOf) context.Context {
	return context.WithValue(ctx, dueKey{}, due)
}

// WithCheck returns a context for edits that ask a Check, which sees the message that the edit would replace.
func WithCheck(ctx context.Context, check Check) context.Context {
	return context.WithValue(ctx, checkKey{}, check)
}

func (l *Log) room(copies, bytes, moves int) bool {
	l.Full = l.Full || l.Room != nil && !l.Room(copies, bytes, moves)
	return !l.Full
}

// tries is how often a message is read again because it has changed in between.
const tries = 10

// Cancel is Store.Cancel. With a Log it keeps a copy of each message that it removes, except for a leased message and
// one that leaves a dedup window behind.
func Cancel(ctx context.Context, s store.Store, queue string, req store.CancelRequest) ([]store.CancelResult, error) {
	l := logOf(ctx)
	if l == nil {
		return s.Cancel(ctx, queue, req)
	}
	results := make([]store.CancelResult, len(req.IDs))
	var plain []int
	err := eachPart(ctx, s, queue, req.IDs, func(at []int, infos []*store.Info) (again []int, err error) {
		var remove []store.Info
		var items []int
		copies, bytes := 0, 0
		for k, i := range at {
			switch m := infos[k]; {
			case m == nil:
				results[i].Err = store.ErrNotFound
			case m.State == store.StateLeased, req.KeepIDs && m.DedupWindow > 0, m.CheckNew() != nil:
				plain = append(plain, i)
			default:
				remove, items = append(remove, *m), append(items, i)
				copies, bytes = copies+1, bytes+CopyBytes(m)
			}
		}
		if len(remove) > 0 && !l.room(copies, bytes, 0) {
			plain = append(plain, items...)
			return nil, nil
		}
		for part := range parts(remove) {
			removed, err := s.Remove(ctx, queue, remove[part.from:part.to])
			if err != nil {
				return nil, err // some may be live, and copies of them would double them
			}
			for k, done := range removed {
				m := &remove[part.from+k]
				if done {
					results[items[part.from+k]].State = m.State
					l.Copies = append(l.Copies, *m)
				} else {
					again = append(again, items[part.from+k])
				}
			}
		}
		return again, nil
	}, func(i int) { plain = append(plain, i) })
	if err != nil || len(plain) == 0 {
		return results, err
	}
	rest, err := s.Cancel(ctx, queue, store.CancelRequest{IDs: pick(req.IDs, plain), KeepIDs: req.KeepIDs})
	for k := range rest {
		results[plain[k]] = rest[k]
	}
	return results, err
}

// Reschedule is Store.Reschedule. With a Log it notes the due times before and after. A delay counts from the engine's
// clock at the beginning then.
func Reschedule(ctx context.Context, s store.Store, queue string, ids []string, due store.Due) ([]error, error) {
	l := logOf(ctx)
	dueOf, _ := ctx.Value(dueKey{}).(DueOf)
	switch {
	case l == nil && dueOf == nil:
		return s.Reschedule(ctx, queue, ids, due)
	case l == nil:
		l = &Log{Full: true}
	}
	due, err := resolve(ctx, s, queue, due)
	if err != nil {
		return nil, err
	}
	results := make([]error, len(ids))
	var plain []int
	err = eachPart(ctx, s, queue, ids, func(at []int, infos []*store.Info) (again []int, err error) {
		if !l.room(0, 0, len(at)) && dueOf == nil {
			plain = append(plain, at...)
			return nil, nil
		}
		out, items, from, raw, err := moves(at, infos, due, dueOf, results)
		if err != nil {
			return nil, err
		}
		plain = append(plain, raw...)
		for part := range parts(from) {
			sent, err := s.Send(ctx, queue, out[part.from:part.to])
			if err != nil {
				return nil, err
			}
			for k, r := range sent {
				i, n := items[part.from+k], part.from+k
				switch {
				case r.Replaced && !l.Full:
					l.Moves = append(l.Moves, Move{ids[i], store.UnixMillis(from[n].Due), store.UnixMillis(out[n].Due.At)})
				case r.Replaced:
				case errors.Is(r.Err, store.ErrConflict):
					again = append(again, i)
				default:
					results[i] = cmp.Or[error](r.Err, store.ErrNotFound) // one sent as a new message: it cannot be
				}
			}
		}
		return again, nil
	}, func(i int) { results[i] = store.ErrConflict })
	if err != nil || len(plain) == 0 {
		return results, err
	}
	rest, err := s.Reschedule(ctx, queue, pick(ids, plain), due)
	for k := range rest {
		results[plain[k]] = rest[k]
	}
	return results, err
}

// moves returns the sends that move the messages that can be moved, each on the condition that it is unchanged. It sets
// the results of the others, except for unreadable ones, which a send would replace by other messages.
func moves(at []int, infos []*store.Info, due store.Due, dueOf DueOf, results []error) (out []store.Outgoing,
	items []int, from []store.Info, raw []int, err error) {
	for k, i := range at {
		m := infos[k]
		to, ok := due.At, true
		switch {
		case m == nil:
			results[i] = store.ErrNotFound
			continue
		case m.State == store.StateLeased:
			results[i] = store.ErrLeased
			continue
		case m.State == store.StateDead:
			results[i] = store.ErrDead
			continue
		case m.Raw != nil && dueOf == nil:
			raw = append(raw, i)
			continue
		case m.Raw != nil:
			results[i] = store.ErrConflict
			continue
		case dueOf != nil:
			if to, ok = dueOf(m); !ok {
				results[i] = store.ErrConflict
				continue
			}
		}
		o := Replacement(m, m.Message, store.Due{At: to})
		if err := o.Due.Check(); err != nil {
			return nil, nil, nil, nil, err
		}
		out, items, from = append(out, o), append(items, i), append(from, *m)
	}
	return out, items, from, raw, nil
}

// Replacement returns the send that puts a message in the place of one that has not changed since it was read.
func Replacement(current *store.Info, m store.Message, due store.Due) store.Outgoing {
	return store.Outgoing{Message: m, Due: due, Relayed: m.Urgency == current.Urgency,
		OnDuplicate: store.OnDuplicate{Mode: store.DuplicateReplace, Unchanged: current}}
}

// Edits refuses an edit of a message if the Check of the context does. With a Log, it replaces a delay by a due time.
// The returned function notes the edit once it has been made.
func Edits(ctx context.Context, s store.Store, queue string, before *store.Info, out *store.Outgoing) (
	done func(), err error,
) {
	if check, _ := ctx.Value(checkKey{}).(Check); check != nil {
		if err := check(before); err != nil {
			return nil, err
		}
	}
	l := logOf(ctx)
	if l == nil {
		return func() {}, nil
	}
	after := *before
	after.Message = out.Message
	after.SentAt = before.SentAt
	if !out.OnDuplicate.KeepDue {
		if out.Due, err = resolve(ctx, s, queue, out.Due); err != nil {
			return nil, err
		}
		after.Due = out.Due.At
	}
	if !l.room(1, CopyBytes(before)+CopyBytes(&after), 0) {
		return func() {}, nil
	}
	return func() { l.Edited = &Edit{*before, after} }, nil
}

// resolve returns a due time without a delay: from the engine's now, rounded up as the engine does.
func resolve(ctx context.Context, s store.Store, queue string, due store.Due) (store.Due, error) {
	if !due.At.IsZero() {
		return due, nil
	}
	stats, err := s.Stats(ctx, queue)
	if err != nil {
		return due, err
	}
	at := stats.Now.UnixMilli()
	if due.Delay > 0 {
		at += 1 + store.Millis(due.Delay)
	}
	return store.Due{At: time.UnixMilli(at)}, nil
}

const (
	firstRead = 16      // messages that are read before it is known how large they are
	readBytes = 4 << 20 // bytes that are read at a time, about
)

// eachPart reads messages and calls do for each part, with their positions. do returns those that have changed in
// between, which are read again; busy is called for a message that changes all the time.
func eachPart(ctx context.Context, s store.Store, queue string, ids []string,
	do func(at []int, infos []*store.Info) (again []int, err error), busy func(i int)) error {
	rest := make([]int, len(ids))
	for i := range rest {
		rest[i] = i
	}
	size := firstRead
	for try := 1; len(rest) > 0; try++ {
		var again []int
		for len(rest) > 0 {
			n := min(size, len(rest))
			infos, err := s.Get(ctx, queue, pick(ids, rest[:n]))
			if err != nil {
				return err
			}
			bytes := 1
			for _, m := range infos {
				if m != nil {
					bytes += CopyBytes(m)
				}
			}
			size = max(1, min(store.MaxBatch, readBytes*n/bytes))
			changed, err := do(rest[:n:n], infos)
			if err != nil {
				return err
			}
			again, rest = append(again, changed...), rest[n:]
		}
		if try == tries {
			for _, i := range again {
				busy(i)
			}
			return nil
		}
		rest = again
	}
	return nil
}

type span struct{ from, to int }

// parts yields parts of messages that fit into one call.
func parts(msgs []store.Info) func(yield func(span) bool) {
	return func(yield func(span) bool) {
		for from := 0; from < len(msgs); {
			to, bytes := from, 0
			for to < len(msgs) && to-from < store.MaxBatch {
				if bytes += msgs[to].Size(); bytes > store.MaxBatchBytes && to > from {
					break
				}
				to++
			}
			if !yield(span{from, to}) {
				return
			}
			from = to
		}
	}
}

func pick[T any](all []T, at []int) []T {
	some := make([]T, len(at))
	for k, i := range at {
		some[k] = all[i]
	}
	return some
}

// Restore adds copies again, in parts that are requests of a session, numbered from number on. It reports for each copy
// whether it was added. The others have ids that are in use again, or within their dedup window.
//
// After an error it returns the results of the parts before, and the number of the part that failed. A repeated call
// from this number on, with the rest of the copies, adds no message twice, except in a store in memory.
func Restore(ctx context.Context, s store.Store, queue, session string, number int64, copies []store.Info) (
	added []bool, next int64, err error) {
	for part := range parts(copies) {
		if err := context.Cause(ctx); err != nil {
			return added, number, err
		}
		request := store.Request{Session: session, Number: number}
		results, err := s.Restore(store.WithRequest(ctx, request), queue, copies[part.from:part.to])
		if err != nil {
			return added, number, err
		}
		for _, r := range results {
			if r.Err != nil && !r.Added() {
				return added, number, r.Err
			}
			added = append(added, r.Added())
		}
		number++
	}
	return slices.Clip(added), number, nil
}
