package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/redistest"
)

// plan is the workloads to measure and their sizes.
type plan struct {
	Workloads []string      `json:"workloads"`
	Rounds    int           `json:"rounds"` // of workloads that are repeated
	Size      int           `json:"payload_bytes"`
	Senders   []int         `json:"senders"` // 0 means batches of 1,000 by 4 senders
	Send      int           `json:"send_messages"`
	SendLimit time.Duration `json:"send_limit_ns"` // when to stop sending
	Drain     int           `json:"drain_messages"`
	Rates     []int         `json:"lateness_rates"`
	Lateness  time.Duration `json:"lateness_ns"`
	Longest   time.Duration `json:"longest_delay_ns"`
	Herd      int           `json:"herd_messages"`
	Patience  time.Duration `json:"patience_ns"` // how long to wait for missing messages
	Growth    []int         `json:"growth_pending"`
	GrowthOps int           `json:"growth_operations"`
	Memory    []int         `json:"memory_payload_bytes"`
	MemoryFor int           `json:"memory_messages"`
	Idle      []int         `json:"idle_processes"`
	IdleFor   time.Duration `json:"idle_ns"`
	Settle    time.Duration `json:"idle_settle_ns"`

	Small   []int `json:"small_minutes"`
	Lives   []int `json:"life_rates"`
	Workers []int `json:"workers"`

	Limits  []int         `json:"limit_bursts"`
	Limit   time.Duration `json:"limit_ns"` // in which the limit lets all messages start
	Helds   []int         `json:"held_rates"`
	Held    int           `json:"held_workers"`
	HeldFor time.Duration `json:"held_ns"`
	Keys    []int         `json:"keys"`
	Ordered []int         `json:"ordered_keys"`
	Parked  []int         `json:"parked_messages"`
	Crowd   []int         `json:"crowd_messages"`
	Urgent  []int         `json:"urgent_messages"`

	Instructions int `json:"instructions_calls"`
}

func fullPlan() plan {
	return plan{
		Rounds: 3, Size: 100, Senders: []int{1, 32, 1000, 0}, Send: 200_000, SendLimit: 4 * time.Second, Drain: 100_000,
		Rates: []int{500, 5000, 20_000}, Lateness: 5 * time.Second, Longest: 5 * time.Second,
		Herd: 1_000_000, Patience: 60 * time.Second,
		Growth: []int{10_000, 100_000, 1_000_000, 8_000_000, 10_000_000}, GrowthOps: 2000,
		Memory: []int{100, 1000, 10_000}, MemoryFor: 20_000,
		Idle: []int{1, 10, 100}, IdleFor: 6 * time.Second, Settle: 3 * time.Second,
		Small: []int{30, 24 * 60, spreadMinutes}, Lives: []int{200, 2000}, Workers: []int{64},
		Limits: []int{1, limitRate}, Limit: 5 * time.Second,
		Helds: []int{10, 100}, Held: 100, HeldFor: 20 * time.Second,
		Keys: []int{0, withoutKeys, 20, 1000, 100_000}, Ordered: []int{1, 20, 1000, 100_000},
		Parked: []int{100_000, 1_000_000}, Crowd: []int{100_000}, Urgent: []int{100_000},
		Instructions: 1000,
	}
}

// quickPlan checks in a few minutes that everything works. Its figures are rough.
func quickPlan() plan {
	p := fullPlan()
	p.Rounds, p.Send, p.SendLimit, p.Drain = 1, 20_000, time.Second/2, 10_000
	p.Rates, p.Lateness, p.Longest = []int{500, 2000}, time.Second, time.Second
	p.Herd, p.Patience = 20_000, 15*time.Second
	p.Growth, p.GrowthOps, p.MemoryFor = []int{10_000, 50_000}, 200, 2000
	p.Idle, p.IdleFor, p.Settle = []int{1, 3}, time.Second, time.Second
	p.Workers = []int{8}
	p.Limit, p.Held, p.HeldFor = 2*time.Second, 20, 2*time.Second
	p.Keys[4], p.Ordered[3], p.Parked, p.Crowd = p.Drain, p.Drain, []int{20_000}, []int{20_000}
	p.Urgent = []int{20_000}
	p.Instructions = 200
	return p
}

// workload is one kind of load on a subject.
type workload struct {
	name  string
	once  bool // not repeated in rounds
	cases func(p *plan) []int
	run   func(ctx context.Context, c *cell) error
	under []string // the command that runs the Redis
}

// noCase returns the only case of a workload without sizes.
func noCase(*plan) []int { return []int{0} }

