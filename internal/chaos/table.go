//go:build unix

package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// Summary sums up several runs of one fault.
type Summary struct {
	Fault, Title, Right, Form string
	Runs, Failed              int
	CutShort                  int // of Runs
	Slow                      int // of Runs: missed a target
	Messages                  int // acknowledged
	Lost, Doubled, Early      int
	TwoHolders                int
	LostPermitted, Undone     int
	Resent                    int
	Stall                     Longest
	AfterDeath, AfterRestart  Longest
	AfterPromotion            Longest
	WhileFrozen               Longest
}

// Summarize sums up runs by fault, in the order of Faults.
func Summarize(results []*Result) (all []*Summary) {
	for _, f := range append(slices.Clone(faults), soak) {
		s := &Summary{Fault: f.name, Title: f.title, Right: f.right, Form: string(f.setting.form)}
		for _, r := range results {
			if r.Fault == f.name {
				s.add(r)
			}
		}
		if s.Runs > 0 {
			all = append(all, s)
		}
	}
	return all
}

func (s *Summary) add(r *Result) {
	s.Runs++
	if !r.OK() {
		s.Failed++
	}
	if r.CutShort {
		s.CutShort++
	}
	if r.TooSlow() != "" {
		s.Slow++
	}
	s.Messages += r.Sent
	s.Lost += r.Lost
	s.Doubled += r.Doubled
	s.Early += r.Early
	s.TwoHolders += r.TwoHolders
	s.LostPermitted += r.LostPermitted
	s.Undone += r.Undone
	s.Resent += r.Resent
	s.Stall.merge(r.Stall)
	s.AfterDeath.merge(r.AfterDeath)
	s.AfterRestart.merge(r.AfterRestart)
	s.AfterPromotion.merge(r.AfterPromotion)
	s.WhileFrozen.merge(r.WhileFrozen)
}

// Table returns the summaries as a Markdown table.
func Table(all []*Summary) string {
	var b strings.Builder
	b.WriteString("| fault | expected | runs | messages | lost | doubled | early | two holders | sent twice | " +
		"lost, undone as permitted | longest stall s | " +
		"after death / restart / promotion / while another node is frozen s (target " + targetsText + ") | " +
		"runs beyond a target |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range all {
		runs := fmt.Sprint(s.Runs)
		if s.CutShort > 0 {
			runs += fmt.Sprintf(" (%d cut short)", s.CutShort)
		}
		fmt.Fprintf(&b, "| %s (`%s`) | %s | %s | %d | %d | %d | %d | %d | %d | %d, %d | %s | %s / %s / %s / "+
			"%s | %d |\n",
			s.Title, s.Fault, s.Right, runs, s.Messages, s.Lost, s.Doubled, s.Early, s.TwoHolders, s.Resent,
			s.LostPermitted, s.Undone, s.Stall, s.AfterDeath, s.AfterRestart, s.AfterPromotion, s.WhileFrozen, s.Slow)
	}
	return b.String()
}

// Totals returns one sentence about all runs.
func Totals(results []*Result) string {
	messages, failed, lost, early, holders, slow, cut := 0, 0, 0, 0, 0, 0, 0
	var seeds []uint64
	for _, r := range results {
		messages += r.Sent
		lost += r.Lost
		early += r.Early
		holders += r.TwoHolders
		seeds = append(seeds, r.Seed)
		if !r.OK() {
			failed++
		}
		if r.TooSlow() != "" {
			slow++
		}
		if r.CutShort {
			cut++
		}
	}
	if len(seeds) == 0 {
		return "No runs."
	}
	text := fmt.Sprintf("%d runs, seeds %d to %d, %d acknowledged messages: %d lost against the promise, %d early, "+
		"%d double holders; %d runs broke a promise, %d went on later than a target.",
		len(results), slices.Min(seeds), slices.Max(seeds), messages, lost, early, holders, failed, slow)
	if cut > 0 {
		text += fmt.Sprintf(" %d runs were cut short by an interrupt.", cut)
	}
	return text
}

// Machine describes the machine and software of the runs.
func Machine() string {
	version, _ := exec.Command("redis-server", "--version").Output()
	fields := strings.Fields(string(version))
	redis := "redis-server"
	if i := slices.IndexFunc(fields, func(f string) bool { return strings.HasPrefix(f, "v=") }); i >= 0 {
		redis = "Redis " + strings.TrimPrefix(fields[i], "v=")
	}
	return fmt.Sprintf("%s, %s, %s/%s, %d cores that servers, proxies and clients share",
		redis, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

// SoakText describes the resource usage of soaks as the means of their quarters. It returns "" if there was no soak.
func SoakText(results []*Result) string {
	var b strings.Builder
	for _, r := range results {
		if r.Fault != Soak || len(r.Usage) < 4 {
			continue
		}
		cut := ""
		if r.CutShort {
			cut = fmt.Sprintf(" (cut short; %.0f s were planned)", r.Planned)
		}
		fmt.Fprintf(&b, "\nA soak of %.0f s%s with %d faults, %d messages; the means of each quarter:\n\n"+
			"| quarter | worker MiB resident | worker MiB heap | goroutines | Redis MiB |\n|---|---|---|---|---|\n",
			r.Seconds, cut, r.Injected, r.Sent)
		for q := range 4 {
			part := r.Usage[q*len(r.Usage)/4 : (q+1)*len(r.Usage)/4]
			var sum Usage
			for _, u := range part {
				sum.WorkerKiB += u.WorkerKiB
				sum.HeapKiB += u.HeapKiB
				sum.Goroutines += u.Goroutines
				sum.RedisKiB += u.RedisKiB
			}
			n := int64(len(part))
			fmt.Fprintf(&b, "| %d | %.1f | %.1f | %d | %.1f |\n",
				q+1, float64(sum.WorkerKiB/n)/1024, float64(sum.HeapKiB/n)/1024, sum.Goroutines/n,
				float64(sum.RedisKiB/n)/1024)
		}
	}
	return b.String()
}

// Read reads results, one JSON object per line.
func Read(from io.Reader) (results []*Result, err error) {
	lines := json.NewDecoder(bufio.NewReader(from))
	for {
		r := &Result{}
		switch err := lines.Decode(r); {
		case errors.Is(err, io.EOF):
			return results, nil
		case err != nil:
			return nil, fmt.Errorf("read results: %w", err)
		}
		results = append(results, r)
	}
}

// beginMark and endMark enclose the part of a page that Report writes.
const (
	beginMark = "<!-- results: written by internal/chaos/cmd/chaos -report -->"
	endMark   = "<!-- end of results -->"
)

// Report replaces the marked part of a page with the results.
func Report(page string, results []*Result) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), beginMark)
	_, after, closed := strings.Cut(rest, endMark)
	if !ok || !closed {
		return fmt.Errorf("%s has no part between %q and %q", page, beginMark, endMark)
	}
	var commands []string
	for _, r := range results {
		if c := "`" + r.Command + "`"; r.Command != "" && !slices.Contains(commands, c) {
			commands = append(commands, c)
		}
	}
	written := fmt.Sprintf("%s%s\n\n%s\n\nOn %s. Made by %s.\n\n%s%s\n%s%s",
		before, beginMark, Totals(results), Machine(), strings.Join(commands, ", "),
		Table(Summarize(results)), AroundText(results)+SoakText(results), endMark, after)
	return os.WriteFile(page, []byte(written), 0o644)
}
