package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
		m.CPUs, m.CPU, m.MemoryGB, m.System, m.Go, m.Load, number(m.FsyncUS))
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
	blank   string  // shown instead of 0
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
		if c.value == serverCPU || c.value == clientCPU {
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
	if s.High == 0 && c.blank != "" {
		return c.blank
	}
	text := number(s.Median * c.scale)
	if low, high := number(s.Low*c.scale), number(s.High*c.scale); s.Rounds > 1 && low != high {
		text += fmt.Sprintf(" (%s–%s)", low, high)
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
		return number(float64(n)) + " senders"
	case "lateness":
		return number(float64(n)) + " msg/s"
	case "growth":
		return short(n) + " pending"
	case "memory":
		return number(float64(n)) + " bytes"
	case "idle":
		if n == 1 {
			return "1 process"
		}
		return number(float64(n)) + " processes"
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
	columns := r.columns("send", perSecond)
	for _, n := range []int{1, 32, 1000} {
		heading := "of the ceiling, " + caseName("send", n)
		columns = append(columns, column{heading: heading, n: n, value: perSecond, ceiling: true})
	}
	const n = 1000
	columns = append(columns,
		column{heading: "server CPU, 1,000 senders", n: n, value: serverCPU},
		column{heading: "of the ceiling", n: n, value: serverCPU, ceiling: true},
		column{heading: "sender CPU, 1,000 senders", n: n, value: clientCPU},
		column{heading: "of the ceiling", n: n, value: clientCPU, ceiling: true})
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
		number(float64(r.Plan.Drain)), handlers),
		plots, "drain", []column{
			{heading: "msg/s", value: perSecond}, {heading: "of the ceiling", value: perSecond, ceiling: true},
			{heading: "server CPU, µs a message", value: serverCPU},
			{heading: "of the ceiling", value: serverCPU, ceiling: true},
			{heading: "worker CPU, µs a message", value: clientCPU},
			{heading: "of the ceiling", value: clientCPU, ceiling: true},
			{heading: "came twice", value: doubles}, {heading: "lost", value: lost},
			{heading: "left when time was up", value: unfinished},
		})
}

func latenessSection(r *results, plots string) string {
	var b strings.Builder
	for i, n := range r.cases("lateness") {
		text := fmt.Sprintf("%s messages a second are sent for %v, each due after a random delay of up to %v, and "+
			"handled by the same process. Lateness is the time from the due time to the start of the handler, in "+
			"milliseconds; below zero the message was handled early.", number(float64(n)), r.Plan.Lateness, r.Plan.Longest)
		if i > 0 {
			text = "The same."
		} else {
			text += " beanstalkd supports only whole seconds and was sent no others; asynq accepts any time and " +
				"rounds it down to whole seconds."
		}
		title, plot := "Lateness at "+caseName("lateness", n), fmt.Sprintf("lateness-%d", n)
		b.WriteString(section(r, "lateness", title, text, plots, plot, []column{
			{heading: "p50", n: n, value: p50}, {heading: "p99", n: n, value: p99},
			{heading: "p99.9", n: n, value: p999}, {heading: "max", n: n, value: maxMS},
			{heading: "min", n: n, value: minMS}, {heading: "early", n: n, value: early},
			{heading: "of", n: n, value: sentCount},
			{heading: "not yet handled when time was up", n: n, value: unfinished},
			{heading: "sent a second", n: n, value: perSecond},
		}) + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func herdSection(r *results, plots string) string {
	text := fmt.Sprintf("Messages that are all due in the same millisecond, with a waiting worker of %d handlers, while "+
		"another process keeps sending PINGs to the same Redis. The longest call is from Redis' slow log. The machine's own "+
		"share is the worst PING to the idle Redis in as long a time, while two processes only count. Subjects that "+
		"would take too long get fewer messages. A measurement ends after %v at the latest. The plain drain, made "+
		"afterwards, has as many messages that are due at once.", handlers, r.Plan.Patience)
	return section(r, "herd", "Herd", text, plots, "", []column{
		{heading: "messages", value: sentCount}, {heading: "handled", value: handled},
		{heading: "in, s", value: tookMS, scale: 0.001}, {heading: "msg/s", value: perSecond},
		{heading: "plain drain, msg/s", value: plainRate}, {heading: "worst PING, ms", value: worstPing},
		{heading: "the machine's own, ms", value: besidePing},
		{heading: "longest call, ms", value: longestCall}, {heading: "early", value: early},
		{heading: "came twice", value: doubles}, {heading: "lost", value: lost},
	})
}

func growthSection(r *results, _ string) string {
	var b strings.Builder
	for i, op := range []struct{ name, wall, cpu string }{
		{"send", sendUS, sendCPU}, {"claim and ack", claimUS, claimCPU}, {"cancel", cancelUS, cancelCPU},
	} {
		title, text := "Growth: "+op.name, "The same."
		if i == 0 {
			text = "The cost of a message while many others are pending, in µs: sent or cancelled in a call of its own, or " +
				"claimed by a worker with 32 handlers. The server's CPU follows the slash, if there is a server."
		}
		names := r.measured("growth")
		if len(names) == 0 {
			return ""
		}
		fmt.Fprintf(&b, "### %s\n\n%s\n\n", title, text)
		columns := r.columns("growth", op.wall)
		b.WriteString("| |")
		for _, c := range columns {
			b.WriteString(" " + c.heading + " |")
		}
		b.WriteString("\n|---|" + strings.Repeat("---:|", len(columns)) + "\n")
		for _, name := range names {
			fmt.Fprintf(&b, "| %s |", r.title(name))
			for _, c := range columns {
				text := r.cell("growth", name, c)
				c.value = op.cpu
				if cpu := r.cell("growth", name, c); cpu != "" {
					text += " / " + cpu
				}
				fmt.Fprintf(&b, " %s |", text)
			}
			b.WriteString("\n")
			for _, n := range append(r.cases("growth"), 0) {
				if problem := r.errorOf("growth", n, name); problem != "" && i == 0 {
					fmt.Fprintf(&b, "\n%s failed: %s.\n", r.title(name), problem)
				}
			}
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func memorySection(r *results, plots string) string {
	return section(r, "memory", "Memory", "Bytes that a pending message takes in addition to its payload. This is the "+
		"growth of used_memory for Redis, of the process for beanstalkd, and of the files with the log for the embedded "+
		"store.",
		plots, "memory", r.columns("memory", bytesAbove))
}

func idleSection(r *results, plots string) string {
	var columns []column
	for _, v := range []struct{ heading, value string }{
		{"commands/s", commandRate}, {"server CPU, ms/s", serverLoad}, {"workers' CPU, ms/s", clientLoad},
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

// number formats v with three significant digits and commas between thousands.
func number(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return "0"
	}
	digits := 3 - int(math.Ceil(math.Log10(math.Abs(v))))
	unit := math.Pow(10, float64(-digits))
	text := strconv.FormatFloat(math.Round(v/unit)*unit, 'f', max(0, digits), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	whole, fraction, _ := strings.Cut(text, ".")
	sign := ""
	if rest, negative := strings.CutPrefix(whole, "-"); negative {
		sign, whole = "-", rest
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole
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
