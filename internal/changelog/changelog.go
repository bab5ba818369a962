// Package changelog keeps the list of changes that people and programs made through servers, in the store that the
// servers share. Servers add to it and the command reads it. It imports package store and the names of Later's own
// queues.
//
// Each change is a message of an internal queue. It is due the earlier the later the change was made, many years ahead,
// so a list of the scheduled messages has the latest change first.
package changelog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

const (
	// Kept is how many changes the list keeps, the latest ones. Up to trimAt of them are in the store between two trims.
	Kept   = 1000
	trimAt = Kept + 200
	// KeptMinor is how many of them can be minor changes, so that a program that cancels many messages one by one does
	// not push out the changes of people.
	KeptMinor = 500
	minorID   = "m." // begins the ids of minor changes, which are trimmed without reading them
	// writeEvery is the time between two writes while there are always further changes.
	writeEvery   = 500 * time.Millisecond
	writeTimeout = 5 * time.Second
)

// mirror is the due time of a change that was made in 1970. All changes until the year 2080 are then scheduled.
var mirror = time.Date(2195, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// Change is a change, as it is stored.
type Change struct {
	ID         string         `json:"-"`
	Time       time.Time      `json:"-"`
	Who        string         `json:"who"`
	What       string         `json:"what"`
	Queue      string         `json:"queue,omitempty"`
	Attributes map[string]any `json:"attributes,omitempty"`
	// Right is the right that an undo needs, as the server names it. Back is how the server undoes it.
	Right  string          `json:"right,omitempty"`
	Back   json.RawMessage `json:"back,omitempty"`
	Undone *Undone         `json:"undone,omitempty"`

	again bool // it may have been written before
}

// isMinor reports whether a change is of a single message, group or series and cannot be undone.
func (c *Change) isMinor() bool {
	a := c.Attributes
	return c.Right == "" && (a["id"] != nil || a["group"] != nil || a["series"] != nil)
}

// Undone is who undid a change.
type Undone struct {
	Time   time.Time `json:"time"`
	Who    string    `json:"who"`
	Change string    `json:"change"`
}

// Position is a place in the list: after a change. The zero value is the beginning.
type Position struct {
	Time time.Time
	ID   string
}

// compare returns a value below 0 if a change is before a position.
func (p Position) compare(c *Change) int {
	return cmp.Or(p.Time.Compare(c.Time), cmp.Compare(c.ID, p.ID))
}

// Log is the list. Set Store, and for one that is added to Logger and Start. Its methods are safe for concurrent use.
type Log struct {
	Store  store.Store
	Logger *slog.Logger
	// Start runs a function that writes in the background, and returns false if it cannot. Then the changes wait for the
	// next one, or for Flush.
	Start func(func()) bool
	// Ending is closed when the background is to end soon.
	Ending <-chan struct{}

	mu      sync.Mutex
	last    time.Time // of a change that was added here
	pending []*Change // that are not written, the oldest first
	writing bool
	failing bool // the last write failed
	writes  sync.Mutex
}

// Add adds a change that is made now, and sets its ID and Time. It does not wait for the store. While that cannot be
// written, the last changes are kept in memory and listed.
func (l *Log) Add(c *Change) {
	l.mu.Lock()
	c.Time = time.Now().Truncate(time.Millisecond)
	if !c.Time.After(l.last) {
		c.Time = l.last.Add(time.Millisecond) // so that the list is in their order
	}
	l.last, c.ID = c.Time, store.NewID()
	if c.isMinor() {
		c.ID = minorID + c.ID
	}
	l.mu.Unlock()
	l.put(c)
}

// Put writes a change that was added before again, with other values.
func (l *Log) Put(c *Change) {
	c.again = true
	l.put(c)
}

func (l *Log) put(c *Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.DeleteFunc(l.pending, func(p *Change) bool { return p.ID == c.ID })
	if l.pending = append(l.pending, c); len(l.pending) > Kept {
		old := max(0, slices.IndexFunc(l.pending, (*Change).isMinor)) // the oldest one, if there are minor ones
		l.pending = slices.Delete(l.pending, old, old+1)
	}
	if !l.writing {
		l.writing = l.Start(l.write)
	}
}

// write writes until nothing is pending or the store fails. It makes few calls while there are many changes.
func (l *Log) write() {
	for {
		l.Flush()
		wait := time.NewTimer(writeEvery)
		select {
		case <-l.Ending:
		case <-wait.C:
		}
		wait.Stop()
		l.mu.Lock()
		if len(l.pending) == 0 || l.failing {
			l.writing = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

// Flush writes what is pending. It warns once if the store fails.
func (l *Log) Flush() {
	l.writes.Lock()
	defer l.writes.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	l.mu.Lock()
	batch := slices.Clone(l.pending)
	l.mu.Unlock()
	err := l.store(ctx, batch)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if !l.failing {
			l.Logger.Warn("the list of changes cannot be written: the last ones are kept in memory until it can", "error", err)
		}
		l.failing = true
		return
	}
	l.failing = false
	l.pending = slices.DeleteFunc(l.pending, func(c *Change) bool { return slices.Contains(batch, c) })
}

func (l *Log) store(ctx context.Context, batch []*Change) error {
	out := make([]store.Outgoing, 0, len(batch))
	for _, c := range batch {
		text, err := json.Marshal(c)
		if err != nil || len(text) > store.MaxPayload {
			text, _ = json.Marshal(Change{Who: c.Who, What: c.What, Queue: c.Queue}) // texts can always be encoded
		}
		m := store.Outgoing{Message: store.Message{ID: c.ID, Payload: text}, Due: store.Due{At: dueOf(c.Time)}}
		if c.again {
			m.OnDuplicate.Mode = store.DuplicateReplace
		}
		out = append(out, m)
	}
	for len(out) > 0 {
		n := calls.PartEnd(out, 0)
		results, err := l.Store.Send(ctx, reserved.Changes, out[:n])
		if err = cmp.Or(err, store.SendError(results)); err != nil {
			return err
		}
		out = out[n:]
	}
	if len(batch) == 0 {
		return nil
	}
	return l.trim(ctx)
}

// trim removes the oldest changes if there are too many.
func (l *Log) trim(ctx context.Context) error {
	stats, err := l.Store.Stats(ctx, reserved.Changes)
	if err != nil || stats.Scheduled < trimAt {
		return err
	}
	req := store.ListRequest{State: store.StateScheduled, IDsOnly: true, Limit: store.MaxBatch}
	for n, minor := 0, 0; ; {
		page, err := l.Store.List(ctx, reserved.Changes, req)
		if err != nil {
			return err
		}
		var old []string
		for i := range page.Messages {
			id := page.Messages[i].ID
			isMinor := strings.HasPrefix(id, minorID)
			if n == Kept || isMinor && minor == KeptMinor {
				old = append(old, id)
				continue
			}
			if n++; isMinor {
				minor++
			}
		}
		if len(old) > 0 {
			if _, err := l.Store.Cancel(ctx, reserved.Changes, store.CancelRequest{IDs: old}); err != nil {
				return err
			}
		}
		if req.Cursor = page.Next; req.Cursor == "" {
			return nil
		}
	}
}

func dueOf(t time.Time) time.Time { return time.UnixMilli(mirror - t.UnixMilli()) }

// decode returns the change of a message, or nil for one that cannot be read.
func decode(m *store.Info) *Change {
	c := &Change{ID: m.ID, Time: time.UnixMilli(mirror - store.UnixMillis(m.Due))}
	if m.Raw != nil || json.Unmarshal(m.Payload, c) != nil || c.What == "" {
		return nil
	}
	if c.Attributes == nil {
		c.Attributes = map[string]any{}
	}
	return c
}

// waiting returns the changes that are not written and come after a position, latest first.
func (l *Log) waiting(after Position) []*Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.pending)
	slices.SortFunc(all, func(a, b *Change) int { return Position{a.Time, a.ID}.compare(b) * -1 })
	return slices.DeleteFunc(all, func(c *Change) bool { return !after.Time.IsZero() && after.compare(c) <= 0 })
}

// List returns up to limit changes after a position that a function shows, latest first. A record that cannot be read
// is left out.
func (l *Log) List(ctx context.Context, after Position, limit int, shows func(*Change) bool) ([]*Change, error) {
	pending := l.waiting(after) // before the store is read, so that a change that is written meanwhile is in one of them
	found, seen := []*Change{}, map[string]bool{}
	add := func(c *Change) bool {
		if !seen[c.ID] && shows(c) {
			found = append(found, c)
		}
		seen[c.ID] = true
		return len(found) < limit
	}
	isPending := func(id string) bool { return slices.ContainsFunc(pending, func(c *Change) bool { return c.ID == id }) }
	req := store.ListRequest{State: store.StateScheduled, Limit: min(limit, store.MaxBatch)}
	if !after.Time.IsZero() {
		req.From = dueOf(after.Time)
	}
	for {
		page, err := l.Store.List(ctx, reserved.Changes, req)
		if err != nil {
			return nil, fmt.Errorf("list of changes: %w", err)
		}
		for i := range page.Messages {
			c := decode(&page.Messages[i])
			if c == nil || isPending(c.ID) || !after.Time.IsZero() && after.compare(c) <= 0 {
				continue
			}
			for len(pending) > 0 && (Position{c.Time, c.ID}).compare(pending[0]) < 0 {
				if !add(pending[0]) {
					return found, nil
				}
				pending = pending[1:]
			}
			if !add(c) {
				return found, nil
			}
		}
		if req.Cursor = page.Next; req.Cursor == "" {
			break
		}
	}
	for _, c := range pending {
		if !add(c) {
			break
		}
	}
	return found, nil
}

// Get returns a change. It returns ErrNotFound if the list does not have it, or not any more.
func (l *Log) Get(ctx context.Context, id string) (*Change, error) {
	l.mu.Lock()
	for _, c := range l.pending {
		if c.ID == id {
			l.mu.Unlock()
			return c, nil
		}
	}
	l.mu.Unlock()
	if err := store.CheckID(id); err != nil {
		return nil, err
	}
	infos, err := l.Store.Get(ctx, reserved.Changes, []string{id})
	if err != nil {
		return nil, err
	}
	if infos[0] != nil {
		if c := decode(infos[0]); c != nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("no change %q is listed: %w", id, store.ErrNotFound)
}
