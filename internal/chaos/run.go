//go:build unix

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later"
)

// Config configures one run.
type Config struct {
	Fault    string // one of Faults
	Seed     uint64
	Duration time.Duration // of the load, which lasts at least until one fault has been injected and healed
	Rate     int           // messages a second; 0 means the fault's default
	// Dir keeps the journals and logs. If it is "", Run uses a temporary directory and removes it unless the run fails.
	Dir string

	// Cut, when closed, ends the load early: no more faults are injected, and the run so far is verified.
	// It may be nil.
	Cut <-chan struct{}
	// Log is called with each event of the run. It may be nil.
	Log func(text string)
	// Profile writes CPU profiles of this process and of each child that exits cleanly to Dir.
	Profile bool

	onMessage func(*checker, *message) // is called for each message, for tests
}

// run is a run in progress.
type run struct {
	cfg      Config
	fault    *fault
	grouped  bool // see checker
	sharded  bool // the same
	dir      string
	random   *rand.Rand // of the schedule; used by one goroutine only
	servers  *servers
	client   *later.Client
	queues   []string
	lagQueue string         // of the laggard
	list     string         // to which messages are moved, or ""
	stream   string         // the same
	listed   map[string]int // number of its elements, by key
	away     string         // queue of messages that are copies, or ""
	awayLeft map[string]bool

	subscribers []*subscriber
	journal     *journal

	children     []*child
	stale        []*child // know only a primary that was cut off
	injected     int
	windows      []window
	expectations []expectation // for particular messages
	slack        time.Duration
	late         time.Duration // how late a request may arrive
	lease        time.Duration // of every consumer
	healed       int64
	result       *Result
	sampling     sync.WaitGroup
	sample       context.CancelFunc
	operator     operator
	told         int            // commands to workers
	limits       map[string]int // index in load.limits of the limits of each queue
}

// window is a time when acknowledged writes may be undone, because replication is asynchronous.
type window struct {
	from, to int64
	actors   string // applies to actors with this name prefix; "" means all
}

// expectation is the required final state of one message.
type expectation struct {
	id    string
	check func(info *later.Info) error // info is nil when the message is gone
}

// Run injects one fault repeatedly and verifies the outcome. The error is about the run itself; broken guarantees are
// in the result. When ctx is done, Run stops its processes and servers and returns at once without verifying
// anything. To end a run early and still verify it, use Config.Cut.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	f, err := findFault(cfg.Fault)
	if err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, fault: f, random: rand.New(rand.NewPCG(cfg.Seed, 1)), result: newResult(f, cfg),
		grouped: f.setting.form == shared || f.setting.form == remote, sharded: f.load.sharded,
		limits: map[string]int{}}
	if r.dir = cfg.Dir; r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "later-chaos-"); err != nil {
			return nil, err
		}
	}
	if cfg.Profile {
		end, err := profile(r.dir, "run")
		if err != nil {
			return nil, err
		}
		defer end()
	}
	err = r.execute(ctx)
	r.close()
	if cfg.Dir == "" && err == nil && r.result.OK() {
		os.RemoveAll(r.dir)
	} else {
		r.result.Journals = r.dir
	}
	if err != nil {
		return r.result, fmt.Errorf("chaos: %s, seed %d (journals in %s): %w", cfg.Fault, cfg.Seed, r.dir, err)
	}
	return r.result, nil
}

func (r *run) execute(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	if err := r.injectFaults(ctx); err != nil {
		return err
	}
	if err := r.endLoad(ctx); err != nil {
		return err
	}
	if r.fault.ended != nil {
		if err := r.fault.ended(ctx, r); err != nil {
			return err
		}
	}
	left, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	r.close()
	return r.verify(left)
}

