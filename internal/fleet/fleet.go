// Package fleet knows the workers of a store: it lists them, sends them commands, keeps a running worker listed, and
// makes it obey. Live workers are the properties of the queue reserved.Worker: a record under each worker's id.
// Commands to a worker are messages of the queue reserved.Worker with its id.
//
// It imports packages store, internal/calls, internal/pump and internal/reserved. Start reading at Directory, which
// other programs use, then at Member, a worker of this program. Remote is a worker of a program without the Go API.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

const (
	// Lease is how long a worker stays listed after its last heartbeat.
	Lease = 30 * time.Second
	// BeatEvery is the time between heartbeats. With a claim of the commands every minute (store.Patient) and a look
	// for dead workers every CleanEvery, an idle worker makes 0.096 calls a second in order to be listed.
	BeatEvery = 14 * time.Second
	// CleanEvery is the time between looks for dead workers, by one of the workers. A look takes about three calls.
	CleanEvery = 6 * time.Minute
	// CommandExpiry is how long a command waits for its worker.
	CommandExpiry = 2 * time.Minute

	maxCleaned = 100 // dead workers that one listing removes
)

// State is the state of a worker.
type State string

// The states of a worker.
const (
	Running  State = "running"
	Paused   State = "paused"
	Draining State = "draining"
)

// Info is a live worker as it last reported itself. The root package documents the fields, as WorkerInfo. The JSON is
// that of a record.
type Info struct {
	ID          string      `json:"-"`
	Name        string      `json:"name"`
	Host        string      `json:"host,omitempty"`
	PID         int         `json:"pid"`
	Process     string      `json:"process"`
	Version     string      `json:"version,omitempty"`
	State       State       `json:"state"`
	Concurrency int         `json:"concurrency"`
	Queues      []string    `json:"queues"`
	QueueCount  int         `json:"queue_count"`
	Forwards    []Forwarded `json:"forwards,omitempty"`
	Held        []Held      `json:"-"`
	HeldCount   int         `json:"held_count,omitempty"`
	Forwarding  int         `json:"forwarding,omitempty"`
	GivenBack   []GivenBack `json:"given_back,omitempty"`
	Started     time.Time   `json:"started"`
	Heartbeat   time.Time   `json:"heartbeat"`
	Now         time.Time   `json:"-"`
}

// Forwarded is a queue with the destination to which a worker moves its messages.
type Forwarded struct {
	Queue string `json:"queue"`
	To    string `json:"to"`
}

// GivenBack is messages of one kind that a worker has given back and that have not fallen due again.
type GivenBack struct {
	Queue    string `json:"queue"`
	Kind     string `json:"kind,omitempty"`
	Error    string `json:"error"` // why, of one of them
	Messages int    `json:"messages"`
}

// Held is a message that a handler holds.
type Held struct {
	Queue, ID, Key string
	Attempt        int
	Since          time.Time // when the handler was called
}

// Directory is the list of the live workers of a store.
type Directory struct {
	Store store.Store
	Log   *slog.Logger
	// Fault returns the error of a worker that does not obey a command.
	Fault func(Info, error) error

	orphansAt atomic.Int64 // when List looked for orphans, in ns since 1970
}

// List returns the live workers, sorted by name. It removes the remains of dead ones.
func (d *Directory) List(ctx context.Context) ([]Info, error) {
	live, err := d.read(ctx)
	if last, now := d.orphansAt.Load(), time.Now().UnixNano(); err == nil && now-last >= int64(CleanEvery) &&
		d.orphansAt.CompareAndSwap(last, now) {
		if err := d.RemoveOrphans(ctx); err != nil {
			d.Log.Debug("later: what dead workers left cannot be removed", "error", err)
		}
	}
	return infos(live), err
}

// read returns the records of the live workers, sorted by name, and removes those of dead ones.
func (d *Directory) read(ctx context.Context) (live []record, err error) {
	stats, err := d.Store.Stats(ctx, reserved.Worker)
	var all map[string]string
	if err == nil {
		all, err = d.Store.Properties(ctx, reserved.Worker)
	}
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	var dead []string
	for id, text := range all {
		r, err := decode(id, text)
		switch r.Now = stats.Now; {
		case err != nil: // of another version, or damaged; not worth hiding the others
			d.Log.Warn("later: a worker cannot be listed", "error", err)
		case r.Expires.After(stats.Now):
			live = append(live, r)
		case r.Expires.Add(Lease).Before(stats.Now): // else it may have been busy or cut off, and come back
			dead = append(dead, id)
		}
	}
	slices.SortFunc(live, func(a, b record) int { return byName(a.Info, b.Info) })
	if err := d.remove(ctx, dead[:min(len(dead), maxCleaned)]); err != nil {
		d.Log.Debug("later: dead workers cannot be removed", "error", err)
	}
	return live, nil
}

func byName(a, b Info) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
}

// write lists a worker under its id.
func (d *Directory) write(ctx context.Context, id string, r record) error {
	set := map[string]string{id: r.encode()}
	for cleaned := false; ; cleaned = true {
		err := d.Store.SetProperties(ctx, reserved.Worker, set, nil)
		if cleaned || !errors.Is(err, store.ErrTooLarge) {
			return err
		}
		if _, err := d.read(ctx); err != nil { // removes dead ones
			return err
		}
	}
}

// remove removes workers and their commands. The record goes first: the sender of a command looks for it afterwards
// and, if it is gone, deletes the queue.
func (d *Directory) remove(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	remove := map[string]string{}
	for _, id := range ids {
		remove[id] = ""
	}
	err := d.Store.SetProperties(ctx, reserved.Worker, remove, nil)
	for i := 0; err == nil && i < len(ids); i++ {
		err = d.Store.Delete(ctx, reserved.Worker+ids[i])
	}
	return err
}

// RemoveOrphans removes the remains of workers without a record: the queue of one whose removal was interrupted, or of
// one that had ended when a command to it reached the store.
func (d *Directory) RemoveOrphans(ctx context.Context) error {
	var ids []string
	for cursor, more := "", true; more; more = cursor != "" {
		names, next, err := d.Store.Queues(ctx, cursor)
		if err != nil {
			return err
		}
		for _, name := range names {
			if id, ok := reserved.CutWorker(name); ok {
				ids = append(ids, id)
			}
		}
		cursor = next
	}
	if len(ids) == 0 {
		return nil
	}
	// Read after the queues: a program that created one to send a command had found the worker's record.
	records, err := d.Store.Properties(ctx, reserved.Worker)
	if err != nil {
		return err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { _, ok := records[id]; return ok })
	return d.remove(ctx, ids[:min(len(ids), maxCleaned)])
}
