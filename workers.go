package later

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

// Live workers are the properties of the queue reserved.Worker: a workerRecord under each worker's id. Commands to a
// worker are messages of the queue reserved.Worker with its id (worker_presence.go).

const (
	// presenceLease is how long a worker stays listed after its last heartbeat.
	presenceLease = 30 * time.Second
	// commandExpiry is how long a command waits for its worker.
	commandExpiry = 2 * time.Minute
	// maxCleaned is how many dead workers one listing removes.
	maxCleaned = 100
	// senders is the number of commands that are sent at a time.
	senders = 16
	// While a command is awaited, the workers are read at intervals that grow from minLook to maxLook.
	minLook = 10 * time.Millisecond
	maxLook = 250 * time.Millisecond
)

// WorkerCommand is a command to a worker; see Client.ControlWorkers.
type WorkerCommand string

// The commands. Drain and restart end Worker.Run as the end of its context does.
const (
	CommandDrain   WorkerCommand = "drain"   // Run drains and returns nil
	CommandRestart WorkerCommand = "restart" // Run drains and returns ErrRestart
	CommandPause   WorkerCommand = "pause"   // Worker.Pause
	CommandResume  WorkerCommand = "resume"  // Worker.Resume
	CommandReport  WorkerCommand = "report"  // report at once what handlers hold, for Client.Workers
)

// check returns an ErrInvalid for an unknown command.
func (c WorkerCommand) check() error {
	switch c {
	case CommandDrain, CommandRestart, CommandPause, CommandResume, CommandReport:
		return nil
	}
	return store.Invalid("worker command is %q: give drain, restart, pause, resume or report", string(c))
}

// command is the payload of the message that carries a command.
type command struct {
	Command WorkerCommand `json:"command"`
	From    string        `json:"from"` // the sender, for the log
}

// Workers returns the live workers of all processes as of their last heartbeats, sorted by name. A worker sends one
// every 14 seconds and when its state changes. One that ends leaves the list at once, and one that dies within 30
// seconds. ReportWorkers returns their current state.
//
// At most MaxWorkers are listed, and none with WorkerConfig.Unlisted. Workers also removes the records of dead ones.
func (c *Client) Workers(ctx context.Context) ([]WorkerInfo, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	live, err := c.workers(ctx)
	if last, now := c.orphansAt.Load(), time.Now().UnixNano(); err == nil && now-last >= int64(cleanEvery) &&
		c.orphansAt.CompareAndSwap(last, now) {
		if err := c.removeOrphans(ctx); err != nil {
			c.log.Debug("later: what dead workers left cannot be removed", "error", err)
		}
	}
	return live, err
}

func (c *Client) workers(ctx context.Context) ([]WorkerInfo, error) {
	stats, err := c.store.Stats(ctx, reserved.Worker)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	all, err := c.store.Properties(ctx, reserved.Worker)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	var live []WorkerInfo
	var dead []string
	for id, text := range all {
		info, expires, err := decodeWorker(id, text, stats.Now)
		switch {
		case err != nil: // of another version, or damaged; not worth hiding the others
			c.log.Warn("later: a worker cannot be listed", "error", err)
		case expires.After(stats.Now):
			live = append(live, info)
		case expires.Add(presenceLease).Before(stats.Now): // else it may have been busy or cut off, and come back
			dead = append(dead, id)
		}
	}
	slices.SortFunc(live, byName)
	if err := c.removeWorkers(ctx, dead[:min(len(dead), maxCleaned)]); err != nil {
		c.log.Debug("later: dead workers cannot be removed", "error", err)
	}
	return live, nil
}

func byName(a, b WorkerInfo) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
}

// removeWorkers removes workers and their commands. The record goes first: whoever sends a command looks for it
// afterwards and, if it is gone, deletes the queue.
func (c *Client) removeWorkers(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	remove := map[string]string{}
	for _, id := range ids {
		remove[id] = ""
	}
	if err := c.store.SetProperties(ctx, reserved.Worker, remove, nil); err != nil {
		return err
	}
	for _, id := range ids {
		if err := c.store.Delete(ctx, reserved.Worker+id); err != nil {
			return err
		}
	}
	return nil
}

