package fleet

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

const (
	// leaveWithin limits how long Leave waits for the worker to be removed from the list.
	leaveWithin = time.Second
	// placeTries is how many ids are tried for one whose queue is on a server that the worker uses anyway. In a Cluster
	// of 10 servers all of them miss with a probability of 0.1 %.
	placeTries = 64
)

// Config describes a Member.
type Config struct {
	Self  Info          // the part that stays the same; New adds the process
	Every time.Duration // between heartbeats, usually BeatEvery
	Log   *slog.Logger
	// Describe fills in the part that changes.
	Describe func(*Info)
	// Allow returns an error for a command that is refused. It may be nil.
	Allow func(Command) error
	// Obey carries out a command other than Report.
	Obey func(Command)
}

// Member keeps a running worker in the list of workers and has it obey commands. Its failures do not disturb the
// worker. A nil Member does nothing.
type Member struct {
	*Directory
	Config
	id    string
	queue string // of its commands

	calling  context.Context // for calls to the store
	giveUp   context.CancelFunc
	obeying  context.Context // until the worker ends
	end      context.CancelFunc
	clocked  chan struct{} // closed when the clock is known
	kicks    chan struct{} // has a token when the record has changed
	tasks    sync.WaitGroup
	listing  *pump.Outage
	hearing  *pump.Outage
	draining atomic.Bool
	obeyed   map[string]bool // commands that could not be acked, and may come again

	mu      sync.Mutex
	clock   clock
	started time.Time // by the store's clock
	seen    []seen
}

// clock tells the store's time.
type clock struct{ now, at time.Time }

func (c clock) time() time.Time { return c.now.Add(time.Since(c.at)).Truncate(time.Millisecond) }

// New returns a Member for a worker. Calls to the store end with ctx at the latest.
func New(ctx context.Context, d *Directory, cfg Config) *Member {
	m := &Member{Directory: d, Config: cfg, clocked: make(chan struct{}), kicks: make(chan struct{}, 1),
		obeyed: map[string]bool{}}
	m.Self.Host, m.Self.PID, m.Self.Process = hostName(), os.Getpid(), processID()
	outage := func(text string) *pump.Outage {
		return &pump.Outage{Log: cfg.Log, Harmless: true, Fails: "later: " + text + "; it works all the same",
			Works: "later: over: " + text, Attrs: []any{"worker", m.Self.Name}}
	}
	m.listing, m.hearing = outage("the worker cannot be listed"), outage("the worker cannot be told what to do")
	m.calling, m.giveUp = context.WithCancel(ctx)
	m.obeying, m.end = context.WithCancel(m.calling)
	return m
}

// Start lists the worker.
func (m *Member) Start() {
	if m == nil {
		return
	}
	m.tasks.Go(m.listen)
	m.tasks.Go(m.beat)
}

// Leave removes the worker from the list, unless the store is failing.
func (m *Member) Leave() {
	if m == nil {
		return
	}
	m.end()
	defer m.giveUp()
	defer time.AfterFunc(leaveWithin, m.giveUp).Stop()
	m.tasks.Wait()
}

// Changed has the record written now.
func (m *Member) Changed() {
	if m == nil {
		return
	}
	select {
	case m.kicks <- struct{}{}:
	default:
	}
}

// Drain shows that the worker drains.
func (m *Member) Drain() {
	if m != nil {
		m.draining.Store(true)
		m.Changed()
	}
}

// beat writes the record at once, when it has changed, and at every heartbeat. In the end it removes the record.
func (m *Member) beat() {
	select {
	case <-m.clocked:
	case <-m.obeying.Done():
		return // the worker was never listed
	}
	timer := time.NewTimer(rand.N(m.Every)) // workers that start together do not beat together
	defer timer.Stop()
	clean := time.Now().Add(rand.N(CleanEvery)) // when to look for dead workers
	for m.obeying.Err() == nil {
		m.listed(m.write)
		if !m.listing.Failing() && !time.Now().Before(clean) {
			m.listed(func(ctx context.Context) error {
				every, err := m.clean(ctx)
				clean = time.Now().Add(every)
				return err
			})
		}
		select {
		case <-timer.C:
			timer.Reset(m.Every)
		case <-m.kicks:
		case <-m.obeying.Done():
		}
	}
	if !m.listing.Failing() {
		m.listed(func(ctx context.Context) error { return m.remove(ctx, []string{m.id}) })
	}
}

