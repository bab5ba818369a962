package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/internal/benchmark"
)

// -report replaces the part of docs/benchmarks.md between these lines and keeps the rest.
const (
	beginMark = "<!-- begin: written by cd bench && go run . -report results.json -->"
	endMark   = "<!-- end -->"
)

// writeDocs writes the generated part of benchmarks.md and the plots in a documentation directory.
func writeDocs(r *results, docs string) error {
	page := filepath.Join(docs, "benchmarks.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(text), beginMark)
	_, after, ended := strings.Cut(rest, endMark)
	if !begun || !ended {
		return fmt.Errorf("%s lacks the lines %q and %q that enclose the results", page, beginMark, endMark)
	}
	if err := writePlots(r, filepath.Join(docs, "plots")); err != nil {
		return err
	}
	generated := before + beginMark + "\n\n" + strings.TrimSpace(markdown(r, "plots")) + "\n\n" + endMark + after
	return os.WriteFile(page, []byte(generated), 0o644)
}

// markdown returns the results as a page without its title. It shows the plots if plots is the path of their directory.
func markdown(r *results, plots string) string {
	var b strings.Builder
	took := (time.Duration(r.TookSeconds) * time.Second).Round(time.Second)
	fmt.Fprintf(&b, "%s, %s in %s. Values are medians, with the lowest and the highest in brackets. Repeat with\n\n"+
		"    cd bench && %s\n\n", r.Started.Format(time.DateOnly), plural(r.Plan.Rounds, "round"), took, r.Command)
	if r.Unfinished {
		b.WriteString("**The run was stopped early: results are missing.**\n\n")
	}
	m := r.Machine
	fmt.Fprintf(&b, "Machine: %d CPUs (%s), %.0f GB, %s, %s; load %.2f before the run; "+
		"an fsync of 4 KB takes %s µs (median).\n"+
		"Servers, workers and senders share it and communicate over loopback.\n",
		m.CPUs, m.CPU, m.MemoryGB, m.System, m.Go, m.Load, benchmark.Number(m.FsyncUS))
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		if r.Versions[name] == "" {
			continue
		}
		version := strings.TrimPrefix(r.Versions[name], name+" ")
		versions = append(versions, fmt.Sprintf("%s %s", strings.TrimPrefix(name, "github.com/"), version))
	}
	fmt.Fprintf(&b, "Versions: %s.\n\n| subject | settings |\n|---|---|\n", strings.Join(versions, ", "))
	for _, s := range r.Subjects {
		if s.Missing != "" {
			s.Settings = "**not measured:** " + s.Missing
		}
		fmt.Fprintf(&b, "| %s | %s |\n", s.Title, s.Settings)
	}
	for _, section := range []func(r *results, plots string) string{
		sendSection, drainSection, latenessSection, herdSection, growthSection, memorySection, idleSection,
	} {
		if text := section(r, plots); text != "" {
			b.WriteString("\n" + text)
		}
	}
	return wrapProse(b.String())
}

// wrapProse breaks lines of more than 120 bytes that are no table, image or code.
func wrapProse(page string) string {
	var b strings.Builder
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "|") || strings.HasPrefix(line, "!") || strings.HasPrefix(line, "    ") {
			b.WriteString(line)
			continue
		}
		for len(line) > 120 {
			space := strings.LastIndexByte(line[:120], ' ')
			if space < 0 {
				break
			}
			b.WriteString(line[:space] + "\n")
			line = line[space+1:]
		}
		b.WriteString(line)
	}
	return b.String()
}

// column is a column of a table: the value of a case.
type column struct {
	heading string
	n       int
	value   string
	scale   float64 // factor for the value; 0 means 1
	ceiling bool    // as a fraction of the ceiling's value, or of a CPU time the other way around
	also    string  // a value that follows a slash
}

// section returns a heading, a text, a plot, a table, and the reasons why subjects are missing or failed.
func section(r *results, workload, title, text, plots, plot string, columns []column) string {
	names := r.measured(workload)
	if len(names) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s\n\n", title, text)
	if plots != "" && plot != "" {
		fmt.Fprintf(&b, "![%s](%s/%s.svg)\n\n", title, plots, plot)
	}
	b.WriteString("| |")
	for _, c := range columns {
		b.WriteString(" " + c.heading + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(columns)) + "\n")
	var notes []string
	for _, name := range names {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = r.cell(workload, name, c)
		}
		fmt.Fprintf(&b, "| %s | %s |\n", r.title(name), strings.Join(cells, " | "))
		for _, n := range r.cases(workload) {
			if problem := r.errorOf(workload, n, name); problem != "" {
				notes = append(notes, fmt.Sprintf("%s failed (%s): %s", r.title(name), caseName(workload, n), problem))
			}
		}
	}
	for _, s := range r.Subjects {
		if why := s.Cannot[workload]; why != "" && s.Missing == "" {
			notes = append(notes, fmt.Sprintf("%s is not included: %s", s.Title, why))
		}
	}
	for _, note := range notes {
		b.WriteString("\n" + note + ".\n")
	}
	return b.String()
}

