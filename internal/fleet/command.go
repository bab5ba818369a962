package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

const (
	senders = 16 // commands that are sent at a time
	// While a command is awaited, the workers are read at intervals that grow from minLook to maxLook.
	minLook = 10 * time.Millisecond
	maxLook = 250 * time.Millisecond

	maxClaimed   = 10 // commands that are claimed at once
	commandLease = 30 * time.Second
)

// Command is a command to a worker.
type Command string

// The commands.
const (
	Drain   Command = "drain"
	Restart Command = "restart"
	Pause   Command = "pause"
	Resume  Command = "resume"
	Report  Command = "report"
)

// check returns an ErrInvalid for an unknown command.
func (c Command) check() error {
	switch c {
	case Drain, Restart, Pause, Resume, Report:
		return nil
	}
	return store.Invalid("worker command is %q: give drain, restart, pause, resume or report", string(c))
}

// message is the payload of the message that carries a command.
type message struct {
	Command Command `json:"command"`
	From    string  `json:"from"` // the sender, for the log
}

// Report asks all workers for the messages they hold, waits for them for a time, 1 s if it is 0, and returns them.
// Workers that do not answer are returned as of their last heartbeat.
func (d *Directory) Report(ctx context.Context, wait time.Duration) ([]Info, error) {
	live, err := d.read(ctx)
	if err != nil || len(live) == 0 {
		return nil, err
	}
	if wait <= 0 {
		wait = time.Second
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	now, err := d.command(waiting, Report, infos(live))
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if now == nil {
		now = live
	}
	return infos(now), nil
}

// Control sends a command to the workers with the names or ids, and returns when each obeys, refuses or has ended.
func (d *Directory) Control(ctx context.Context, do Command, names []string) ([]Info, error) {
	records, err := d.read(ctx)
	if err != nil {
		return nil, err
	}
	live, unknown := infos(records), slices.Clone(names)
	told := slices.DeleteFunc(slices.Clone(live), func(w Info) bool {
		unknown = slices.DeleteFunc(unknown, func(name string) bool { return name == w.Name || name == w.ID })
		return !slices.Contains(names, w.Name) && !slices.Contains(names, w.ID)
	})
	if len(unknown) > 0 {
		return nil, unknownWorker(live, unknown[0])
	}
	ctx, cancel := context.WithTimeout(ctx, calls.Timeout)
	defer cancel()
	_, err = d.command(ctx, do, told)
	return told, err
}

// CheckControl returns an ErrInvalid for arguments of Control that are not allowed.
func CheckControl(do Command, names []string) error {
	if err := do.check(); err != nil {
		return err
	}
	if len(names) == 0 {
		return store.Invalid("no worker is named: name those that Workers returns")
	}
	return nil
}

func unknownWorker(live []Info, name string) error {
	const maxNamed = 10
	if len(live) == 0 {
		return store.Errorf(store.ErrNotFound, "no worker %q: no worker is live", name)
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
	return store.Errorf(store.ErrNotFound, "no worker %q; live workers: %s%s", name, strings.Join(names, ", "), more)
}

// command sends a command to workers and waits until each has acknowledged it or is gone. It returns all workers as
// they were last seen, or nil if they were not seen.
func (d *Directory) command(ctx context.Context, do Command, told []Info) (now []record, err error) {
	waiting := make(map[string]Info, len(told)) // by id of the command
	var mu sync.Mutex
	var sending sync.WaitGroup
	slots := make(chan struct{}, senders)
	var failed []error // of workers that were not told, or refuse
	for _, w := range told {
		sending.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			id, err := d.Send(ctx, do, w.ID)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, d.Fault(w, fmt.Errorf("cannot be told: %w", err)))
			} else {
				waiting[id] = w
			}
		})
	}
	sending.Wait()
	for look := minLook; ; look = min(look*3/2, maxLook) {
		all, err := d.read(ctx)
		if err == nil {
			now = all
			failed = append(failed, d.acknowledged(ctx, waiting, all)...)
		} else if calls.IsPermanent(err) {
			return now, err
		}
		if len(waiting) == 0 {
			return now, errors.Join(failed...)
		}
		if calls.Sleep(ctx, look) != nil {
			break
		}
	}
	for _, w := range slices.SortedFunc(maps.Values(waiting), byName) {
		failed = append(failed, d.Fault(w, store.Errorf(store.ErrUnavailable, "does not answer")))
	}
	return now, errors.Join(failed...)
}

// Send sends a command to the worker with an id, and returns the id of the command.
func (d *Directory) Send(ctx context.Context, do Command, worker string) (string, error) {
	id := store.NewID()
	_, err := d.Store.Send(ctx, reserved.Worker+worker, []store.Outgoing{{Message: store.Message{
		ID: id, Payload: compact(message{do, DefaultName()}), ExpireAfter: CommandExpiry,
	}}})
	return id, err
}

// acknowledged removes from waiting the commands of workers that have seen them or are gone. It returns an error for
// each that is refused.
func (d *Directory) acknowledged(ctx context.Context, waiting map[string]Info, now []record) (refused []error) {
	for id, w := range waiting {
		live := slices.IndexFunc(now, func(r record) bool { return r.ID == w.ID })
		if live < 0 { // it may have ended just before the command was sent
			if d.Store.Delete(ctx, reserved.Worker+w.ID) == nil {
				delete(waiting, id)
			}
			continue
		}
		r := &now[live]
		if i := slices.IndexFunc(r.Seen, func(s seen) bool { return s.ID == id }); i >= 0 {
			delete(waiting, id)
			if why := r.Seen[i].Refused; why != "" {
				refused = append(refused, d.Fault(r.Info, errors.New("refused: "+why)))
			}
		}
	}
	return refused
}

// receive claims the commands to a worker, and acks them. An error can come with a claim: then they were not acked.
func (d *Directory) receive(ctx context.Context, queue string) (store.Claim, error) {
	req := store.ClaimRequest{Max: maxClaimed, Lease: commandLease, Uncounted: true}
	claim, err := d.Store.Claim(ctx, queue, req)
	if err != nil || len(claim.Messages) == 0 {
		return claim, err
	}
	acks := make([]store.Settlement, len(claim.Messages))
	for i := range claim.Messages {
		acks[i] = store.Settlement{Receipt: claim.Messages[i].Receipt, Action: store.Ack}
	}
	_, err = d.Store.Settle(ctx, queue, acks)
	return claim, err
}

// parse returns the command of a message.
func parse(payload []byte) (m message, err error) {
	if err = json.Unmarshal(payload, &m); err == nil {
		err = m.Command.check()
	}
	return m, err
}