// listed makes calls to list the worker.
func (m *Member) listed(call func(context.Context) error) {
	ctx, cancel := context.WithTimeout(m.calling, calls.Timeout)
	defer cancel()
	if err := call(ctx); err == nil {
		m.listing.Over()
	} else if m.calling.Err() == nil && !errors.Is(err, store.ErrClosed) {
		m.listing.Begin(err)
	}
}

// write writes the record.
func (m *Member) write(ctx context.Context) error {
	r := record{Info: m.Self}
	m.Describe(&r.Info)
	if m.draining.Load() {
		r.State = Draining
	}
	m.mu.Lock()
	r.Started, r.Heartbeat, r.Seen = m.started, m.clock.time(), m.seen
	m.mu.Unlock()
	r.Expires = r.Heartbeat.Add(m.Every + Lease - BeatEvery)
	return m.Directory.write(ctx, m.id, r)
}

// clean has dead workers removed and returns the time until it should be done again. The more workers there are, the
// less often each of them does it.
func (m *Member) clean(ctx context.Context) (time.Duration, error) {
	live, err := m.read(ctx)
	if err == nil {
		err = m.RemoveOrphans(ctx)
	}
	every := CleanEvery * time.Duration(max(1, len(live)))
	return every*3/4 + rand.N(every/2), err
}

// listen obeys commands until the worker ends.
func (m *Member) listen() {
	placer, ok := m.Store.(store.Placer)
	for range placeTries {
		m.id = store.NewID()
		m.queue = reserved.Worker + m.id
		if !ok || placer.SameServer(m.obeying, m.queue, m.Self.Queues[0]) {
			break
		}
	}
	loop := pump.Loop{
		Env:    &pump.Env{End: func(error) {}},
		Ready:  func(ctx context.Context) bool { return ctx.Err() == nil },
		Once:   m.hear,
		Wait:   func(ctx context.Context) error { return m.Store.Wait(store.Patient(ctx), m.queue) },
		Outage: m.hearing,
	}
	loop.Run(m.obeying)
}

// hear claims commands and obeys them, and reports whether there may be more.
func (m *Member) hear(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, calls.Timeout)
	defer cancel()
	asked := time.Now()
	claim, err := m.receive(ctx, m.queue)
	if claim.Now.IsZero() {
		return false, err
	}
	m.mu.Lock()
	m.clock = clock{claim.Now, asked}
	if m.started.IsZero() {
		m.started = claim.Now
		close(m.clocked)
	}
	m.mu.Unlock()
	for i := range claim.Messages {
		id := claim.Messages[i].ID
		if !m.obeyed[id] {
			m.obey(id, claim.Messages[i].Payload)
		}
		delete(m.obeyed, id)
		if err != nil {
			m.obeyed[id] = true
		}
	}
	return claim.More, err
}

// obey carries out a command and acknowledges it.
func (m *Member) obey(id string, payload []byte) {
	c, err := parse(payload)
	if err == nil && m.Allow != nil && c.Command != Report {
		err = m.Allow(c.Command)
	}
	m.mu.Lock()
	m.seen = addSeen(m.seen, id, err)
	m.mu.Unlock()
	switch {
	case err != nil:
		m.Config.Log.Error("later: the worker refuses a command", "command", c.Command, "from", c.From, "error", err)
	case c.Command != Report:
		m.Config.Log.Info("later: the worker obeys a command", "command", c.Command, "from", c.From)
		m.Obey(c.Command)
	}
	m.Changed()
}
