//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/laterq/later"
)

// Config asks for one run.
type Config struct {
	Fault    string // one of Faults
	Seed     uint64
	Duration time.Duration // of the load; at least one blow is struck, and the load lasts until it is over
	Rate     int           // messages a second; 0 means the fault's own
	// Dir keeps the journals and logs; "" means a temporary directory, which is removed unless the run failed.
	Dir string

	// Cut ends the load early, in order, when it is closed: no other blow is struck, and what there is is accounted
	// for. It may be nil.
	Cut <-chan struct{}
	// Tell is told what the run does, as it goes. It may be nil.
	Tell func(text string)
	// Profile writes a CPU profile of each process that ends in good order, and of this one, beside the journals.
	Profile bool

	each func(*facts, *message) // is shown every message, for tests
}

// run is a run under way.
type run struct {
	cfg     Config
	fault   *fault
	dir     string
	random  *rand.Rand // of the schedule; used by one goroutine
	servers *servers
	client  *later.Client
	queues  []string
	journal *journal

	children []*child
	stale    []*child // that know only a primary which was cut off
	strikes  int
	windows  []window
	wants    []want // what particular messages must have come to
	slack    time.Duration
	late     time.Duration // by how much a request may arrive late
	lease    time.Duration // of all consumers
	healed   int64
	result   *Result
	sampling sync.WaitGroup
	sample   context.CancelFunc
}

// window is a time in which writes that were acknowledged may be undone: replication is asynchronous.
type window struct {
	from, to int64
	actors   string // only those whose name begins so; "" means all
}

// want is what a particular message must have come to.
type want struct {
	id    string
	check func(info *later.Info) error // nil when the message is gone
}

// Run runs one fault and checks what came of it. The error is about the run itself; what was found wrong is in
// the result. When ctx ends, Run ends its processes and servers and returns at once, and has checked nothing; see
// Config.Cut for an end in order.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	f, err := faultNamed(cfg.Fault)
	if err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, fault: f, random: rand.New(rand.NewPCG(cfg.Seed, 1)), result: newResult(f, cfg)}
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
	err = r.play(ctx)
	r.end()
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

func (r *run) play(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	if err := r.strike(ctx); err != nil {
		return err
	}
	if err := r.settleDown(ctx); err != nil {
		return err
	}
	left, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	r.end()
	return r.account(left)
}

// begin starts servers and processes and returns when messages flow.
func (r *run) begin(ctx context.Context) (err error) {
	if r.journal, err = openJournal(r.dir, "run"); err != nil {
		return err
	}
	set := r.fault.setting
	if r.servers, err = startServers(ctx, set, r.dir, r.cfg.Seed); err != nil {
		return err
	}
	if r.client, err = openClient(ctx, r.servers.url); err != nil {
		return err
	}
	queues := 2
	if set.form == cluster {
		queues = 4 // which are not all on one node
	}
	for i := range queues {
		r.queues = append(r.queues, fmt.Sprintf("q%d-%d", i, r.cfg.Seed))
	}
	l := r.fault.load
	r.lease = l.lease
	rate := r.cfg.Rate
	if rate == 0 {
		rate = l.rate
	}
	for i := range 2 {
		r.add(r.producer(fmt.Sprint("producer", i), r.servers.url, rate/2))
	}
	for i := range 2 {
		r.add(r.consumer("worker", fmt.Sprint("worker", i), r.servers.url))
	}
	r.add(r.consumer("receiver", "receiver", r.servers.url))
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
			if info, err := os.Stat(filepath.Join(r.dir, c.actor()+journalSuffix)); err != nil || info.Size() < 200 {
				return fmt.Errorf("%s has not begun: %s", c.actor(), lastLine(r.dir, c.actor()))
			}
		}
		return nil
	})
}

// sampleMemory writes down every second what the servers' data takes.
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
		Kind: "producer", Actor: actor, Dir: r.dir, URL: url, Queues: r.queues, Seed: r.cfg.Seed*10 + uint64(len(r.children)),
		Rate: max(1, rate), PayloadMin: l.payloadMin, PayloadMax: l.payloadMax, Spread: l.spread, NoRest: l.noRest, Durable: l.durable, Far: far,
		Profile: r.cfg.Profile,
	}
}

func (r *run) consumer(kind, actor, url string) role {
	return role{
		Kind: kind, Actor: actor, Dir: r.dir, URL: url, Queues: r.queues, Seed: r.cfg.Seed,
		Lease: r.lease, Concurrency: 64, NoRest: r.fault.load.noRest,
		Profile: r.cfg.Profile,
	}
}

