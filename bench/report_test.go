package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laterq/later/internal/benchmark"
)

// someResults returns invented results.
func someResults() *results {
	r := &results{Command: "go run .", Plan: fullPlan(), Versions: map[string]string{"redis-server": "7.0.15"}}
	for _, name := range []string{"ceiling", "later-redis", "asynq", "bullmq"} {
		s := findSubject(name)
		r.Subjects = append(r.Subjects, s.subjectInfo)
	}
	r.Subjects[0].Cannot = map[string]string{"lateness": "it waits for nothing"}
	r.Subjects[3].Missing = "node is not installed <here>"
	add := func(workload string, n int, subject string, values benchmark.Values) *measurement {
		m := &measurement{Workload: workload, Case: n, Subject: subject, Round: 1, Values: values}
		r.Measurements = append(r.Measurements, m)
		return m
	}
	for i, name := range []string{"ceiling", "later-redis", "asynq"} {
		for round := range 3 {
			rate := 400_000 / float64(1+i*i*10) * (1 + float64(round)/10)
			for _, n := range []int{0, 1, 32, 1000} {
				add("send", n, name,
					benchmark.Values{benchmark.PerSecond: rate, benchmark.ServerCPU: 2.5 * float64(i+1)})
			}
			add("drain", 0, name, benchmark.Values{benchmark.PerSecond: rate * 1.5})
			if i > 0 {
				m := add("lateness", 500, name, benchmark.Values{
					benchmark.P50: 0.8, benchmark.P99: 1.5 + float64(round), benchmark.MaxMS: 12,
					benchmark.Early: float64(i-1) * 40, benchmark.Messages: 2500,
				})
				m.Curve = [][2]float64{{-500 * float64(i-1), 0}, {0.8, 0.5}, {1.5, 0.99}, {12, 1}}
			}
		}
		for _, n := range []int{10_000, 1_000_000} {
			if i > 0 {
				add("growth", n, name, benchmark.Values{benchmark.SendUS: 40, benchmark.ClaimUS: 3,
					benchmark.CancelUS: 35, benchmark.SendCPU: 20})
			}
		}
		add("memory", 100, name, benchmark.Values{benchmark.BytesAbove: 200})
		add("herd", 0, name, benchmark.Values{
			benchmark.PerSecond: 300_000, benchmark.WorstPing: 4, benchmark.Messages: 1e6, benchmark.Handled: 1e6,
			benchmark.TookMS: 3333,
		})
		add("idle", 100, name, benchmark.Values{benchmark.CommandRate: 33, benchmark.ServerLoad: 2,
			benchmark.ClientLoad: 20})
	}
	r.Measurements = append(r.Measurements,
		&measurement{Workload: "drain", Subject: "bullmq", Round: 1, Error: "it crashed"})
	return r
}

