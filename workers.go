package later

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/store"
)

// WorkerState is the state of a worker.
type WorkerState = fleet.State

// The states of a worker.
const (
	WorkerRunning  = fleet.Running
	WorkerPaused   = fleet.Paused   // it claims nothing; see Worker.Pause
	WorkerDraining = fleet.Draining // it claims nothing and ends when its handlers have
)

// WorkerCommand is a command to a worker; see Client.ControlWorkers.
type WorkerCommand = fleet.Command

// The commands. Drain and restart end Worker.Run as the end of its context does.
const (
	CommandDrain   = fleet.Drain   // Run drains and returns nil
	CommandRestart = fleet.Restart // Run drains and returns ErrRestart
	CommandPause   = fleet.Pause   // Worker.Pause
	CommandResume  = fleet.Resume  // Worker.Resume
)

// WorkerInfo is a live worker as it last reported itself; see Client.Workers. All times are of the store's clock.
type WorkerInfo struct {
	// ID is different for every call of Worker.Run.
	ID string
	// Name is WorkerConfig.Name, which several workers can have.
	Name string
	Host string // os.Hostname
	PID  int    // os.Getpid
	// Process is different for every start of a program, also if it executed itself and so kept its PID.
	Process string
	Version string // WorkerConfig.Version
	State   WorkerState
	// Concurrency is that of the WorkerConfig.
	Concurrency int
	// Queues has the first of the worker's QueueCount queues, as many as have about 1,500 bytes.
	Queues     []string
	QueueCount int
	// Forwards has the queues that the worker moves to destinations, as many as have about 700 bytes.
	Forwards []Forwarded
	// Held has the messages that handlers have held longest, as many as fit into a record of 4 KiB and at most
	// 100. HeldCount is the number of all handlers that run. Messages that are forwarded are not among
	// them.
	Held      []HeldMessage
	HeldCount int
	// Forwarding is the number of messages that the worker holds in order to forward them, or to distribute them to the
	// queues of a topic. Messages that the store moves in one step do not count.
	Forwarding int
	// GivenBack is the kinds given back for another version of the program, most messages first, as many kinds as
	// have about 600 bytes.
	GivenBack []GivenBack
	Started   time.Time // when Run was called
	Heartbeat time.Time // when the worker reported this
	// Now is the store's clock when the worker was listed.
	Now time.Time
}

// Forwarded is a queue with messages that a worker moves: its name, Queue, and the destination, To, as
// Destination.String describes it.
type Forwarded = fleet.Forwarded

// GivenBack is messages that a worker has given back and that have not fallen due again; see the function GiveBack. Of
// several workers of a queue, the one that had a message last counts it.
//
// Queue, Kind and Messages are their queue, kind and number, and Error is why one of them was given back. Kind is ""
// for messages without a kind, and for all kinds beyond 1000.
type GivenBack = fleet.GivenBack

// HeldMessage is a message that a handler holds: its Queue, ID, Key and Attempt, and Since when the handler has it.
type HeldMessage = fleet.Held

// Workers returns the live workers of all processes as of their last heartbeats, sorted by name. A worker sends one
// every 14 seconds and when its state changes. One that ends leaves the list at once, and one that dies within 30
// seconds. ReportWorkers returns their current state.
//
// At most 1,000 are listed, and none with WorkerConfig.Unlisted. Workers also removes the records of dead ones.
func (c *Client) Workers(ctx context.Context) ([]WorkerInfo, error) {
	return c.listed(func() ([]fleet.Info, error) { return c.fleet.List(ctx) })
}

// ReportWorkers asks all workers for the messages they hold, waits for them for a time, 1 s if it is 0, and returns all
// live workers. Workers that do not answer are returned as of their last heartbeat.
func (c *Client) ReportWorkers(ctx context.Context, wait time.Duration) ([]WorkerInfo, error) {
	return c.listed(func() ([]fleet.Info, error) { return c.fleet.Report(ctx, wait) })
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
	if err := fleet.CheckControl(do, names); err != nil {
		return nil, err
	}
	return c.listed(func() ([]fleet.Info, error) { return c.fleet.Control(ctx, do, names) })
}

// listed makes calls that return workers.
func (c *Client) listed(call func() ([]fleet.Info, error)) (all []WorkerInfo, err error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	infos, err := call()
	for _, info := range infos {
		all = append(all, WorkerInfo(info))
	}
	return all, err
}

// WorkerError is why one worker did not obey a command.
type WorkerError struct {
	Worker WorkerInfo
	Err    error
}

func (e *WorkerError) Error() string { return fmt.Sprintf("worker %s: %v", e.Worker.Name, e.Err) }

