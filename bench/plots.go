package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/laterq/later/internal/benchmark"
)

// writePlots writes the plots that have results to dir.
func writePlots(r *results, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	plots := map[string]string{
		"throughput": barPlot(r, "Messages a second: more is better", []bars{
			{"Send, 1,000 senders", "send", 1000, benchmark.PerSecond},
			{fmt.Sprintf("Drain, %d handlers", handlers), "drain", 0, benchmark.PerSecond},
		}),
		"send":  barPlot(r, "Messages sent a second: more is better", barsOf(r, "send", benchmark.PerSecond)),
		"drain": barPlot(r, "Messages drained a second: more is better", barsOf(r, "drain", benchmark.PerSecond)),
		"memory": barPlot(r, "Bytes of a pending message besides its payload: less is better",
			barsOf(r, "memory", benchmark.BytesAbove)),
	}
	for _, n := range r.cases("lateness") {
		plots[fmt.Sprintf("lateness-%d", n)] = latenessPlot(r, n)
	}
	for name, text := range plots {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name+".svg"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// bars is one panel: the value of a case for each subject.
type bars struct {
	title    string
	workload string
	n        int
	value    string
}

func barsOf(r *results, workload, value string) (all []bars) {
	for _, n := range r.casesOf(workload) {
		title := caseName(workload, n)
		if workload == "drain" {
			title = ""
		}
		all = append(all, bars{title, workload, n, value})
	}
	return all
}

const (
	labelWidth = 225.0
	panelWidth = 250.0
	barHeight  = 24.0
	maxPanels  = 3 // side by side
)

// barPlot draws panels of bars side by side, with a row for each subject. A line shows the range of the rounds.
func barPlot(r *results, title string, panels []bars) string {
	var names []string
	measured := func(p bars, s subjectInfo) bool {
		_, ok := r.of(p.workload, p.n, s.Name, p.value)
		return ok
	}
	for _, s := range r.Subjects {
		if slices.ContainsFunc(panels, func(p bars) bool { return measured(p, s) }) {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	rows := (len(panels) + maxPanels - 1) / maxPanels
	perRow := (len(panels) + rows - 1) / rows
	rowHeight := 34 + float64(len(names))*barHeight
	s := newSVG(labelWidth+float64(perRow)*panelWidth, 34+float64(rows)*rowHeight+14, title)
	s.text(0, 18, "title", "start", "%s", title)
	for i, p := range panels {
		left := labelWidth + float64(i%perRow)*panelWidth
		top := 34 + float64(i/perRow)*rowHeight
		s.text(left, top+18, "muted", "start", "%s", p.title)
		highest := 0.0
		for _, name := range names {
			v, _ := r.of(p.workload, p.n, name, p.value)
			highest = math.Max(highest, v.High)
		}
		across := scale{0, math.Max(highest, 1), left, left + panelWidth - 78, false}
		s.line(left, top+28, left, top+28+float64(len(names))*barHeight, "axis")
		for j, name := range names {
			y := top + 30 + float64(j)*barHeight
			if i%perRow == 0 {
				s.text(labelWidth-10, y+15, "", "end", "%s", r.title(name))
			}
			v, ok := r.of(p.workload, p.n, name, p.value)
			if !ok {
				s.text(left+6, y+15, "muted", "start", "–")
				continue
			}
			l := lookOf(name)
			fill := fmt.Sprintf("fill=\"%s\" rx=\"2\" fill-opacity=\"%s\"", l.colour, l.opacity)
			s.rect(left, y+2, math.Max(0, across.at(v.Median)-left), barHeight-7, fill)
			if v.Rounds > 1 {
				s.line(across.at(v.Low), y+10.5, across.at(v.High), y+10.5, "axis")
			}
			s.text(math.Max(across.at(v.High), left)+6, y+15, "", "start", "%s", benchmark.Number(v.Median))
		}
	}
	return s.String()
}

// latenessPlot draws the distribution of the lateness, with an axis that stretches the last messages.
func latenessPlot(r *results, n int) string {
	names := r.measured("lateness")
	names = slices.DeleteFunc(names, func(name string) bool { return r.curve(n, name) == nil })
	if len(names) == 0 {
		return ""
	}
	const left, top, width, height, earlyWidth = 64.0, 44.0, 520.0, 320.0, 56.0
	title := fmt.Sprintf("Lateness at %s: the further left, the better", caseName("lateness", n))
	s := newSVG(left+earlyWidth+width+260, top+height+54, title)
	s.text(0, 18, "title", "start", "%s", title)
	low, high := 0.1, 10_000.0
	across := scale{low, high, left + earlyWidth, left + earlyWidth + width, true}
	nines := scale{0, 4, top + height, top, false} // -log10 of the fraction that is later
	up := func(p float64) float64 { return nines.at(-math.Log10(math.Max(1-p, 1e-4))) }

	s.rect(left, top, earlyWidth, height, `class="early"`)
	s.text(left+earlyWidth/2, top+16, "muted", "middle", "early")
	for _, v := range decades(low, high) {
		s.line(across.at(v), top, across.at(v), top+height, "grid")
		unit, shown := "ms", v
		if v >= 1000 {
			unit, shown = "s", v/1000
		}
		s.text(across.at(v), top+height+20, "muted", "middle", "%g %s", math.Round(shown*10)/10, unit)
	}
	for _, p := range []float64{0, 0.5, 0.9, 0.99, 0.999, 0.9999} {
		s.line(left, up(p), left+earlyWidth+width, up(p), "grid")
		s.text(left-8, up(p)+4, "muted", "end", "%g %%", math.Round(p*1e4)/100)
	}
	s.text(left+earlyWidth, top+height+42, "muted", "start",
		"from the due time to the handler; vertical: fraction of the messages handled by then")
	for _, name := range names {
		points := [][2]float64{}
		for _, c := range r.curve(n, name) {
			x := across.at(c[0])
			if c[0] < 0 { // early, by up to 1 s
				x = left + earlyWidth*math.Max(0, 1+c[0]/1000)
			}
			points = append(points, [2]float64{x, up(c[1])})
		}
		s.polyline(points, lookOf(name))
	}
	s.legend(left+earlyWidth+width+16, top+14, r, names)
	return s.String()
}

// curve returns the distribution of the round with the median p99.
func (r *results) curve(n int, subject string) [][2]float64 {
	rounds := slices.DeleteFunc(r.rounds("lateness", n, subject), func(m *measurement) bool { return m.Curve == nil })
	if len(rounds) == 0 {
		return nil
	}
	slices.SortFunc(rounds, func(a, b *measurement) int {
		return cmp.Compare(a.Values[benchmark.P99], b.Values[benchmark.P99])
	})
	return rounds[len(rounds)/2].Curve
}