func TestReportReplacesOnlyItsOwnPart(t *testing.T) {
	docs := t.TempDir()
	page := filepath.Join(docs, "benchmarks.md")
	if err := writeDocs(someResults(), docs); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("writeDocs without a page returned %v", err)
	}
	if err := os.WriteFile(page, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeDocs(someResults(), docs); err == nil || !strings.Contains(err.Error(), "lacks the lines") {
		t.Errorf("writeDocs without marks returned %v", err)
	}
	if err := os.WriteFile(page, []byte("before\n"+beginMark+"\nold\n"+endMark+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(docs, "results.json")
	if err := someResults().write(file); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for range 2 { // the second write must change nothing
		if err := run(t.Context(), []string{"-report", file, "-docs", docs}, io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	text := texts[0]
	if text != texts[1] || !strings.HasPrefix(text, "before\n"+beginMark) ||
		!strings.HasSuffix(text, endMark+"\nafter\n") || strings.Contains(text, "old") {
		t.Errorf("page:\n%s", text)
	}
	for _, part := range []string{
		"| Later | 40,000 (36,400–43,600) |", "| BullMQ | **not measured:** node is not installed <here> |", "0.09",
		"BullMQ failed (drain): it crashed.", "ceiling (bare scripts) is not included: it waits for nothing.",
		"![Lateness at 500 msg/s](plots/lateness-500.svg)", "40 / 20",
		"| 5 | 0.50 |",
		"commands/s, 100 processes",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("page lacks %q:\n%s", part, text)
		}
	}
}

func TestPlotsAreWellFormedAndNameTheirSubjects(t *testing.T) {
	dir := t.TempDir()
	if err := writePlots(someResults(), dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"throughput", "send", "drain", "lateness-500", "memory"} {
		text, err := os.ReadFile(filepath.Join(dir, name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(text, new(struct{})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range []string{">Later</text>", ">asynq</text>", "prefers-color-scheme: dark"} {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %s", name, part)
			}
		}
		for _, bad := range []string{"NaN", "Inf"} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s has %s", name, bad)
			}
		}
	}
	empty := t.TempDir()
	if err := writePlots(&results{}, empty); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(empty); len(entries) != 0 {
		t.Errorf("%d plots without results", len(entries))
	}
}

func TestNumberHasThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.12345: "0.123", 1: "1", 2.5: "2.5", 9.999: "10", 12.34: "12.3", 999.6: "1,000", 1234: "1,230",
		467_123: "467,000",
		1e7:     "10,000,000", -894.4: "-894", -1234: "-1,230", 0.000123: "0.000123",
	} {
		if got := benchmark.Number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
	for n, want := range map[int]string{0: "batches of 1,000", 1: "1 sender", 1000: "1,000 senders"} {
		if got := caseName("send", n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	if got := caseName("idle", 1) + caseName("idle", 10); got != "1 process10 processes" {
		t.Error(got)
	}
}

func TestResultsReportMedianOfRounds(t *testing.T) {
	r := &results{}
	for _, v := range []float64{5, 1, 9, 3} {
		r.Measurements = append(r.Measurements, &measurement{
			Workload: "send", Case: 1, Subject: "asynq", Values: benchmark.Values{benchmark.PerSecond: v},
		})
	}
	if s, ok := r.of("send", 1, "asynq", benchmark.PerSecond); !ok ||
		s != (spread{Median: 4, Low: 1, High: 9, Rounds: 4}) {
		t.Errorf("%+v", s)
	}
	if _, ok := r.of("send", 1, "asynq", benchmark.ServerCPU); ok {
		t.Error("got a value that was not measured")
	}
}

func TestResultsOfSeveralRunsAreMerged(t *testing.T) {
	run := func(command, workload, subject string, rate float64) *results {
		return &results{
			Command: command, TookSeconds: 10, Machine: machine{CPU: "a", CPUs: 2},
			Plan:     plan{Workloads: []string{workload}, Rounds: 3},
			Versions: map[string]string{subject: "1"}, Subjects: []subjectInfo{{Name: subject}},
			Measurements: []*measurement{
				{Workload: workload, Subject: subject, Round: 1, Values: benchmark.Values{benchmark.PerSecond: rate}},
			},
		}
	}
	all := run("first", "send", "later-redis", 1)
	for _, later := range []*results{run("second", "drain", "asynq", 2), run("third", "send", "later-redis", 3)} {
		if err := all.add(later); err != nil {
			t.Fatal(err)
		}
	}
	if len(all.Measurements) != 2 || all.Measurements[0].Workload != "drain" ||
		all.Measurements[1].Values[benchmark.PerSecond] != 3 {
		t.Errorf("got %d measurements, or an old one", len(all.Measurements))
	}
	const command = "first\n    cd bench && second\n    cd bench && third"
	if len(all.Subjects) != 2 || all.TookSeconds != 30 || all.Command != command {
		t.Errorf("%v subjects, %v s, %q", all.Subjects, all.TookSeconds, all.Command)
	}
	other := run("fourth", "send", "asynq", 1)
	other.Plan.Rounds = 1
	if err := all.add(other); err == nil || !strings.Contains(err.Error(), "-rounds 3") {
		t.Errorf("adding another number of rounds returned %v", err)
	}
	other = run("fifth", "send", "asynq", 1)
	other.Machine.CPUs = 4
	if err := all.add(other); err == nil || !strings.Contains(err.Error(), "4 CPUs") {
		t.Errorf("adding another machine returned %v", err)
	}
}
