package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/redistest"
)

// tinyPlan runs every workload in seconds.
func tinyPlan() plan {
	p := fullPlan()
	p.Workloads = workloadNames()
	if redistest.CannotCount() != nil {
		p.Workloads = slices.DeleteFunc(p.Workloads, func(name string) bool { return name == "instructions" })
	}
	p.Rounds, p.Senders, p.Send, p.SendLimit, p.Drain = 1, []int{1, 32, 0}, 200, time.Minute, 500
	p.Rates, p.Lateness, p.Longest = []int{200}, 500*time.Millisecond, time.Second
	p.Herd = 300
	p.Growth, p.GrowthOps, p.Memory, p.MemoryFor = []int{500, 1000}, 20, []int{100}, 200
	p.Idle, p.IdleFor, p.Settle = []int{1}, 100*time.Millisecond, 100*time.Millisecond
	p.Small, p.Lives, p.Workers = []int{30}, []int{200}, []int{2}
	p.Limits, p.Limit, p.Helds, p.Held, p.HeldFor = []int{5}, 300*time.Millisecond, []int{100}, 3, 300*time.Millisecond
	p.Keys, p.Parked, p.Crowd, p.Urgent = []int{0, withoutKeys, 20, 500}, []int{600}, []int{600}, []int{600}
	p.Instructions = 20
	return p
}

// ownTemp redirects temporary files to a directory of the test, and checks that it is empty in the end.
func ownTemp(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			if dir+"/"+e.Name() != bullmqDir { // removed when all tests have run
				t.Errorf("%s was not removed", e.Name())
			}
		}
	})
}

// TestSubjectsHandleAllMessages runs every workload with every installed subject, all subjects concurrently, and checks
// the counts.
func TestSubjectsHandleAllMessages(t *testing.T) {
	ownTemp(t)
	var all sync.WaitGroup
	defer all.Wait()
	for _, s := range subjects {
		all.Go(func() {
			t.Run(s.Name, func(t *testing.T) {
				if s.missing != nil {
					if err := s.missing(); err != nil {
						t.Skip(err)
					}
				}
				r, err := newRunner(t.Context(), tinyPlan(), []*subject{s}, "test", io.Discard)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.run(t.Context()); err != nil || r.failed && s.settled {
					t.Errorf("run: %v", err)
				}
				checkCounts(t, s, r.results)
			})
		})
	}
}

func checkCounts(t *testing.T, s *subject, r *results) {
	t.Helper()
	for _, m := range r.Measurements {
		if m.Error != "" {
			t.Errorf("%s %d: %s", m.Workload, m.Case, m.Error)
			continue
		}
		v := m.Values
		switch m.Workload {
		case "send":
			if v[benchmark.Messages] != float64(r.Plan.Send) || v[benchmark.PerSecond] <= 0 {
				t.Errorf("send %d: values %v", m.Case, v)
			}
		case "life", "workers":
			if v[benchmark.Messages] == 0 || v[benchmark.Handled] != v[benchmark.Messages] || v[benchmark.Doubles] != 0 {
				t.Errorf("%s %d: %v, want all handled once", m.Workload, m.Case, v)
			}
		case "drain", "herd", "lateness":
			want := map[string]int{"drain": r.Plan.Drain, "herd": r.Plan.Herd, "lateness": 100}[m.Workload]
			if v[benchmark.Messages] != float64(want) || v[benchmark.Handled] != float64(want) ||
				v[benchmark.Lost] != 0 || v[benchmark.Unfinished] != 0 || v[benchmark.Doubles] != 0 {
				t.Errorf("%s: %v, want %d sent and handled", m.Workload, v, want)
			}
			if s.settled && v[benchmark.Early] != 0 {
				t.Errorf("%s: %v messages of Later were early", m.Workload, v[benchmark.Early])
			}
		}
		drains := m.Workload == "keys" || m.Workload == "ordered"
		if (drains || s.settled && m.Workload == "limit" || m.Workload == "held") &&
			(v[benchmark.Handled] != v[benchmark.Messages] || v[benchmark.Unfinished] != 0) {
			t.Errorf("%s %d: %v, want all handled", m.Workload, m.Case, v)
		}
		if (m.Workload == "limit" || m.Workload == "held") && s.settled && v[benchmark.HandlerCalls] != 1 {
			t.Errorf("%s %d: %v handler calls a message", m.Workload, m.Case, v[benchmark.HandlerCalls])
		}
		if m.Workload == "herd" && v[benchmark.PlainRate] <= 0 {
			t.Errorf("herd: %v messages a second drained afterwards", v[benchmark.PlainRate])
		}
		if m.Workload == "lateness" && len(m.Curve) != 201 {
			t.Errorf("got a curve with %d points", len(m.Curve))
		}
		if _, has := v[benchmark.WorstPing]; has != (m.Workload == "herd" && s.Name != "later-disk") {
			t.Errorf("%s: worst PING %v", m.Workload, v[benchmark.WorstPing])
		}
		took, known := v[benchmark.TookMS] // unset if all messages were early
		if known && v[benchmark.LongestCall] > v[benchmark.WorstPing]+took {
			t.Errorf("%s: a call of %v ms in %v ms", m.Workload, v[benchmark.LongestCall], v[benchmark.TookMS])
		}
	}
	for _, w := range workloads {
		cannot := !slices.Contains(s.workloads, w.name) || !slices.Contains(r.Plan.Workloads, w.name)
		measured := slices.ContainsFunc(r.Measurements, func(m *measurement) bool {
			return m.Workload == w.name && m.Values != nil
		})
		if measured == cannot {
			t.Errorf("%s: measured %v, although it can: %v", w.name, measured, !cannot)
		}
	}
}

// stopper cancels the run at the first measurement.
type stopper struct{ cancel func() }

func (s stopper) Write(p []byte) (int, error) {
	s.cancel()
	return len(p), nil
}

func TestRunLeavesNothingBehindWhenInterrupted(t *testing.T) {
	ownTemp(t)
	for _, name := range []string{"later-redis", "later-disk"} {
		if s := findSubject(name); s.missing != nil && s.missing() != nil {
			t.Skip(s.missing())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := t.TempDir() + "/results.json"
	args := []string{"-quick", "-run", "send,growth,idle", "-subjects", "later-redis,later-disk", "-json", file}
	err := run(ctx, args, io.Discard, stopper{cancel})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	r, err := readResults(file)
	if err != nil || !r.Unfinished || len(r.Measurements) > 1 {
		t.Errorf("results %+v, %v", r, err)
	}
}

func TestFlagsRefuseInvalidValues(t *testing.T) {
	for _, args := range [][]string{
		{"-run", "sent"}, {"-subjects", "kafka"}, {"-rounds", "-1"}, {"extra"},
		{"-report", "missing.json"},
		{"-run", "growth", "-subjects", "bullmq"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	o, err := parseFlags([]string{"-quick", "-rounds", "2", "-subjects", "asynq,ceiling"}, io.Discard)
	if err != nil || o.plan.Rounds != 2 || o.plan.Send != quickPlan().Send {
		t.Errorf("plan %+v, %v", o.plan, err)
	}
	if len(o.subjects) != 2 || o.subjects[0].Name != "asynq" {
		t.Errorf("subjects %v", o.subjects)
	}
}
