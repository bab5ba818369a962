//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
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
	thawed       time.Time      // end of the last freeze of a process or node during a change of shards
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