// start starts servers and processes and returns when messages flow.
func (r *run) start(ctx context.Context) (err error) {
	if r.journal, err = openJournal(r.dir, "run"); err != nil {
		return err
	}
	set := r.fault.setting
	if r.servers, err = startServers(ctx, set, r.dir, r.cfg.Seed); err != nil {
		return err
	}
	if set.form != shared { // while faults are injected, only the children share a directory
		url := r.servers.url
		if r.fault.load.sharded {
			url += shardedOptions
		}
		if r.client, err = openClient(ctx, url); err != nil {
			return err
		}
	}
	if r.fault.load.sharded {
		hurry(r.client.Store(), "run")
	}
	queues := 2
	if set.form == cluster {
		queues = 4 // so that not all are on one node
	}
	l := r.fault.load
	if queues = cmp.Or(l.queues, queues); l.perNode {
		if r.queues, err = r.nameQueues(ctx, queuesPerNode); err != nil {
			return err
		}
	} else {
		for i := range queues {
			name := fmt.Sprintf("q%d-%d", i, r.cfg.Seed)
			if l.topics {
				name = topicQueue + name
			}
			r.queues = append(r.queues, name)
		}
	}
	if l.limited {
		if err := r.limit(ctx, halts); err != nil {
			return err
		}
		r.operate(ctx)
	}
	r.lease = l.lease
	workers := 2
	switch {
	case l.locked:
		workers = len(lockPolicies)
	case l.controlled:
		workers = fleetSize
	}
	rate := r.cfg.Rate
	if rate == 0 {
		rate = l.rate
	}
	producers := 2
	if l.perNode {
		producers = len(r.queues) / queuesPerNode
	}
	for i := range producers {
		p := r.producer(fmt.Sprint("producer", i), r.servers.url, rate/producers)
		if l.perNode {
			p.Queues = r.queues[i*queuesPerNode:][:queuesPerNode]
		}
		r.add(p)
	}
	for i := range workers {
		r.add(r.consumer("worker", fmt.Sprint("worker", i), r.servers.url))
	}
	receiver := r.consumer("receiver", "receiver", r.servers.url)
	receiver.Queues = receiver.Queues[:min(len(receiver.Queues), manyQueues)]
	r.add(receiver)
	laggard := r.consumer("laggard", "laggard", r.servers.url)
	r.lagQueue = fmt.Sprint("late-", r.cfg.Seed)
	laggard.Queues = []string{r.lagQueue}
	r.add(laggard)
	if l.forwards {
		r.addForwarder()
	}
	if l.topics {
		if err := r.addTopics(ctx); err != nil {
			return err
		}
	}
	if l.subscribes {
		if err := r.keepHistory(ctx); err != nil {
			return err
		}
	}
	if l.follows {
		r.addFollowers()
	}
	if l.watched {
		r.addWatchers()
	}
	if l.locked {
		r.addLocks()
	}
	if l.sharded {
		r.addReshards()
	}
	for _, c := range r.children {
		if err := c.start(); err != nil {
			return err
		}
	}
	sampling, stop := context.WithCancel(ctx)
	r.sample = stop
	r.sampling.Go(func() { r.sampleMemory(sampling) })
	return within(ctx, 30*time.Second, "the first delivery", func(context.Context) error {
		for _, c := range r.children {
			if c.role.Deadly {
				continue // it dies again and again
			}
			if info, err := os.Stat(filepath.Join(r.dir, c.actor()+journalSuffix)); err != nil || info.Size() < 200 {
				return fmt.Errorf("%s has not started: %s", c.actor(), lastLine(r.dir, c.actor()))
			}
		}
		return nil
	})
}

// sampleMemory records the servers' memory use every second.
func (r *run) sampleMemory(ctx context.Context) {
	for sleep(ctx, time.Second) {
		sum := int64(0)
		for _, rdb := range r.servers.admin {
			var used int64
			if info, err := rdb.InfoMap(ctx, "memory").Result(); err == nil {
				fmt.Sscan(info["Memory"]["used_memory"], &used)
			}
			sum += used
		}
		r.journal.one(usage, now(), "-", sum>>10)
	}
}

func (r *run) add(role role) { r.children = append(r.children, &child{role: role}) }

func (r *run) producer(actor, url string, rate int) role {
	l, far := r.fault.load, farAway
	if r.fault.setting.clock {
		far = clockStep
	}
	return role{
		Kind: "producer", Actor: actor, Dir: r.dir, URL: url, Queues: r.queues,
		Seed: r.cfg.Seed*10 + uint64(len(r.children)), Rate: max(1, rate),
		Keyed: l.limited, Ordered: l.ordered, PayloadMin: l.payloadMin, PayloadMax: l.payloadMax, Spread: l.spread,
		DrainsFully: l.drainsFully, Durable: l.durable, Far: far, Dies: l.dies, Grouped: l.grouped,
		Profile: r.cfg.Profile, Clients: l.clients, Sharded: l.sharded,
	}
}

func (r *run) consumer(kind, actor, url string) role {
	concurrency, clients := 64, 0
	if l := r.fault.load; kind == "worker" && l.clients > 0 {
		concurrency, clients = 4, l.clients
	}
	return role{
		Kind: kind, Actor: actor, Dir: r.dir, URL: url, Queues: r.queues, Seed: r.cfg.Seed,
		Lease: r.lease, Concurrency: concurrency, Clients: clients, DrainsFully: r.fault.load.drainsFully,
		Profile: r.cfg.Profile, Controlled: r.fault.load.controlled, Sharded: r.fault.load.sharded,
	}
}

// injectFaults injects faults at seeded random times until the run's duration is over.
func (r *run) injectFaults(ctx context.Context) error {
	began := time.Now()
	end := began.Add(r.cfg.Duration)
	for r.injected == 0 || time.Now().Before(end) {
		pause := r.fault.pause/2 + time.Duration(r.random.Int64N(int64(r.fault.pause)))
		left := time.Until(end)
		over := r.injected > 0 && left < pause
		if over {
			pause = left
		}
		r.result.CutShort = !r.wait(ctx, pause)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if over || r.result.CutShort {
			break
		}
		r.injected++
		if err := r.fault.inject(ctx, r); err != nil {
			return fmt.Errorf("fault %d: %w", r.injected, err)
		}
		r.healed = now()
	}
	if r.result.Injected = r.injected; r.result.CutShort {
		r.result.Seconds, r.result.Planned = time.Since(began).Seconds(), r.cfg.Duration.Seconds()
	}
	return nil
}

