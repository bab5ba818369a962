package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

const (
	// stateName is the property of a remote worker's own queue with its state. The list of workers would not do,
	// because a read of one of its records reads all.
	stateName = "state"
	// freshFor is the age from which the record of a remote worker is written again.
	freshFor = 10 * time.Second
	// maxRemoteLease limits how long a remote worker stays listed because of the messages it received.
	maxRemoteLease = 15 * time.Minute
)

// Remote keeps a worker of a program without the Go API in the list of workers during one call for it, and obeys
// commands.
type Remote struct {
	*Directory
	Told Command // the last command to the worker, or ""
	self Info
	hash uint64 // of self

	queue   string       // of its commands
	spawn   func(func()) // starts a goroutine
	state   state
	clock   clock // of the last Poll
	wake    chan struct{}
	waiting atomic.Bool // a goroutine waits for commands
}

// state is the state that the calls for a remote worker share, as JSON. Times are of the store's clock.
type state struct {
	State   State     `json:"state"`
	Started time.Time `json:"started"`
	At      time.Time `json:"at"`      // when its record was written
	Expires time.Time `json:"expires"` // afterwards it is another worker with the same id
	Record  uint64    `json:"record"`  // a hash of the constant part of its record
	Seen    []seen    `json:"seen,omitempty"`
}

// NewRemote returns a Remote. The worker has an ID, a Name, a Version, a Concurrency and Queues. spawn calls a function
// in a goroutine, which the caller waits for.
func (d *Directory) NewRemote(self Info, spawn func(func())) (*Remote, error) {
	queue := reserved.Worker + self.ID
	if err := store.CheckQueue(queue); err != nil || self.ID == "" {
		return nil, store.Invalid("id of a worker is %q: must have 1 to %d bytes without braces", self.ID,
			store.MaxQueueName-len(reserved.Worker))
	}
	if self.Name == "" {
		return nil, store.Field("worker",
			store.Invalid("worker's name is empty: must have 1 to %d bytes", store.MaxWorkerName))
	}
	if err := cmp.Or(store.Field("worker", CheckText("name", self.Name)),
		store.Field("version", CheckText("version", self.Version)),
		store.Field("worker", store.CheckNew("worker's name", self.Name))); err != nil {
		return nil, err
	}
	if self.Concurrency < 1 {
		return nil, store.Invalid("worker's concurrency is %d: give 1 or more", self.Concurrency)
	}
	self.Process, self.QueueCount = self.ID, len(self.Queues)
	hash := fnv.New64a()
	hash.Write([]byte(record{Info: self}.encode()))
	return &Remote{Directory: d, self: self, hash: hash.Sum64(), queue: queue, spawn: spawn,
		wake: make(chan struct{}, 1)}, nil
}

// Paused reports whether the worker is paused.
func (r *Remote) Paused() bool { return r.state.State == Paused }

// Poll obeys commands and keeps the worker listed. It reports whether the worker is to end.
func (r *Remote) Poll(ctx context.Context) (ended bool, err error) {
	calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), calls.Timeout)
	defer cancel()
	commands, err := r.readState(calling)
	if err != nil {
		return false, fmt.Errorf("worker %q: %w", r.self.Name, err)
	}
	now := r.clock.now
	if r.state.Expires.Before(now) {
		r.state = state{State: Running, Seen: r.state.Seen}
	}
	starts := r.state.Started.IsZero()
	if starts {
		r.state.Started = now
	}
	r.Told = ""
	restarts := false
	for i := range commands {
		c, err := parse(commands[i].Payload)
		r.state.Seen = addSeen(r.state.Seen, commands[i].ID, err)
		switch c.Command {
		case Pause:
			r.state.State = Paused
		case Resume:
			r.state.State = Running
		case Drain:
			r.state.State = Draining
		case Restart:
			restarts = true
		}
	}
	switch {
	case restarts:
		r.state.State, r.Told = Draining, Restart
	case r.state.State == Draining:
		r.Told = Drain
	case r.Paused():
		r.Told = Pause
	}
	if starts || len(commands) > 0 || r.state.Record != r.hash || now.Sub(r.state.At) >= freshFor {
		r.logged(r.writeState(calling, nil, Lease))
	}
	return r.Told == Drain || r.Told == Restart, nil
}

// readState reads the worker's state, and claims and acks its commands.
func (r *Remote) readState(ctx context.Context) ([]store.Claimed, error) {
	properties, err := r.Store.Properties(ctx, r.queue)
	if err != nil {
		return nil, err
	}
	r.state = state{}
	if text := properties[stateName]; text != "" {
		if err := json.Unmarshal([]byte(text), &r.state); err != nil {
			return nil, fmt.Errorf("%w: its state is %.80q: %w", store.ErrCorrupt, text, err)
		}
	}
	claim, err := r.receive(ctx, r.queue)
	if !claim.Now.IsZero() {
		r.clock = clock{claim.Now, time.Now()}
	}
	return claim.Messages, err
}

// writeState writes the worker's record and its state, so that it stays listed for a time. The record comes first,
// because the queue of a worker without one may be deleted.
func (r *Remote) writeState(ctx context.Context, held []Held, listed time.Duration) error {
	rec := record{Info: r.self, Seen: r.state.Seen}
	rec.State, rec.Started, rec.Heartbeat = r.state.State, r.state.Started, r.clock.time()
	rec.Expires, rec.Held, rec.HeldCount = rec.Heartbeat.Add(listed), held, len(held)
	if err := r.write(ctx, r.self.ID, rec); err != nil {
		return err
	}
	if held != nil && !r.state.Expires.Before(rec.Expires) {
		return nil
	}
	r.state.At, r.state.Expires, r.state.Record = rec.Heartbeat, rec.Expires.Add(Lease), r.hash
	stored := r.state
	if r.Told == Restart {
		stored.State, stored.Started = Running, time.Time{} // of the program that comes next
	}
	return r.Store.SetProperties(ctx, r.queue, map[string]string{stateName: string(compact(stored))}, nil)
}

// Hold lists the messages that the worker has received under a lease. Their Since is now.
func (r *Remote) Hold(ctx context.Context, held []Held, lease time.Duration) {
	for i := range held {
		held[i].Since = r.clock.time()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), calls.Timeout)
	defer cancel()
	r.logged(r.writeState(ctx, held, max(Lease, min(lease, maxRemoteLease))))
}

// Changed returns a channel that receives when Poll is to be called, until stop is.
func (r *Remote) Changed(ctx context.Context) (signal <-chan struct{}, stop func()) {
	kick := func() {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	if r.waiting.CompareAndSwap(false, true) {
		r.spawn(func() {
			err := r.Store.Wait(store.Patient(ctx), r.queue)
			r.waiting.Store(false)
			if err == nil {
				kick()
			}
		})
	}
	timer := time.AfterFunc(BeatEvery, kick)
	return r.wake, func() { timer.Stop() }
}

// logged logs that a worker cannot be listed. It works all the same.
func (r *Remote) logged(err error) {
	if err != nil {
		r.Log.Debug("later: a worker cannot be listed", "worker", r.self.Name, "error", err)
	}
}