// Unwrap returns Err.
func (e *WorkerError) Unwrap() error { return e.Err }

// RemoteWorker is a worker in another program, such as a client of the HTTP API. This program calls Receive for it.
type RemoteWorker struct {
	// ID is the same for all calls for the worker, in all programs that make some. Two workers have different ones.
	ID string
	// Name and Version are as in WorkerConfig.
	Name, Version string
	// Concurrency is how many messages the worker handles at a time. Default: n of the ReceiveFor.
	Concurrency int
}

// ReceiveFor is Receive for a remote worker. The worker is listed by Workers during the call and for 16 to 30 seconds
// after it, or for the lease of its messages if that is longer, up to 15 minutes. It holds the messages that its last
// call returned. Any client of the store can make the next call. One call should be made at a time, for all queues of
// the worker.
//
// told is the command to the worker, see ControlWorkers, or "". After CommandPause it receives nothing, but the call
// waits, and continues when the worker is resumed. CommandDrain and CommandRestart end the call without messages: the
// worker finishes its messages and ends. CommandDrain is repeated until the worker is resumed, or until it made no call
// for as long as it is listed. CommandRestart is not repeated, because the next call may come from the new program.
//
// It makes about three calls to the store more than Receive.
func (c *Client) ReceiveFor(ctx context.Context, w RemoteWorker, n int, queues []ReceiveQueue, opts ...ReceiveOption) (
	got []*Delivery, told WorkerCommand, err error,
) {
	r, err := c.newReceiver(n, queues, opts)
	if err != nil {
		return nil, "", err
	}
	self := fleet.Info{ID: w.ID, Name: w.Name, Version: w.Version, Concurrency: cmp.Or(w.Concurrency, n)}
	for _, q := range queues {
		self.Queues = append(self.Queues, q.Name)
	}
	if r.Worker, err = c.fleet.NewRemote(self, c.loops.Go); err != nil {
		return nil, "", err
	}
	if got, err = c.receive(ctx, r); len(got) > 0 {
		held := make([]HeldMessage, len(got))
		for i, d := range got {
			held[i] = HeldMessage{Queue: d.Queue, ID: d.ID, Key: d.Key, Attempt: d.Attempt}
		}
		r.Worker.Hold(ctx, held, r.Lease)
	}
	return got, r.Worker.Told, err
}

// errDrain ends a worker that was told to drain.
var errDrain = errors.New("worker was told to drain")

// newMember returns the Member that lists the worker and has it obey commands.
func (r *run) newMember(w *Worker) *fleet.Member {
	self := fleet.Info{Name: w.cfg.Name, Version: w.cfg.Version, Concurrency: w.cfg.Concurrency, Queues: r.queues,
		QueueCount: len(r.queues)}
	for _, f := range r.forwarders {
		self.Forwards = append(self.Forwards, Forwarded{Queue: f.queue.name, To: f.to.String()})
	}
	every := fleet.BeatEvery
	if _, local := r.Store.(store.Local); local {
		every = topic.LocalEvery
	}
	return fleet.New(r.Handling, &r.client.fleet, fleet.Config{
		Self: self, Every: every, Log: r.Log, Allow: w.cfg.OnCommand,
		Describe: func(i *fleet.Info) {
			i.Held, i.HeldCount = r.Held()
			i.Forwarding, i.GivenBack, i.State = int(r.Holding.Load()), r.GivenBack(), WorkerRunning
			if w.Paused() {
				i.State = WorkerPaused
			}
		},
		Obey: func(do WorkerCommand) {
			switch do {
			case CommandDrain:
				r.end(errDrain)
			case CommandRestart:
				r.end(ErrRestart)
			case CommandPause:
				w.Pause()
			case CommandResume:
				w.Resume()
			}
		},
	})
}

// Claimed returns a channel that is closed when the worker has claimed from one of its queues for the first time, and
// so is ready to work, whether or not it found messages.
func (w *Worker) Claimed() <-chan struct{} { return w.claimed }

// Alive returns an error if a part of the running worker is stuck, for health checks and watchdogs: a call to the store
// has not returned 10 seconds after its time limit, or leases have not been looked after for 10 seconds. If the worker
// is locked up, Alive does not return. Alive returns nil while the store fails, because the worker retries, and while a
// handler is slow. It returns ErrInvalid before Run.
func (w *Worker) Alive() error {
	w.mu.Lock()
	r := w.run
	w.mu.Unlock()
	if r == nil {
		return store.Invalid("worker does not run: call Run first")
	}
	if err := r.Alive(); err != nil {
		return err
	}
	for _, f := range r.forwarders {
		if err := r.CheckClaims(f.queue.name, &f.batch.Watch); err != nil {
			return err
		}
	}
	return nil
}