var workloads = []*workload{
	{"send", false, func(p *plan) []int { return p.Senders }, runSend, nil},
	{"drain", false, noCase, runDrain, nil},
	{"lateness", false, func(p *plan) []int { return p.Rates }, runLateness, nil},
	{"herd", false, noCase, runHerd, nil},
	{"growth", true, noCase, runGrowth, nil},
	{"memory", true, func(p *plan) []int { return p.Memory }, runMemory, nil},
	{"idle", true, func(p *plan) []int { return p.Idle }, runIdle, nil},
	{"clients", false, func(p *plan) []int { return p.Small }, runClients, nil},
	{"single", false, func(p *plan) []int { return p.Small }, runSingle, nil},
	{"life", false, func(p *plan) []int { return p.Lives }, runLife, nil},
	{"workers", false, func(p *plan) []int { return p.Workers }, runWorkers, nil},
	{"limit", false, func(p *plan) []int { return p.Limits }, runLimit, nil},
	{"held", false, func(p *plan) []int { return p.Helds }, runHeld, nil},
	{"keys", false, func(p *plan) []int { return p.Keys }, runKeys, nil},
	{"ordered", false, func(p *plan) []int { return p.Ordered }, runOrdered, nil},
	{"parked", true, func(p *plan) []int { return p.Parked }, runParked, nil},
	{"urgent", true, func(p *plan) []int { return p.Urgent }, runUrgent, nil},
	{"crowd", true, func(p *plan) []int { return p.Crowd }, runCrowd, nil},
	{"instructions", true, noCase, runInstructions, redistest.Callgrind},
}

func workloadNames() (names []string) {
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

// cellLimit limits one measurement, so that a peer that hangs does not block the run.
const cellLimit = 15 * time.Minute

// cell is one measurement: a workload and case with a freshly started subject.
type cell struct {
	*target
	plan    *plan
	subject *subject
	n       int // the case
	emit    func(n int, m measurement)
}

// emitting records values, unless there is an error.
func (c *cell) emitting(v benchmark.Values, err error) error {
	if err == nil {
		c.emit(c.n, measurement{Values: v})
	}
	return err
}

// runner runs a plan.
type runner struct {
	results  *results
	subjects []*subject
	progress io.Writer
	failed   bool // a measurement of Later failed
}

// newRunner finds out which subjects can be measured.
func newRunner(ctx context.Context, p plan, wanted []*subject, command string, progress io.Writer) (*runner, error) {
	r := &runner{progress: progress, results: &results{
		Command: command, Started: time.Now().UTC(), Plan: p, Versions: versions(),
	}}
	var err error
	if r.results.Machine, err = thisMachine(ctx); err != nil {
		return nil, err
	}
	if l := r.results.Machine.Load; l > 0.5 {
		fmt.Fprintf(progress, "this machine is not idle (load %.1f): the figures will be worse than on an "+
			"idle machine\n", l)
	}
	for _, s := range wanted {
		if !slices.ContainsFunc(p.Workloads, func(name string) bool { return s.takesPart(name) }) {
			continue
		}
		info := s.subjectInfo
		if s.missing != nil {
			if err := s.missing(); err != nil {
				info.Missing = err.Error()
				fmt.Fprintf(progress, "skipping %s: %v\n", s.Name, err)
			}
		}
		if r.results.Subjects = append(r.results.Subjects, info); info.Missing == "" {
			r.subjects = append(r.subjects, s)
		}
	}
	if len(r.results.Subjects) == 0 {
		return nil, fmt.Errorf("none of -subjects supports -run %s", strings.Join(p.Workloads, ","))
	}
	return r, nil
}

// run runs the rounds. Every second round reverses the order of the subjects.
func (r *runner) run(ctx context.Context) error {
	begin := time.Now()
	defer func() { r.results.TookSeconds = time.Since(begin).Seconds() }()
	p := &r.results.Plan
	order := slices.Clone(r.subjects)
	for round := 1; round <= p.Rounds; round++ {
		for _, w := range workloads {
			if !slices.Contains(p.Workloads, w.name) || w.once && round > 1 {
				continue
			}
			for _, n := range w.cases(p) {
				for _, s := range order {
					if !slices.Contains(s.workloads, w.name) {
						continue
					}
					r.measure(ctx, w, s, n, round)
					if ctx.Err() != nil {
						r.results.Unfinished = true
						return ctx.Err()
					}
				}
			}
		}
		slices.Reverse(order)
	}
	return nil
}

// measure runs one measurement. It records an error, and the run continues.
func (r *runner) measure(ctx context.Context, w *workload, s *subject, n, round int) {
	if limit := s.atMost[w.name]; w.name == "idle" && limit > 0 && n > limit {
		return
	}
	limited, cancel := context.WithTimeout(ctx, cellLimit)
	defer cancel()
	emit := func(n int, m measurement) {
		m.Workload, m.Case, m.Subject, m.Round = w.name, n, s.Name, round
		r.results.Measurements = append(r.results.Measurements, &m)
		label := strings.TrimSuffix(fmt.Sprintf("%s %d", w.name, n), " 0")
		fmt.Fprintf(r.progress, "%d  %-16s %-18s %s\n", round, label, s.Name, cmp.Or(m.Error, m.Values.String()))
	}
	t, err := s.start(limited, w.under)
	if err == nil {
		p := &r.results.Plan
		t.Size, t.Limit, t.Settled = p.Size, p.Patience, s.settled
		err = w.run(limited, &cell{target: t, plan: p, subject: s, n: n, emit: emit})
		err = errors.Join(err, t.close())
	}
	if err != nil && ctx.Err() == nil { // otherwise the run was stopped
		emit(n, measurement{Error: err.Error()})
		r.failed = r.failed || strings.HasPrefix(s.Name, "later")
	}
}
