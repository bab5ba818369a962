package later

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

const (
	// presenceEvery is the time between heartbeats. With a claim of the commands every minute (store.Patient) and a
	// look for dead workers every cleanEvery, an idle worker makes 0.096 calls a second in order to be listed.
	presenceEvery = 14 * time.Second
	// cleanEvery is the time between looks for dead workers, by one of the workers. A look takes about three calls.
	cleanEvery = 6 * time.Minute
	// leaveWithin limits how long Run waits for the worker to be removed from the list.
	leaveWithin = time.Second
	// maxCommands is the number of commands that are claimed at once.
	maxCommands = 10
	// placeTries is how many ids are tried for one whose queue is on a server that the worker uses anyway. In a Cluster
	// of 10 servers all of them miss with a probability of 0.1 %.
	placeTries = 64
)

// outage is whether a kind of calls fails. Its first failure is logged.
type outage struct {
	failing atomic.Bool
	then    string // what that means
}

// errDrain ends a worker that was told to drain.
var errDrain = errors.New("worker was told to drain")

// presence keeps a running worker in the list of workers and obeys commands. Nothing that fails here disturbs the
// worker.
type presence struct {
	run    *run
	worker *Worker
	id     string
	queue  string // of its commands
	record workerRecord

	calling  context.Context // for calls to the store
	giveUp   context.CancelFunc
	obeying  context.Context // until the worker ends
	end      context.CancelFunc
	clocked  chan struct{} // closed when the clock is known
	kicks    chan struct{} // has a token when the record has changed
	tasks    sync.WaitGroup
	listing  outage
	hearing  outage
	draining atomic.Bool
	obeyed   map[string]bool // commands that could not be acked, and may come again

	mu      sync.Mutex
	now     time.Time // the store's clock
	at      time.Time // when it was read
	started time.Time // by the store's clock
	seen    []seenCommand
}

func newPresence(r *run, w *Worker) *presence {
	queues := r.queueNames()
	p := &presence{
		run: r, worker: w,
		record: workerRecord{
			Name: w.cfg.Name, Host: hostName(), PID: os.Getpid(), Process: processID(), Version: w.cfg.Version,
			Concurrency: w.cfg.Concurrency, Queues: queues, QueueCount: len(queues),
			Forwards: w.forwards(),
		},
		clocked: make(chan struct{}), kicks: make(chan struct{}, 1), obeyed: map[string]bool{},
	}
	p.listing.then, p.hearing.then = "the worker cannot be listed", "the worker cannot be told what to do"
	p.calling, p.giveUp = context.WithCancel(r.handling)
	p.obeying, p.end = context.WithCancel(p.calling)
	return p
}

func (p *presence) start() {
	p.tasks.Go(p.listen)
	p.tasks.Go(p.beat)
}

// leave ends the presence and removes the worker from the list, unless the store is failing.
func (p *presence) leave() {
	p.end()
	defer p.giveUp()
	defer time.AfterFunc(leaveWithin, p.giveUp).Stop()
	p.tasks.Wait()
}

// kick has the record written now.
func (p *presence) kick() {
	select {
	case p.kicks <- struct{}{}:
	default:
	}
}

// drain shows that the worker drains.
func (p *presence) drain() {
	p.draining.Store(true)
	p.kick()
}

// beat writes the record at once, when it has changed, and at every heartbeat. In the end it removes the record.
func (p *presence) beat() {
	select {
	case <-p.clocked:
	case <-p.obeying.Done():
		return // the worker was never listed
	}
	every := p.run.unlessLocal(presenceEvery)
	timer := time.NewTimer(rand.N(every)) // workers that start together do not beat together
	defer timer.Stop()
	clean := time.Now().Add(rand.N(cleanEvery)) // when to look for dead workers
	for p.obeying.Err() == nil {
		p.done(&p.listing, p.write())
		if !p.listing.failing.Load() && !time.Now().Before(clean) {
			clean = time.Now().Add(p.clean())
		}
		select {
		case <-timer.C:
			timer.Reset(every)
		case <-p.kicks:
		case <-p.obeying.Done():
		}
	}
	if !p.listing.failing.Load() {
		p.done(&p.listing, p.run.client.removeWorkers(p.calling, []string{p.id}))
	}
}

// write writes the record.
func (p *presence) write() error {
	text, err := p.describe()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.calling, callTimeout)
	defer cancel()
	return p.run.client.listWorker(ctx, p.id, text)
}

// listWorker writes the record of a worker.
func (c *Client) listWorker(ctx context.Context, id, record string) error {
	set := map[string]string{id: record}
	err := c.store.SetProperties(ctx, reserved.Worker, set, nil)
	if !errors.Is(err, ErrTooLarge) {
		return err
	}
	if _, err := c.workers(ctx); err != nil { // removes dead ones
		return err
	}
	return c.store.SetProperties(ctx, reserved.Worker, set, nil)
}

