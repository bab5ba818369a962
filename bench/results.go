package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/host"
	sysload "github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"

	"github.com/laterq/later/internal/benchmark"
)

// results is everything a run measured, in the form of its JSON file.
type results struct {
	Command      string            `json:"command"`
	Started      time.Time         `json:"started"`
	TookSeconds  float64           `json:"took_seconds"`
	Unfinished   bool              `json:"unfinished,omitempty"` // the run was stopped
	Machine      machine           `json:"machine"`
	Versions     map[string]string `json:"versions"`
	Plan         plan              `json:"plan"`
	Subjects     []subjectInfo     `json:"subjects"`
	Measurements []*measurement    `json:"measurements"`
}

type subjectInfo struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	Settings string `json:"settings"`
	Missing  string `json:"missing,omitempty"` // why it was not measured at all
	// Cannot maps the workloads that the subject cannot run to the reasons.
	Cannot map[string]string `json:"cannot,omitempty"`
}

// measurement is the result of one round of a workload with a subject.
type measurement struct {
	Workload string `json:"workload"`
	// Case is the size that was varied: senders (0 means batches), messages a second, pending messages, payload bytes,
	// or processes. Without sizes it is 0.
	Case    int              `json:"case"`
	Subject string           `json:"subject"`
	Round   int              `json:"round"` // starting at 1
	Values  benchmark.Values `json:"values,omitempty"`
	// Curve is the distribution of the lateness: pairs of milliseconds and the fraction of messages at most that late.
	Curve [][2]float64 `json:"curve,omitempty"`
	Error string       `json:"error,omitempty"`
}

// spread summarizes the rounds of one value.
type spread struct {
	Median, Low, High float64
	Rounds            int
}

// rounds returns the measurements of a case.
func (r *results) rounds(workload string, n int, subject string) (all []*measurement) {
	for _, m := range r.Measurements {
		if m.Workload == workload && m.Case == n && m.Subject == subject {
			all = append(all, m)
		}
	}
	return all
}

// of collects the rounds of a value. ok is false if there are none.
func (r *results) of(workload string, n int, subject, value string) (s spread, ok bool) {
	var all []float64
	for _, m := range r.rounds(workload, n, subject) {
		if v, has := m.Values[value]; has {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return s, false
	}
	slices.Sort(all)
	median := all[len(all)/2]
	if len(all)%2 == 0 {
		median = (median + all[len(all)/2-1]) / 2
	}
	return spread{median, all[0], all[len(all)-1], len(all)}, true
}

// errorOf returns the first error of a workload with a subject.
func (r *results) errorOf(workload string, n int, subject string) string {
	for _, m := range r.rounds(workload, n, subject) {
		if m.Error != "" {
			return m.Error
		}
	}
	return ""
}

// cases returns the measured cases of a workload, in order.
func (r *results) cases(workload string) []int {
	found := map[int]bool{}
	for _, m := range r.Measurements {
		if m.Workload == workload {
			found[m.Case] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// casesOf returns the measured cases of a workload, with 0 (batches) last.
func (r *results) casesOf(workload string) []int {
	all := r.cases(workload)
	if len(all) > 1 && all[0] == 0 {
		all = append(all[1:], 0)
	}
	return all
}

func (r *results) title(subject string) string {
	for _, s := range r.Subjects {
		if s.Name == subject {
			return s.Title
		}
	}
	return subject
}

// measured returns the subjects measured in a workload, in the order of Subjects.
func (r *results) measured(workload string) (names []string) {
	for _, s := range r.Subjects {
		if slices.ContainsFunc(r.Measurements, func(m *measurement) bool {
			return m.Workload == workload && m.Subject == s.Name
		}) {
			names = append(names, s.Name)
		}
	}
	return names
}

func (r *results) write(file string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// readResults reads the results of one run, or merges the results of several on one machine.
func readResults(files ...string) (all *results, err error) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r := &results{}
		if err := json.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("%s was not written by -json: %w", file, err)
		}
		if all == nil {
			all = r
		} else if err := all.add(r); err != nil {
			return nil, fmt.Errorf("%s cannot be merged with %s: %w", file, files[0], err)
		}
	}
	return all, nil
}

// add replaces workloads by the workloads of a later run.
func (r *results) add(later *results) error {
	if later.Machine.CPU != r.Machine.CPU || later.Machine.CPUs != r.Machine.CPUs {
		return fmt.Errorf("measured on %d CPUs (%s), not %d (%s)",
			later.Machine.CPUs, later.Machine.CPU, r.Machine.CPUs, r.Machine.CPU)
	}
	if later.Plan.Rounds != r.Plan.Rounds {
		return fmt.Errorf("%d rounds, not %d: measure it with -rounds %d", later.Plan.Rounds, r.Plan.Rounds,
			r.Plan.Rounds)
	}
	r.Command += "\n    cd bench && " + later.Command
	r.TookSeconds += later.TookSeconds
	r.Unfinished = r.Unfinished || later.Unfinished
	r.Machine.Load = max(r.Machine.Load, later.Machine.Load)
	maps.Copy(r.Versions, later.Versions)
	for _, s := range later.Subjects {
		if !slices.ContainsFunc(r.Subjects, func(known subjectInfo) bool { return known.Name == s.Name }) {
			r.Subjects = append(r.Subjects, s)
		}
	}
	r.Measurements = slices.DeleteFunc(r.Measurements, func(m *measurement) bool {
		return slices.Contains(later.Plan.Workloads, m.Workload)
	})
	r.Measurements = append(r.Measurements, later.Measurements...)
	for _, name := range later.Plan.Workloads {
		if !slices.Contains(r.Plan.Workloads, name) {
			r.Plan.Workloads = append(r.Plan.Workloads, name)
		}
	}
	return nil
}

// machine describes the machine of a run.
type machine struct {
	CPU      string  `json:"cpu"`
	CPUs     int     `json:"cpus"`
	MemoryGB float64 `json:"memory_gb"`
	System   string  `json:"system"`
	Go       string  `json:"go"`
	// Load is the load average of the last minute before the run.
	Load float64 `json:"load_before"`
	// FsyncUS is the median time of 200 fsyncs of 4 KB in the temporary directory, in microseconds.
	FsyncUS float64 `json:"fsync_us"`
}

func thisMachine(ctx context.Context) (machine, error) {
	m := machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if infos, err := cpu.InfoWithContext(ctx); err == nil && len(infos) > 0 {
		m.CPU = strings.TrimSpace(infos[0].ModelName)
	}
	if v, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		m.MemoryGB = float64(v.Total>>20) / 1024
	}
	if h, err := host.InfoWithContext(ctx); err == nil {
		m.System = fmt.Sprintf("%s %s, kernel %s, %s", h.Platform, h.PlatformVersion, h.KernelVersion, m.System)
	}
	if l, err := sysload.AvgWithContext(ctx); err == nil {
		m.Load = l.Load1
	}
	var err error
	m.FsyncUS, err = fsyncMicros()
	return m, err
}

func fsyncMicros() (float64, error) {
	f, err := os.CreateTemp("", "later-bench-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 4096)
	times := make([]time.Duration, 200)
	for i := range times {
		begin := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times[i] = time.Since(begin)
	}
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1000, nil
}
