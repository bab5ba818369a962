package later

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

const (
	// remoteStateName is the property of a remote worker's own queue with its remoteState. The list of workers would not
	// do: whoever reads one of its records reads all.
	remoteStateName = "state"
	// remoteFresh is the age from which the record of a remote worker is written again.
	remoteFresh = 10 * time.Second
	// maxRemoteLease limits how long a remote worker stays listed because of the messages it received.
	maxRemoteLease = 15 * time.Minute
)

// RemoteWorker is a worker in another program, such as a client of the HTTP API, for which this one calls Receive.
type RemoteWorker struct {
	// ID is the same for all calls for the worker, in all programs that make some. Two workers have different ones.
	ID string
	// Name and Version are as in WorkerConfig.
	Name, Version string
	// Concurrency is how many messages the worker handles at a time. Default: n of the ReceiveFor.
	Concurrency int
}

// ReceiveFor is Receive for a remote worker. The worker is listed by Workers during the call and for 16 to 30 seconds
// after it, or for the lease of its messages if that is longer, up to 15 minutes. It holds the messages its last call
// returned.
// Any client of the store can make the next call. One call should be made at a time, for all queues of the worker.
//
// told is the command to the worker, see ControlWorkers, or "". After CommandPause it receives nothing, but the call
// waits, and continues when the worker is resumed. CommandDrain and CommandRestart end the call without messages: the
// worker finishes its messages and ends. CommandDrain is repeated until there was no call for as long as the worker is
// listed, or until it is resumed; CommandRestart is not, because the next call may be that of the new program.
//
// It makes about three calls to the store more than Receive.
func (c *Client) ReceiveFor(ctx context.Context, w RemoteWorker, n int, queues []ReceiveQueue, opts ...ReceiveOption) (
	got []*Delivery, told WorkerCommand, err error,
) {
	r, err := c.newReceiver(n, queues, opts)
	if err != nil {
		return nil, "", err
	}
	if r.worker, err = c.newRemotePresence(w, r); err != nil {
		return nil, "", err
	}
	got, err = r.receive(ctx)
	if len(got) > 0 {
		r.worker.hold(ctx, got, r.options.lease)
	}
	return got, r.worker.told, err
}

// remoteState is the state that the calls for a remote worker share. Times are milliseconds since 1970 of the
// store's clock.
type remoteState struct {
	State   WorkerState   `json:"state"`
	Started int64         `json:"started"`
	At      int64         `json:"at"`      // when its record was written
	Expires int64         `json:"expires"` // afterwards it is another worker with the same id
	Record  uint64        `json:"record"`  // a hash of the constant part of its record
	Seen    []seenCommand `json:"seen,omitempty"`
}

// remotePresence keeps a remote worker in the list of workers during one call, and obeys commands.
type remotePresence struct {
	client *Client
	id     string
	queue  string // of its commands
	record workerRecord
	hash   uint64
	told   WorkerCommand

	state   remoteState
	now     time.Time // the store's clock at the last poll
	at      time.Time // when that was
	wake    chan struct{}
	waiting atomic.Bool // a goroutine waits for commands
}

func (c *Client) newRemotePresence(w RemoteWorker, r *receiver) (*remotePresence, error) {
	if err := store.CheckQueue(reserved.Worker + w.ID); err != nil || w.ID == "" {
		return nil, store.Invalid("id of a worker is %q: give 1 to %d bytes without braces", w.ID,
			store.MaxQueueName-len(reserved.Worker))
	}
	if w.Name == "" {
		return nil, store.Field("worker", store.Invalid("worker's name is empty: give 1 to %d bytes", MaxWorkerName))
	}
	if err := cmp.Or(store.Field("worker", checkWorkerText("name", w.Name)),
		store.Field("version", checkWorkerText("version", w.Version)),
		store.Field("worker", store.CheckNew("worker's name", w.Name))); err != nil {
		return nil, err
	}
	if w.Concurrency == 0 {
		w.Concurrency = r.max
	}
	if w.Concurrency < 1 {
		return nil, store.Invalid("worker's concurrency is %d: give 1 or more", w.Concurrency)
	}
	p := &remotePresence{client: c, id: w.ID, queue: reserved.Worker + w.ID, wake: make(chan struct{}, 1),
		record: workerRecord{Name: w.Name, Process: w.ID, Version: w.Version, Concurrency: w.Concurrency,
			QueueCount: len(r.queues)}}
	for _, q := range r.queues {
		p.record.Queues = append(p.record.Queues, q.name)
	}
	text, err := p.record.encode(nil)
	hash := fnv.New64a()
	hash.Write([]byte(text))
	p.hash = hash.Sum64()
	return p, err
}

func (p *remotePresence) paused() bool { return p.state.State == WorkerPaused }