// strike strikes again and again, at times that the seed gives, until the run's duration is over.
func (r *run) strike(ctx context.Context) error {
	began := time.Now()
	end := began.Add(r.cfg.Duration)
	for r.strikes == 0 || time.Now().Before(end) {
		pause := r.fault.pause/2 + time.Duration(r.random.Int64N(int64(r.fault.pause)))
		left := time.Until(end)
		over := r.strikes > 0 && left < pause
		if over {
			pause = left
		}
		r.result.CutShort = !r.rest(ctx, pause)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if over || r.result.CutShort {
			break
		}
		r.strikes++
		if err := r.fault.strike(ctx, r); err != nil {
			return fmt.Errorf("blow %d: %w", r.strikes, err)
		}
		r.healed = now()
	}
	if r.result.Strikes = r.strikes; r.result.CutShort {
		r.result.Seconds, r.result.Planned = time.Since(began).Seconds(), r.cfg.Duration.Seconds()
	}
	return nil
}

// rest lets the load flow for so long; false when ctx ended before, or the run was cut short.
func (r *run) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.cfg.Cut:
	case <-ctx.Done():
	case <-timer.C:
		select {
		case <-r.cfg.Cut: // during the last blow
		default:
			return true
		}
	}
	return false
}

// note writes down what the run does.
func (r *run) note(kind string, what ...any) int64 {
	at := now()
	r.noteAt(at, kind, what...)
	return at
}

// noteAt writes down what happened at a time.
func (r *run) noteAt(at int64, kind string, what ...any) {
	r.journal.one(mark, at, "-", append([]any{kind}, what...)...)
	if r.cfg.Tell != nil {
		r.cfg.Tell(strings.TrimSpace(fmt.Sprintln(append([]any{r.fault.name, "seed", r.cfg.Seed, kind}, what...)...)))
	}
}

// drainPatience is how long all that is due may take to be handled after the last blow. It is far beyond what it
// takes, since a busy machine must not fail a run; how long it took is in the result.
const drainPatience = 90 * time.Second

// settleDown ends the load, waits until all that was sent is handled, and ends the consumers.
func (r *run) settleDown(ctx context.Context) error {
	if r.fault.finish != nil {
		if err := r.fault.finish(ctx, r); err != nil {
			return err
		}
	}
	r.note("calm")
	if err := r.drainChildren(ctx, "producer", insist+10*time.Second); err != nil {
		return err
	}
	r.note("sent")
	began := time.Now()
	err := r.awaitHandled(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		r.result.violate("stuck", "-", "%v", err)
	}
	r.result.DrainSeconds = time.Since(began).Seconds()
	err = r.drainChildren(ctx, "", drainLimit+15*time.Second)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		r.result.violate("drain", "-", "%v", err)
	}
	return nil
}

// drainChildren ends the children of a kind ("" for all that are left), at the same time.
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
	return within(ctx, drainPatience, "the end of all that is due", func(ctx context.Context) error {
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

// end ends what still runs.
func (r *run) end() {
	if r.sample != nil {
		r.sample()
		r.sampling.Wait()
	}
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
		r.servers.keepLogs(r.dir) // of no use without them, and no worse either
		r.servers.remove()
		r.servers = nil
	}
	if r.journal != nil {
		r.journal.close()
		r.journal = nil
	}
}

// pick gives a random child of a kind that runs.
func (r *run) pick(kinds ...string) *child {
	var of []*child
	for _, c := range r.children {
		if slices.Contains(kinds, c.role.Kind) && c.alive() && !(r.fault.name == Soak && c == r.children[firstWorker]) {
			of = append(of, c)
		}
	}
	return of[r.random.IntN(len(of))]
}

// firstWorker is the place of the first worker among the children.
const firstWorker = 2

// upTo is a random time below d.
func (r *run) upTo(d time.Duration) time.Duration { return time.Duration(r.random.Int64N(int64(d))) }

// kill kills a child and writes down when.
func (r *run) kill(c *child) {
	r.note("kill", c.actor())
	c.kill()
}

// stop stops a child for so long.
func (r *run) stop(ctx context.Context, c *child, d time.Duration) {
	r.note("stop", c.actor())
	c.signal(syscall.SIGSTOP)
	sleep(ctx, d)
	c.signal(syscall.SIGCONT)
	r.note("continue", c.actor())
}