// wait lets the load run for d. It returns false if ctx was done or the run was cut short before.
func (r *run) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.cfg.Cut:
	case <-ctx.Done():
	case <-timer.C:
		select {
		case <-r.cfg.Cut: // during the last fault
		default:
			return true
		}
	}
	return false
}

// log records an event of the run now and returns its time.
func (r *run) log(kind string, what ...any) int64 {
	at := now()
	r.logAt(at, kind, what...)
	return at
}

// logAt records an event of the run at a given time.
func (r *run) logAt(at int64, kind string, what ...any) {
	r.journal.one(runEvent, at, "-", append([]any{kind}, what...)...)
	if r.cfg.Log != nil {
		r.cfg.Log(strings.TrimSpace(fmt.Sprintln(append([]any{r.fault.name, "seed", r.cfg.Seed, kind}, what...)...)))
	}
}

// drainPatience limits how long all due messages may take to be handled after the last fault. It is generous, because
// a busy machine must not fail a run. The result reports the time taken.
const drainPatience = 90 * time.Second

// endLoad stops the producers, waits until all due messages are handled, and stops the consumers.
func (r *run) endLoad(ctx context.Context) error {
	if r.fault.finish != nil {
		if err := r.fault.finish(ctx, r); err != nil {
			return err
		}
	}
	r.log("load-ended")
	if r.client == nil {
		var err error
		if r.client, err = openClient(ctx, r.servers.url); err != nil {
			return err
		}
	}
	for _, kind := range []string{"producer", followerKind} {
		if err := r.drainChildren(ctx, kind, resendLimit+10*time.Second); err != nil {
			return err
		}
	}
	r.log("sent")
	began := time.Now()
	err := r.awaitHandled(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		r.result.violate("stuck", "-", "%v", err)
	}
	r.result.DrainSeconds = time.Since(began).Seconds()
	if err := r.endOperating(ctx); err != nil {
		return err
	}
	err = r.drainChildren(ctx, "", drainLimit+15*time.Second)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		r.result.violate("drain", "-", "%v", err)
	}
	return nil
}

// drainChildren stops all running children of a kind, or all children if kind is "", in parallel.
func (r *run) drainChildren(ctx context.Context, kind string, limit time.Duration) error {
	var draining sync.WaitGroup
	errs := make([]error, len(r.children))
	for i, c := range r.children {
		if (kind == "" || c.role.Kind == kind) && c.cmd != nil && c.alive() {
			draining.Go(func() { errs[i] = c.drain(ctx, limit) })
		}
	}
	draining.Wait()
	return errors.Join(errs...)
}

func (r *run) awaitHandled(ctx context.Context) error {
	return within(ctx, drainPatience, "handling of all due messages", func(ctx context.Context) error {
		var left []string
		for _, name := range r.queues {
			s, err := r.client.Queue(name).Stats(ctx)
			if err != nil {
				return err
			}
			soon := !s.NextDue.IsZero() && s.NextDue.Before(s.Now.Add(30*time.Minute))
			if s.Ready+s.Leased > 0 || soon {
				left = append(left, fmt.Sprintf("%s has %d ready, %d leased, next due %v at %v",
					name, s.Ready, s.Leased, s.NextDue, s.Now))
			}
		}
		if len(left) > 0 {
			return errors.New(strings.Join(left, "; "))
		}
		return nil
	})
}

// close stops the processes and goroutines that still run.
func (r *run) close() {
	if r.sample != nil {
		r.sample()
		r.sampling.Wait()
	}
	r.stopOperating()
	for _, c := range append(r.children, r.stale...) {
		if c.cmd != nil && c.alive() {
			c.kill()
		}
	}
	if r.client != nil {
		r.client.Close()
		r.client = nil
	}
	if r.servers != nil {
		r.servers.keepLogs(r.dir) // best effort
		r.servers.remove()
		r.servers = nil
	}
	if r.journal != nil {
		r.journal.close()
		r.journal = nil
	}
}

// pick returns a random running child of one of the kinds.
func (r *run) pick(kinds ...string) *child {
	var of []*child
	for _, c := range r.children {
		if slices.Contains(kinds, c.role.Kind) && c.alive() && !(r.fault.name == Soak && c == r.children[firstWorker]) {
			of = append(of, c)
		}
	}
	return of[r.random.IntN(len(of))]
}

// manyQueues is a number of queues above which a receiver does not receive from all, and most queues are idle.
const manyQueues = 20

// queuesPerNode is the number of queues on each node if load.perNode is set.
const queuesPerNode = 2

// firstWorker is the index of the first worker in run.children.
const firstWorker = 2

// upTo returns a random duration below d.
func (r *run) upTo(d time.Duration) time.Duration { return time.Duration(r.random.Int64N(int64(d))) }
