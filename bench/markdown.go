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

// markdown tells the results as a page without its title. With plots, a path to their directory, it shows them.
func markdown(r *results, plots string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s in %s: the median, and in brackets the lowest and the highest. Repeat it with\n\n    cd bench && %s\n\n",
		r.Started.Format(time.DateOnly), plural(r.Plan.Rounds, "round"), (time.Duration(r.TookSeconds) * time.Second).Round(time.Second), r.Command)
	if r.Unfinished {
		b.WriteString("**It was stopped before its end: much is missing.**\n\n")
	}
	m := r.Machine
	fmt.Fprintf(&b, "Machine: %d CPUs (%s), %.0f GB, %s, %s; load %.2f before the run; an fsync of 4 KB takes %s µs (median).\n"+
		"Servers, workers and senders share it, and talk by loopback.\n", m.CPUs, m.CPU, m.MemoryGB, m.System, m.Go, m.Load, number(m.FsyncUS))
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		if r.Versions[name] == "" {
			continue
		}
		versions = append(versions, fmt.Sprintf("%s %s", strings.TrimPrefix(name, "github.com/"), strings.TrimPrefix(r.Versions[name], name+" ")))
	}
	fmt.Fprintf(&b, "Versions: %s.\n\n| subject | settings |\n|---|---|\n", strings.Join(versions, ", "))
	for _, s := range r.Subjects {
		if s.Missing != "" {
			s.Settings = "**not measured:** " + s.Missing
		}
		fmt.Fprintf(&b, "| %s | %s |\n", s.Title, s.Settings)
	}
	for _, section := range []func(r *results, plots string) string{
		sendSection, drainSection, latenessSection, herdSection, growthSection, memorySection, idleSection, scriptsSection, clientsSection,
	} {
		if text := section(r, plots); text != "" {
			b.WriteString("\n" + text)
		}
	}
	return b.String()
}

// column is one of a table: the value of a case, in some unit.
type column struct {
	heading string
	n       int
	value   string
	scale   float64 // the value is multiplied by it
	ceiling bool    // as a part of the ceiling's
	blank   string  // in place of 0
}

// section is a heading, text, a plot, a table, and who is not in it.
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
			notes = append(notes, fmt.Sprintf("%s is not in it: %s", s.Title, why))
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

// caseName says what a case varies.
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
	case "clients":
		return fmt.Sprintf("%s a call, %s under way", plural(n/clientUnit, "message"), plural(n%clientUnit, "call"))
	}
	return workload
}

// columns makes one of each case, with 0 (batches) last.
func (r *results) columns(workload, value string) (all []column) {
	for _, n := range r.cases(workload) {
		all = append(all, column{heading: caseName(workload, n), n: n, value: value})
	}
	if len(all) > 1 && all[0].n == 0 {
		all = append(all[1:], all[0])
	}
	return all
}

func sendSection(r *results, plots string) string {
	columns := r.columns("send", perSecond)
	for _, n := range []int{32, 1000} {
		columns = append(columns, column{heading: "of the ceiling, " + caseName("send", n), n: n, value: perSecond, ceiling: true})
	}
	columns = append(columns, column{heading: "server CPU, 1,000 senders", n: 1000, value: serverCPU})
	return section(r, "send", "Send", fmt.Sprintf("Messages a second, %d-byte payloads, each due at a random time in 10 to 50 minutes. A sender sends one message, waits "+
		"until the queue has it, and sends the next; the batches are sent by 4 senders. Server CPU in µs a message, by Redis' own account.", r.Plan.Size),
		plots, "send", columns)
}

func drainSection(r *results, plots string) string {
	return section(r, "drain", "Drain", fmt.Sprintf("%s messages that are due at once, taken by a worker with %d handlers that do nothing. All are acknowledged. The clock of "+
		"Later and of the ceiling stops when the last ack has been answered, that of the others when the last handler has begun.", number(float64(r.Plan.Drain)), handlers),
		plots, "drain", []column{
			{heading: "msg/s", value: perSecond}, {heading: "of the ceiling", value: perSecond, ceiling: true},
			{heading: "server CPU, µs a message", value: serverCPU}, {heading: "worker CPU, µs a message", value: clientCPU},
			{heading: "came twice", value: doubles}, {heading: "lost", value: lost}, {heading: "left when time was up", value: unfinished},
		})
}