// describe returns the record.
func (p *presence) describe() (string, error) {
	held, n := p.run.held()
	r := p.record
	r.HeldCount, r.Forwarding, r.GivenBack = n, p.run.env.Holding.Load(), p.run.givenBack()
	switch {
	case p.draining.Load():
		r.State = WorkerDraining
	case p.worker.Paused():
		r.State = WorkerPaused
	default:
		r.State = WorkerRunning
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	r.Started, r.At, r.Expires = p.started.UnixMilli(), now.UnixMilli(), now.Add(p.lease()).UnixMilli()
	r.Seen = p.seen
	return r.encode(held)
}

// lease returns how long the worker stays listed after a heartbeat.
func (p *presence) lease() time.Duration {
	return p.run.unlessLocal(presenceEvery) + presenceLease - presenceEvery
}

// clock returns the store's time. The lock is held.
func (p *presence) clock() time.Time { return p.now.Add(time.Since(p.at)) }

// clean has dead workers removed and returns the time until it should be done again. The more workers there are, the
// less often each of them does it.
func (p *presence) clean() time.Duration {
	ctx, cancel := context.WithTimeout(p.calling, callTimeout)
	defer cancel()
	live, err := p.run.client.workers(ctx)
	if err == nil {
		err = p.run.client.removeOrphans(ctx)
	}
	p.done(&p.listing, err)
	every := cleanEvery * time.Duration(max(1, len(live)))
	return every*3/4 + rand.N(every/2)
}

// done logs the first failure of an outage, and its end.
func (p *presence) done(o *outage, err error) {
	switch {
	case err == nil:
		if o.failing.Swap(false) {
			p.run.log.Info("later: over: "+o.then, "worker", p.worker.cfg.Name)
		}
	case p.calling.Err() != nil || errors.Is(err, ErrClosed):
	case !o.failing.Swap(true):
		p.run.log.Warn("later: "+o.then+"; it works all the same", "worker", p.worker.cfg.Name, "error", err)
	}
}

// listen obeys commands until the worker ends.
func (p *presence) listen() {
	p.place()
	waitFailed := false
	for failures := 0; p.obeying.Err() == nil; {
		more, err := p.receive()
		if err == nil && !more {
			if !waitFailed {
				p.done(&p.hearing, nil) // before a wait that may be long
			}
			err = p.run.client.store.Wait(store.Patient(p.obeying), p.queue)
			waitFailed = err != nil
		}
		switch {
		case err == nil:
			failures = 0
			p.done(&p.hearing, nil)
			continue
		case errors.Is(err, ErrClosed), p.obeying.Err() != nil:
			return
		}
		p.done(&p.hearing, err)
		calls.Pause(p.obeying, failures)
		failures++
	}
}

// place chooses the worker's id.
func (p *presence) place() {
	placer, ok := p.run.client.store.(store.Placer)
	for range placeTries {
		p.id = store.NewID()
		p.queue = reserved.Worker + p.id
		if !ok || placer.SameServer(p.obeying, p.queue, p.record.Queues[0]) {
			return
		}
	}
}

// receive claims commands and obeys them, and reports whether there may be more.
func (p *presence) receive() (more bool, err error) {
	ctx, cancel := context.WithTimeout(p.obeying, callTimeout)
	defer cancel()
	s := p.run.client.store
	asked := time.Now()
	claim, err := s.Claim(ctx, p.queue, store.ClaimRequest{Max: maxCommands, Lease: defaultLease, Uncounted: true})
	if err != nil {
		return false, err
	}
	p.setClock(claim.Now, asked)
	if len(claim.Messages) == 0 {
		return claim.More, nil
	}
	acks := make([]store.Settlement, len(claim.Messages))
	for i := range claim.Messages {
		acks[i] = store.Settlement{Receipt: claim.Messages[i].Receipt, Action: store.Ack}
	}
	_, err = s.Settle(ctx, p.queue, acks)
	for i := range claim.Messages {
		id := claim.Messages[i].ID
		if !p.obeyed[id] {
			p.obey(id, claim.Messages[i].Payload)
		}
		delete(p.obeyed, id)
		if err != nil {
			p.obeyed[id] = true
		}
	}
	return claim.More, err
}

// setClock records the store's clock, which was read by a call that began at asked.
func (p *presence) setClock(now, asked time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.at = now, asked
	if p.started.IsZero() {
		p.started = now
		close(p.clocked)
	}
}

// obey carries out a command and acknowledges it.
func (p *presence) obey(id string, payload []byte) {
	var c command
	err := json.Unmarshal(payload, &c)
	if err == nil {
		err = c.Command.check()
	}
	if hook := p.worker.cfg.OnCommand; err == nil && hook != nil && c.Command != CommandReport {
		err = hook(c.Command)
	}
	seen := seenCommand{ID: id}
	switch {
	case err != nil:
		p.run.log.Error("later: the worker refuses a command", "command", c.Command, "from", c.From, "error", err)
		reason := strings.ToValidUTF8(err.Error(), "")
		seen.Refused = cmp.Or(strings.ToValidUTF8(reason[:min(len(reason), maxRefusal)], ""), "no reason is given")
	case c.Command != CommandReport:
		p.run.log.Info("later: the worker obeys a command", "command", c.Command, "from", c.From)
	}
	p.mu.Lock()
	p.seen = append(slices.Clone(p.seen[max(0, len(p.seen)-maxSeen+1):]), seen)
	p.mu.Unlock()
	if err == nil {
		switch c.Command {
		case CommandDrain:
			p.run.end(errDrain)
		case CommandRestart:
			p.run.end(ErrRestart)
		case CommandPause:
			p.worker.Pause()
		case CommandResume:
			p.worker.Resume()
		}
	}
	p.kick()
}

// held returns the messages that handlers hold, longest-running handlers first, and the number of handlers that run.
func (r *run) held() (all []HeldMessage, n int) {
	for _, t := range r.tasks() {
		if t.stage.Load() != stageRunning {
			continue
		}
		// Due plus lateness is when the handler was called, by the store's clock.
		since := t.Due.Add(time.Duration(t.late.Load()))
		all = append(all, HeldMessage{t.lease.qw.queue.name, t.ID, t.Attempt, since})
	}
	slices.SortFunc(all, func(a, b HeldMessage) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return all[:min(len(all), MaxHeldMessages)], len(all)
}
