// Package pauses pauses queues and keeps by whom: a property of a queue has its Pause. It imports packages store and
// internal/fleet. Start reading at Set.
package pauses

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/store"
)

const (
	// pauseProperty is the property of a paused queue with its Pause as JSON. It says nothing about a queue that is not
	// paused.
	pauseProperty = "paused"
	// maxAuthor is how many bytes of the name of an author are kept.
	maxAuthor = 200
)

// Pause is when a queue was paused, and by whom. It is zero if that is not known: the queue was paused by a program of
// an earlier version, or by a tool below the Go API.
type Pause struct {
	At time.Time `json:"at"`
	By string    `json:"by"`
}

type authorKey struct{}

// WithAuthor returns a context for the changes of a person or program with a name. Without it, they are of this machine
// and process.
func WithAuthor(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, authorKey{}, name)
}

// Change is the change of a Set of a context, so that it can be undone.
type Change struct {
	Changed      bool   // it was not as it was to be
	Former, Left string // its Pause as text, before and after; "" for none

	undoes bool
}

type changeKey struct{}

// WithChange returns a context with which Set fills a Change.
func WithChange(ctx context.Context, c *Change) context.Context {
	return context.WithValue(ctx, changeKey{}, c)
}

// WithUndo returns a context for the Set that undoes a change of a queue, which is paused now or not.
// It returns ErrConflict if the queue is not as the change left it.
func WithUndo(ctx context.Context, s store.Store, queue string, paused bool, c Change) (context.Context,
	error) {
	stats, err := s.Stats(ctx, queue)
	if err != nil {
		return nil, err
	}
	if stats.Paused != paused {
		return nil, store.ErrConflict
	}
	err = s.SetProperties(ctx, queue, map[string]string{pauseProperty: c.Former},
		&store.Condition{Property: pauseProperty, Value: c.Left})
	return WithChange(ctx, &Change{undoes: true}), err
}

// Set pauses a queue and keeps when and by whom, or resumes it. A queue that is paused already keeps its Pause.
//
// A Pause that cannot be kept, because the queue has too many properties or the process ends in between, does not undo
// the change.
func Set(ctx context.Context, s store.Store, queue string, paused bool) error {
	before, err := s.Stats(ctx, queue)
	if err != nil {
		return err
	}
	change, _ := ctx.Value(changeKey{}).(*Change)
	if change != nil && !change.undoes {
		all, err := s.Properties(ctx, queue)
		if err != nil {
			return err
		}
		change.Changed, change.Former = before.Paused != paused, all[pauseProperty]
	}
	if err := s.SetPaused(ctx, queue, paused); err != nil {
		return err
	}
	if before.Paused == paused || change != nil && change.undoes {
		return nil
	}
	text := ""
	if paused {
		by, _ := ctx.Value(authorKey{}).(string)
		if by == "" {
			by = fleet.DefaultName()
		}
		by = strings.ToValidUTF8(by[:min(len(by), maxAuthor)], "")
		encoded, err := json.Marshal(Pause{At: before.Now.UTC().Truncate(time.Millisecond), By: by})
		if err != nil {
			return err
		}
		text = string(encoded)
	}
	if s.SetProperties(ctx, queue, map[string]string{pauseProperty: text}, nil) == nil && change != nil {
		change.Left = text
	}
	return nil
}

// Of returns when a paused queue was paused, and by whom.
func Of(ctx context.Context, s store.Store, queue string) (p Pause, err error) {
	all, err := s.Properties(ctx, queue)
	if text := all[pauseProperty]; text != "" && json.Unmarshal([]byte(text), &p) != nil {
		p = Pause{} // of another program
	}
	return p, err
}
