package main

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
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
	generated, err := markdown(r, "plots")
	if err == nil {
		err = writePlots(r, filepath.Join(docs, "plots"))
	}
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(before+beginMark+"\n\n"+generated+"\n"+endMark+after), 0o644)
}

//go:embed report.md.tmpl
var reportTemplate string

// markdown returns the results as a page without its title. It shows the plots if plots is the path of their directory.
// A column in the template is a heading, a value, a case and an option, with bars between them. The option is ceiling,
// for a value as a fraction of the ceiling's, or a value that follows a slash.
func markdown(r *results, plots string) (string, error) {
	functions := template.FuncMap{
		"number": func(n any) string {
			f, _ := strconv.ParseFloat(fmt.Sprint(n), 64)
			return benchmark.Number(f)
		},
		"measured": func(workload string) bool { return len(r.measured(workload)) > 0 },
		"sizes":    r.cases,
		"plot": func(title, name string) string {
			if plots == "" {
				return ""
			}
			return fmt.Sprintf("![%s](%s/%s.svg)\n", title, plots, name)
		},
		"of": func(n int, columns ...string) (all []string) {
			for _, c := range columns {
				all = append(all, fmt.Sprintf("%s|%d|", c, n))
			}
			return all
		},
		"cases": func(workload, value, option string, heading ...string) (all []string) {
			for _, n := range r.casesOf(workload) {
				title := strings.Join(heading, "") + caseName(workload, n)
				all = append(all, fmt.Sprintf("%s|%s|%d|%s", title, value, n, option))
			}
			return all
		},
		"table": r.table,
	}
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		if version := strings.TrimPrefix(r.Versions[name], name+" "); version != "" {
			versions = append(versions, strings.TrimPrefix(name, "github.com/")+" "+version)
		}
	}
	var page strings.Builder
	err := template.Must(template.New("").Funcs(functions).Parse(reportTemplate)).Execute(&page, struct {
		*results
		Took     time.Duration
		Versions string
	}{r, (time.Duration(r.TookSeconds) * time.Second).Round(time.Second), strings.Join(versions, ", ")})
	return wrapProse(page.String()), err
}

// wrapProse breaks lines of more than 120 bytes, except in tables, images and code, and drops repeated empty lines.
func wrapProse(page string) string {
	var b strings.Builder
	last := ""
	for line := range strings.Lines(page) {
		if line == "\n" && last == "\n" {
			continue
		}
		last = line
		for prose := !strings.ContainsAny(line[:1], "|! "); prose && len(line) > 120; {
			space := strings.LastIndexByte(line[:120], ' ')
			b.WriteString(line[:space] + "\n")
			line = line[space+1:]
		}
		b.WriteString(line)
	}
	return strings.TrimSpace(b.String()) + "\n"
}

// table returns the table of a workload, and the reasons why subjects are missing or failed. Columns are texts and
// lists of texts.
func (r *results) table(workload string, columns ...any) string {
	var specs [][]string
	for _, c := range columns {
		list, ok := c.([]string)
		if !ok {
			list = []string{c.(string)}
		}
		for _, spec := range list {
			specs = append(specs, strings.Split(spec+"|", "|"))
		}
	}
	var b strings.Builder
	b.WriteString("| |")
	for _, spec := range specs {
		b.WriteString(" " + spec[0] + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(specs)) + "\n")
	var notes []string
	for _, name := range r.measured(workload) {
		fmt.Fprintf(&b, "| %s |", r.title(name))
		for _, spec := range specs {
			n, _ := strconv.Atoi(spec[2])
			b.WriteString(" " + r.cell(workload, name, spec[1], n, spec[3]) + " |")
		}
		b.WriteString("\n")
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

func (r *results) cell(workload, subject, value string, n int, option string) string {
	s, ok := r.of(workload, n, subject, value)
	if !ok {
		return ""
	}
	if option == "ceiling" {
		top, ok := r.of(workload, n, "ceiling", value)
		if value == benchmark.ServerCPU || value == benchmark.ClientCPU { // less is better
			s, top = top, s
		}
		if !ok || subject == "ceiling" || top.Median == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", s.Median/top.Median)
	}
	text := benchmark.Number(s.Median)
	if low, high := benchmark.Number(s.Low), benchmark.Number(s.High); s.Rounds > 1 && low != high {
		text += fmt.Sprintf(" (%s–%s)", low, high)
	}
	if also := r.cell(workload, subject, option, n, ""); option != "" && also != "" {
		text += " / " + also
	}
	return text
}

// caseName describes a case.
func caseName(workload string, n int) string {
	unit := map[string]string{
		"send": "senders", "lateness": "msg/s", "growth": "pending", "memory": "bytes", "idle": "processes",
		"clients": "min", "single": "min", "life": "msg/s", "workers": "workers",
		"limit": "at once", "held": "msg/s", "keys": "keys", "ordered": "keys", "parked": "messages",
		"crowd": "messages", "urgent": "messages",
	}[workload]
	switch {
	case unit == "":
		return workload
	case n == spreadMinutes && (workload == "clients" || workload == "single"):
		return "1 to 48 h"
	case n == 24*60 && (workload == "clients" || workload == "single"):
		return "24 h"
	case workload == "send" && n == 0:
		return "batches of 1,000"
	case workload == "keys" && n == 0:
		return "a plain queue"
	case workload == "keys" && n == withoutKeys:
		return "a limit, no keys"
	case n == 1:
		return "1 " + strings.TrimSuffix(strings.TrimSuffix(unit, "s"), "e")
	}
	return benchmark.Number(float64(n)) + " " + unit
}