func latenessSection(r *results, plots string) string {
	var b strings.Builder
	for i, n := range r.cases("lateness") {
		text := fmt.Sprintf("%s messages a second are sent for %v, each due after a random delay of up to %v, and handled by the same process. From the due time to the "+
			"start of the handler, in milliseconds; below zero is early. A message that is early was handled before its time.", number(float64(n)), r.Plan.Lateness, r.Plan.Longest)
		if i > 0 {
			text = "The same."
		} else {
			text += " beanstalkd knows whole seconds only and was given no others; asynq takes any time and keeps the whole seconds of it."
		}
		b.WriteString(section(r, "lateness", "Lateness at "+caseName("lateness", n), text, plots, fmt.Sprintf("lateness-%d", n), []column{
			{heading: "p50", n: n, value: p50}, {heading: "p99", n: n, value: p99}, {heading: "p99.9", n: n, value: p999}, {heading: "max", n: n, value: maxMS},
			{heading: "min", n: n, value: minMS}, {heading: "early", n: n, value: early}, {heading: "of", n: n, value: sentCount},
			{heading: "not yet handled when time was up", n: n, value: unfinished}, {heading: "sent a second", n: n, value: perSecond},
		}) + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func herdSection(r *results, plots string) string {
	return section(r, "herd", "Herd", fmt.Sprintf("Messages that all fall due in one millisecond, with a worker of %d handlers waiting, while another process asks the same Redis for "+
		"PING all the time. The longest call is what Redis' slow log knows. Those that would take too long get fewer messages. It ends after %v at the latest. "+
		"The plain drain is one of as many messages that are due at once, afterwards.", handlers, r.Plan.Patience), plots, "", []column{
		{heading: "messages", value: sentCount}, {heading: "handled", value: handled}, {heading: "in, s", value: tookMS, scale: 0.001}, {heading: "msg/s", value: perSecond},
		{heading: "plain drain, msg/s", value: plainRate}, {heading: "worst PING, ms", value: worstPing}, {heading: "longest call, ms", value: longestCall}, {heading: "early", value: early}, {heading: "came twice", value: doubles}, {heading: "lost", value: lost},
	})
}

func growthSection(r *results, plots string) string {
	var b strings.Builder
	for i, op := range []struct{ name, wall, cpu string }{{"send", sendUS, sendCPU}, {"claim and ack", claimUS, claimCPU}, {"cancel", cancelUS, cancelCPU}} {
		title, text := "Growth: "+op.name, "The same."
		if i == 0 {
			text = "What a message costs when so many others wait, in µs: sent or cancelled alone, one call after the other, or taken by a worker with 32 handlers. " +
				"After the slash the server's CPU, where there is a server."
		}
		names := r.measured("growth")
		if len(names) == 0 {
			return ""
		}
		fmt.Fprintf(&b, "### %s\n\n%s\n\n", title, text)
		if i == 0 && plots != "" {
			fmt.Fprintf(&b, "![Growth](%s/growth.svg)\n\n", plots)
		}
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
	return section(r, "memory", "Memory", "Bytes that a waiting message takes above its payload: of a Redis the growth of its used_memory, of beanstalkd that of the process, of the "+
		"embedded store that of its files, with the log.", plots, "memory", r.columns("memory", bytesAbove))
}

func idleSection(r *results, plots string) string {
	var columns []column
	for _, v := range []struct{ heading, value string }{{"commands/s", commandRate}, {"server CPU, ms/s", serverLoad}, {"workers' CPU, ms/s", clientLoad}} {
		for _, c := range r.columns("idle", v.value) {
			c.heading = v.heading + ", " + c.heading
			columns = append(columns, c)
		}
	}
	return section(r, "idle", "Idle", "So many worker processes on one queue of which the only message is due in an hour. Commands as MONITOR shows them, without what scripts call; "+
		"CPU of the server, and of all worker processes together.", plots, "", columns)
}

func scriptsSection(r *results, _ string) string {
	var b strings.Builder
	for _, n := range r.cases("scripts") {
		for _, s := range r.Subjects {
			claim, ok := r.of("scripts", n, s.Name, claimCPU)
			ack, _ := r.of("scripts", n, s.Name, ackCPU)
			send, _ := r.of("scripts", n, s.Name, sendCPU)
			if ok {
				fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %s |\n", s.Title, n/10, n%10, number(send.Median), number(claim.Median), number(ack.Median))
			}
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "### Scripts\n\nRedis' CPU in µs a message, by its own account, for calls of a size, one after the other and without a worker; the acks of a claim in so many " +
		"pieces. The messages that are sent are due at random in 10 to 50 minutes, those that are claimed at once.\n\n" +
		"| | messages a call | pieces | send | claim | ack |\n|---|---:|---:|---:|---:|---:|\n" + b.String()
}

// clientsSection has a table for sends and one for claims with acks, of which a row is a client in one case.
func clientsSection(r *results, _ string) string {
	names := r.measured("clients")
	if len(names) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("### Clients\n\nLater's own scripts called by the Redis client that Later uses and by another one, without the rest of Later: so many callers, each waiting for the " +
		"reply to its call. A call has a batch of messages; Later has two calls of a kind under way for a queue. CPU in µs a call, of this process and by Redis' own account; " +
		"allocations of this process.\n")
	for _, half := range []struct{ title, op string }{{"send", opSend}, {"claim and ack, either is a call", opClaimAck}} {
		fmt.Fprintf(&b, "\n| %s | | calls/s | msg/s | client CPU | mallocs a call | bytes a call | Redis CPU |\n|---|---|---:|---:|---:|---:|---:|---:|\n", half.title)
		for _, n := range r.cases("clients") {
			for _, name := range names {
				cells := []string{caseName("clients", n), r.title(name)}
				for _, value := range []string{callRate, callMessages, callClientCPU, callMallocs, callBytes, callServerCPU} {
					cells = append(cells, r.cell("clients", name, column{n: n, value: callValue(half.op, value)}))
				}
				fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
			}
		}
	}
	for _, n := range r.cases("clients") {
		for _, name := range names {
			if problem := r.errorOf("clients", n, name); problem != "" {
				fmt.Fprintf(&b, "\n%s failed (%s): %s.\n", r.title(name), caseName("clients", n), problem)
			}
		}
	}
	return b.String()
}

// number writes three significant digits, with commas between thousands.
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

// short writes 10k, 1M.
func short(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return strconv.Itoa(n/1_000_000) + "M"
	case n >= 1000 && n%1000 == 0:
		return strconv.Itoa(n/1000) + "k"
	}
	return strconv.Itoa(n)
}