func (r *results) cell(workload, subject string, c column) string {
	s, ok := r.of(workload, c.n, subject, c.value)
	if !ok {
		return ""
	}
	if c.ceiling {
		top, ok := r.of(workload, c.n, "ceiling", c.value)
		if !ok || subject == "ceiling" {
			return ""
		}
		if c.value == benchmark.ServerCPU || c.value == benchmark.ClientCPU {
			s, top = top, s
		}
		if top.Median == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", s.Median/top.Median)
	}
	if c.scale == 0 {
		c.scale = 1
	}
	text := benchmark.Number(s.Median * c.scale)
	if low, high := benchmark.Number(s.Low*c.scale), benchmark.Number(s.High*c.scale); s.Rounds > 1 && low != high {
		text += fmt.Sprintf(" (%s–%s)", low, high)
	}
	if c.also != "" {
		if also := r.cell(workload, subject, column{n: c.n, value: c.also}); also != "" {
			text += " / " + also
		}
	}
	return text
}

// caseName describes a case.
func caseName(workload string, n int) string {
	switch workload {
	case "send":
		switch n {
		case 0:
			return "batches of 1,000"
		case 1:
			return "1 sender"
		}
		return benchmark.Number(float64(n)) + " senders"
	case "lateness":
		return benchmark.Number(float64(n)) + " msg/s"
	case "growth":
		return short(n) + " pending"
	case "memory":
		return benchmark.Number(float64(n)) + " bytes"
	case "idle":
		if n == 1 {
			return "1 process"
		}
		return benchmark.Number(float64(n)) + " processes"
	}
	return workload
}

// columns returns a column for each case, with 0 (batches) last.
func (r *results) columns(workload, value string) (all []column) {
	for _, n := range r.cases(workload) {
		all = append(all, column{heading: caseName(workload, n), n: n, value: value})
	}
	if len(all) > 1 && all[0].n == 0 {
		all = append(all[1:], all[0])
	}
	return all
}

// ofTheCeiling explains the columns that compare with the ceiling.
const ofTheCeiling = "Of the ceiling is the rate as a fraction of the ceiling's rate, or the ceiling's CPU time as a " +
	"fraction of the CPU time; the latter depends less on the machine."

func sendSection(r *results, plots string) string {
	columns := r.columns("send", benchmark.PerSecond)
	for _, n := range []int{1, 32, 1000} {
		heading := "of the ceiling, " + caseName("send", n)
		columns = append(columns, column{heading: heading, n: n, value: benchmark.PerSecond, ceiling: true})
	}
	const n = 1000
	columns = append(columns,
		column{heading: "server CPU, 1,000 senders", n: n, value: benchmark.ServerCPU},
		column{heading: "of the ceiling", n: n, value: benchmark.ServerCPU, ceiling: true},
		column{heading: "sender CPU, 1,000 senders", n: n, value: benchmark.ClientCPU},
		column{heading: "of the ceiling", n: n, value: benchmark.ClientCPU, ceiling: true})
	return section(r, "send", "Send", fmt.Sprintf("Messages a second, with %d-byte payloads, each due at a random time "+
		"in 10 to 50 minutes. A sender sends one message, waits until the queue has it, and sends the next; batches "+
		"are sent by 4 senders. CPU is in µs a message; that of the server is as reported by Redis. "+
		ofTheCeiling, r.Plan.Size),
		plots, "send", columns)
}

func drainSection(r *results, plots string) string {
	return section(r, "drain", "Drain", fmt.Sprintf("%s messages that are due at once, claimed by a worker with "+
		"%d handlers that do nothing. All are acked. The clock of Later and of the ceiling stops when the last ack has "+
		"returned, that of the others when the last handler has started. "+ofTheCeiling,
		benchmark.Number(float64(r.Plan.Drain)), handlers),
		plots, "drain", []column{
			{heading: "msg/s", value: benchmark.PerSecond}, {heading: "of the ceiling", value: benchmark.PerSecond, ceiling: true},
			{heading: "server CPU, µs a message", value: benchmark.ServerCPU},
			{heading: "of the ceiling", value: benchmark.ServerCPU, ceiling: true},
			{heading: "worker CPU, µs a message", value: benchmark.ClientCPU},
			{heading: "of the ceiling", value: benchmark.ClientCPU, ceiling: true},
			{heading: "came twice", value: benchmark.Doubles}, {heading: "lost", value: benchmark.Lost},
			{heading: "left when time was up", value: benchmark.Unfinished},
		})
}