// poll obeys commands and keeps the worker listed. It reports whether the worker is to end.
func (p *remotePresence) poll(ctx context.Context) (ended bool, err error) {
	calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	commands, err := p.read(calling)
	if err != nil {
		return false, fmt.Errorf("worker %q: %w", p.record.Name, err)
	}
	now := p.now.UnixMilli()
	if p.state.Expires < now {
		p.state = remoteState{State: WorkerRunning, Seen: p.state.Seen}
	}
	starts := p.state.Started == 0
	if starts {
		p.state.Started = now
	}
	p.told = ""
	restarts := false
	for _, text := range commands {
		var c command
		if err := json.Unmarshal(text.Payload, &c); err != nil {
			continue // which the sender notices
		}
		p.state.Seen = append(p.state.Seen[max(0, len(p.state.Seen)-maxSeen+1):], seenCommand{ID: text.ID})
		switch c.Command {
		case CommandPause:
			p.state.State = WorkerPaused
		case CommandResume:
			p.state.State = WorkerRunning
		case CommandDrain:
			p.state.State = WorkerDraining
		case CommandRestart:
			restarts = true
		}
	}
	switch {
	case restarts:
		p.state.State, p.told = WorkerDraining, CommandRestart
	case p.state.State == WorkerDraining:
		p.told = CommandDrain
	case p.paused():
		p.told = CommandPause
	}
	if starts || len(commands) > 0 || p.state.Record != p.hash || now-p.state.At >= remoteFresh.Milliseconds() {
		p.log(p.write(calling, nil, presenceLease, restarts))
	}
	return p.told == CommandDrain || p.told == CommandRestart, nil
}

// read reads the worker's state, and claims and acks its commands.
func (p *remotePresence) read(ctx context.Context) ([]store.Claimed, error) {
	s := p.client.store
	properties, err := s.Properties(ctx, p.queue)
	if err != nil {
		return nil, err
	}
	p.state = remoteState{}
	if text := properties[remoteStateName]; text != "" {
		if err := json.Unmarshal([]byte(text), &p.state); err != nil {
			return nil, fmt.Errorf("%w: its state is %.80q: %w", ErrCorrupt, text, err)
		}
	}
	claim, err := s.Claim(ctx, p.queue, store.ClaimRequest{Max: maxCommands, Lease: defaultLease, Uncounted: true})
	if err != nil {
		return nil, err
	}
	p.now, p.at = claim.Now, time.Now()
	if len(claim.Messages) == 0 {
		return nil, nil
	}
	acks := make([]store.Settlement, len(claim.Messages))
	for i := range claim.Messages {
		acks[i] = store.Settlement{Receipt: claim.Messages[i].Receipt, Action: store.Ack}
	}
	_, err = s.Settle(ctx, p.queue, acks)
	return claim.Messages, err
}

// write writes the worker's record and its state, so that it stays listed for a time. The record comes first: the queue
// of a worker without one may be deleted.
func (p *remotePresence) write(ctx context.Context, held []HeldMessage, listed time.Duration, restarts bool) error {
	now := p.now.Add(time.Since(p.at))
	r := p.record
	r.State, r.Started, r.At, r.Seen = p.state.State, p.state.Started, now.UnixMilli(), p.state.Seen
	r.Expires, r.HeldCount = now.Add(listed).UnixMilli(), len(held)
	text, err := r.encode(held)
	if err != nil {
		return err
	}
	if err := p.client.listWorker(ctx, p.id, text); err != nil {
		return err
	}
	if held != nil && p.state.Expires >= r.Expires {
		return nil
	}
	p.state.At, p.state.Expires, p.state.Record = r.At, now.Add(listed+presenceLease).UnixMilli(), p.hash
	stored := p.state
	if restarts {
		stored.State, stored.Started = WorkerRunning, 0 // of the program that comes next
	}
	state, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	return p.client.store.SetProperties(ctx, p.queue, map[string]string{remoteStateName: string(state)}, nil)
}

// hold lists the messages that the worker has received.
func (p *remotePresence) hold(ctx context.Context, got []*Delivery, lease time.Duration) {
	held := make([]HeldMessage, len(got))
	since := p.now.Add(time.Since(p.at))
	for i, d := range got {
		held[i] = HeldMessage{d.Queue, d.ID, d.Attempt, since}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	p.log(p.write(ctx, held, max(presenceLease, min(lease, maxRemoteLease)), false))
}

// changed returns a channel that receives when poll is to be called, until stop is.
func (p *remotePresence) changed(ctx context.Context) (signal <-chan struct{}, stop func()) {
	kick := func() {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
	if p.waiting.CompareAndSwap(false, true) {
		p.client.loops.Go(func() {
			err := p.client.store.Wait(store.Patient(ctx), p.queue)
			p.waiting.Store(false)
			if err == nil {
				kick()
			}
		})
	}
	timer := time.AfterFunc(presenceEvery, kick)
	return p.wake, func() { timer.Stop() }
}

// log logs that a worker cannot be listed. It works all the same.
func (p *remotePresence) log(err error) {
	if err != nil {
		p.client.log.Debug("later: a worker cannot be listed", "worker", p.record.Name, "error", err)
	}
}
