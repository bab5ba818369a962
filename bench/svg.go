package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// svg is a drawing with a transparent background that is legible on light and dark pages. Text and lines follow the
// reader's colour scheme, and the subjects' colours work on both.
type svg struct {
	b             strings.Builder
	width, height float64
}

const svgStyle = `<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.muted { fill: #59636e; font-size: 12px }
.grid { stroke: #818b98; stroke-opacity: .3 }
.axis { stroke: #818b98 }
.early { fill: #818b98; fill-opacity: .12 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .muted { fill: #9198a1 } }
</style>
`

func newSVG(width, height float64, description string) *svg {
	s := &svg{width: width, height: height}
	fmt.Fprintf(&s.b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-8 -6 %g %g\" "+
		"width=\"%g\" height=\"%g\" role=\"img\">\n<title>%s</title>\n%s",
		width+16, height+12, width+16, height+12, html.EscapeString(description), svgStyle)
	return s
}

func (s *svg) String() string { return s.b.String() + "</svg>\n" }

// text writes text. anchor is start, middle or end.
func (s *svg) text(x, y float64, class, anchor, format string, args ...any) {
	fmt.Fprintf(&s.b, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">%s</text>\n",
		x, y, class, anchor, html.EscapeString(fmt.Sprintf(format, args...)))
}

func (s *svg) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(&s.b, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n",
		x1, y1, x2, y2, class)
}

func (s *svg) rect(x, y, width, height float64, attributes string) {
	fmt.Fprintf(&s.b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" %s/>\n",
		x, y, width, height, attributes)
}

// polyline draws a curve in a subject's look.
func (s *svg) polyline(points [][2]float64, l look) {
	if len(points) == 0 {
		return
	}
	var path []string
	for _, p := range points {
		path = append(path, fmt.Sprintf("%.1f,%.1f", p[0], p[1]))
	}
	fmt.Fprintf(&s.b, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\" "+
		"stroke-linejoin=\"round\" stroke-dasharray=\"%s\"/>\n",
		strings.Join(path, " "), l.colour, l.dash)
}

// legend lists the subjects below each other.
func (s *svg) legend(x, y float64, r *results, names []string) {
	for _, name := range names {
		s.polyline([][2]float64{{x, y - 4}, {x + 26, y - 4}}, lookOf(name))
		s.text(x+34, y, "", "start", "%s", r.title(name))
		y += 21
	}
}

// look is how a subject is drawn: variants differ by dashes in lines and by opacity in bars.
type look struct{ colour, dash, opacity string }

var looks = map[string]look{
	"later-redis": {"#3b82f6", "none", "1"}, "later-prefetch": {"#3b82f6", "7 2 2 2", "1"},
	"later-aof": {"#3b82f6", "7 4", ".7"}, "later-aof-always": {"#3b82f6", "2 3", ".45"},
	"later-disk": {"#a855f7", "none", "1"}, "later-disk-100ms": {"#a855f7", "7 4", ".7"},
	"asynq": {"#ea7317", "none", "1"}, "asynq-tuned": {"#ea7317", "7 4", ".7"},
	"beanstalkd": {"#22a35a", "none", "1"}, "beanstalkd-binlog": {"#22a35a", "7 4", ".7"},
	"bullmq": {"#e0457b", "none", "1"},
}

func lookOf(name string) look {
	if l, ok := looks[name]; ok {
		return l
	}
	return look{"#8b949e", "none", "1"} // the ceiling
}

// scale maps values to coordinates.
type scale struct {
	low, high, from, to float64
	log                 bool
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		v, low, high = math.Log10(math.Max(v, s.low)), math.Log10(low), math.Log10(high)
	}
	return s.from + (s.to-s.from)*(math.Min(v, high)-low)/(high-low)
}

// decades returns the powers of ten from low to high.
func decades(low, high float64) (all []float64) {
	for e := math.Ceil(math.Log10(low) - 1e-9); e <= math.Log10(high)+1e-9; e++ {
		all = append(all, math.Pow(10, e))
	}
	return all
}