func latenessSection(r *results, plots string) string {
	var b strings.Builder
	for i, n := range r.cases("lateness") {
		text := fmt.Sprintf("%s messages a second are sent for %v, each due after a random delay of up to %v, and "+
			"handled by the same process. Lateness is the time from the due time to the start of the handler, in "+
			"milliseconds; below zero the message was handled early.", benchmark.Number(float64(n)), r.Plan.Lateness, r.Plan.Longest)
		if i > 0 {
			text = "The same."
		} else {
			text += " beanstalkd supports only whole seconds and was sent no others; asynq accepts any time and " +
				"rounds it down to whole seconds."
		}
		title, plot := "Lateness at "+caseName("lateness", n), fmt.Sprintf("lateness-%d", n)
		b.WriteString(section(r, "lateness", title, text, plots, plot, []column{
			{heading: "p50", n: n, value: benchmark.P50}, {heading: "p99", n: n, value: benchmark.P99},
			{heading: "p99.9", n: n, value: benchmark.P999}, {heading: "max", n: n, value: benchmark.MaxMS},
			{heading: "min", n: n, value: benchmark.MinMS}, {heading: "early", n: n, value: benchmark.Early},
			{heading: "of", n: n, value: benchmark.Messages},
			{heading: "not yet handled when time was up", n: n, value: benchmark.Unfinished},
			{heading: "sent a second", n: n, value: benchmark.PerSecond},
		}) + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func herdSection(r *results, plots string) string {
	text := fmt.Sprintf("Messages that are all due in the same millisecond, with a waiting worker of %d handlers, while "+
		"another process keeps sending PINGs to the same Redis. The longest call is from Redis' slow log. Subjects that "+
		"would take too long get fewer messages. A measurement ends after %v at the latest. The plain drain, made "+
		"afterwards, has as many messages that are due at once.", handlers, r.Plan.Patience)
	return section(r, "herd", "Herd", text, plots, "", []column{
		{heading: "messages", value: benchmark.Messages}, {heading: "handled", value: benchmark.Handled},
		{heading: "in, s", value: benchmark.TookMS, scale: 0.001}, {heading: "msg/s", value: benchmark.PerSecond},
		{heading: "plain drain, msg/s", value: benchmark.PlainRate}, {heading: "worst PING, ms", value: benchmark.WorstPing},
		{heading: "longest call, ms", value: benchmark.LongestCall}, {heading: "early", value: benchmark.Early},
		{heading: "came twice", value: benchmark.Doubles}, {heading: "lost", value: benchmark.Lost},
	})
}

func growthSection(r *results, _ string) string {
	var b strings.Builder
	for i, op := range []struct{ name, wall, cpu string }{
		{"send", benchmark.SendUS, benchmark.SendCPU}, {"claim and ack", benchmark.ClaimUS, benchmark.ClaimCPU},
		{"cancel", benchmark.CancelUS, benchmark.CancelCPU},
	} {
		text := "The same."
		if i == 0 {
			text = "The cost of a message while many others are pending, in µs: sent or cancelled in a call of its own, or " +
				"claimed by a worker with 32 handlers. The server's CPU follows the slash, if there is a server."
		}
		columns := r.columns("growth", op.wall)
		for i := range columns {
			columns[i].also = op.cpu
		}
		b.WriteString(section(r, "growth", "Growth: "+op.name, text, "", "", columns) + "\n")
	}
	return strings.TrimSpace(b.String()) + "\n"
}

func memorySection(r *results, plots string) string {
	return section(r, "memory", "Memory", "Bytes that a pending message takes in addition to its payload. This is the "+
		"growth of used_memory for Redis, of the process for beanstalkd, and of the files with the log for the embedded "+
		"store.",
		plots, "memory", r.columns("memory", benchmark.BytesAbove))
}

func idleSection(r *results, plots string) string {
	var columns []column
	for _, v := range []struct{ heading, value string }{
		{"commands/s", benchmark.CommandRate}, {"server CPU, ms/s", benchmark.ServerLoad}, {"workers' CPU, ms/s", benchmark.ClientLoad},
	} {
		for _, c := range r.columns("idle", v.value) {
			c.heading = v.heading + ", " + c.heading
			columns = append(columns, c)
		}
	}
	return section(r, "idle", "Idle", "Idle worker processes on one queue, whose only message is due in an hour. "+
		"Commands are counted with MONITOR, without those called by scripts. CPU is that of the server, and of all worker "+
		"processes together.", plots, "", columns)
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// short formats n as 10k or 1M.
func short(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return strconv.Itoa(n/1_000_000) + "M"
	case n >= 1000 && n%1000 == 0:
		return strconv.Itoa(n/1000) + "k"
	}
	return strconv.Itoa(n)
}