// removeOrphans removes the remains of workers without a record: the queue of one whose removal was interrupted, or of
// one that had ended when a command to it reached the store.
func (c *Client) removeOrphans(ctx context.Context) error {
	var ids []string
	for cursor := ""; ; {
		names, next, err := c.store.Queues(ctx, cursor)
		if err != nil {
			return err
		}
		for _, name := range names {
			if id, ok := reserved.CutWorker(name); ok {
				ids = append(ids, id)
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if len(ids) == 0 {
		return nil
	}
	// Read after the queues: whoever created one to send a command had found the worker's record.
	records, err := c.store.Properties(ctx, reserved.Worker)
	if err != nil {
		return err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { _, ok := records[id]; return ok })
	return c.removeWorkers(ctx, ids[:min(len(ids), maxCleaned)])
}

// ReportWorkers asks all workers for the messages they hold, waits for them for a time, 1 s if it is 0, and returns all
// live workers. Workers that do not answer are returned as of their last heartbeat.
func (c *Client) ReportWorkers(ctx context.Context, wait time.Duration) ([]WorkerInfo, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	all, err := c.workers(ctx)
	if err != nil || len(all) == 0 {
		return all, err
	}
	if wait <= 0 {
		wait = time.Second
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	now, err := c.command(waiting, CommandReport, all)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if now != nil {
		return now, nil
	}
	return all, nil
}

// ControlWorkers sends a command to live workers and returns when each of them has begun to obey it or has ended.
// Names are WorkerInfo.Name, which may stand for several workers, or WorkerInfo.ID. It returns the workers that it
// told, as they were before.
//
// It returns ErrNotFound, with the names of the live workers, if one of the names is unknown; then no worker is told.
// Otherwise it returns a WorkerError, joined with others, for each worker that could not be told, that refuses the
// command because its WorkerConfig.OnCommand does, or that does not answer until ctx ends or for 30 seconds. The last
// of these is an ErrUnavailable, and the worker obeys if it can within two minutes.
func (c *Client) ControlWorkers(ctx context.Context, do WorkerCommand, names ...string) ([]WorkerInfo, error) {
	if err := do.check(); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, store.Invalid("no worker is named: name those that Workers returns")
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	live, err := c.workers(ctx)
	if err != nil {
		return nil, err
	}
	told, err := selectWorkers(live, names)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = c.command(ctx, do, told)
	return told, err
}

// WorkerError is why one worker did not obey a command.
type WorkerError struct {
	Worker WorkerInfo
	Err    error
}

func (e *WorkerError) Error() string { return fmt.Sprintf("worker %s: %v", e.Worker.Name, e.Err) }

// Unwrap returns Err.
func (e *WorkerError) Unwrap() error { return e.Err }

// selectWorkers returns the named workers.
func selectWorkers(live []WorkerInfo, names []string) (selected []WorkerInfo, err error) {
	for _, name := range names {
		is := func(w WorkerInfo) bool { return w.Name == name || w.ID == name }
		if !slices.ContainsFunc(live, is) {
			return nil, unknownWorker(live, name)
		}
	}
	for _, w := range live {
		if slices.Contains(names, w.Name) || slices.Contains(names, w.ID) {
			selected = append(selected, w)
		}
	}
	return selected, nil
}

func unknownWorker(live []WorkerInfo, name string) error {
	const maxNamed = 10
	if len(live) == 0 {
		return &detail{fmt.Sprintf("no worker %q: no worker is live", name), ErrNotFound}
	}
	var names []string
	for _, w := range live {
		names = append(names, w.Name)
	}
	names = slices.Compact(names) // sorted
	more := ""
	if len(names) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(names)-maxNamed)
		names = names[:maxNamed]
	}
	return &detail{fmt.Sprintf("no worker %q; live workers: %s%s", name, strings.Join(names, ", "), more), ErrNotFound}
}

// command sends a command to workers and waits until each has acknowledged it or is gone. It returns all workers as
// they were last seen, or nil if they were not seen.
func (c *Client) command(ctx context.Context, do WorkerCommand, told []WorkerInfo) (now []WorkerInfo, err error) {
	waiting := make(map[string]WorkerInfo, len(told)) // by id of the command
	var mu sync.Mutex
	var sending sync.WaitGroup
	slots := make(chan struct{}, senders)
	var failed []error // those not told, and those that refuse
	for _, w := range told {
		sending.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			id, err := c.sendCommand(ctx, do, w.ID)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, &WorkerError{w, fmt.Errorf("cannot be told: %w", err)})
			} else {
				waiting[id] = w
			}
		})
	}
	sending.Wait()
	for look := minLook; ; look = min(look*3/2, maxLook) {
		all, err := c.workers(ctx)
		if err == nil {
			now = all
			failed = append(failed, c.acknowledged(ctx, waiting, all)...)
		} else if calls.IsPermanent(err) {
			return now, err
		}
		if len(waiting) == 0 {
			return now, errors.Join(failed...)
		}
		if calls.Sleep(ctx, look) != nil {
			return now, errors.Join(append(failed, silent(waiting)...)...)
		}
	}
}

// sendCommand returns the id of the command.
func (c *Client) sendCommand(ctx context.Context, do WorkerCommand, worker string) (string, error) {
	id := store.NewID()
	payload, err := json.Marshal(command{do, fmt.Sprintf("%s:%d", hostName(), os.Getpid())})
	if err != nil {
		return id, err
	}
	_, err = c.store.Send(ctx, reserved.Worker+worker, []store.Outgoing{{Message: store.Message{
		ID: id, Payload: payload, ExpireAfter: commandExpiry,
	}}})
	return id, err
}

// acknowledged removes from waiting the commands of workers that have seen them or are gone. It returns an error for
// each that is refused.
func (c *Client) acknowledged(ctx context.Context, waiting map[string]WorkerInfo, now []WorkerInfo) (refused []error) {
	live := make(map[string]WorkerInfo, len(now))
	for _, w := range now {
		live[w.ID] = w
	}
	for _, id := range slices.Collect(maps.Keys(waiting)) {
		w, ok := live[waiting[id].ID]
		i := slices.IndexFunc(w.seen, func(s seenCommand) bool { return s.ID == id })
		switch {
		case !ok: // it may have ended just before the command was sent
			if err := c.store.Delete(ctx, reserved.Worker+waiting[id].ID); err != nil {
				continue
			}
		case i < 0:
			continue
		case w.seen[i].Refused != "":
			refused = append(refused, &WorkerError{w, errors.New("refused: " + w.seen[i].Refused)})
		}
		delete(waiting, id)
	}
	return refused
}

// silent returns the errors of workers that did not answer.
func silent(waiting map[string]WorkerInfo) (all []error) {
	for _, w := range slices.SortedFunc(maps.Values(waiting), byName) {
		all = append(all, &WorkerError{w, &detail{"does not answer", ErrUnavailable}})
	}
	return all
}
