//go:build unix

package chaos

import (
	"cmp"
	"slices"

	"github.com/laterq/later/store"
)

// pace is the time of the next start of a rate as if all starts were spaced evenly, in parts of N of a µs, if the
// limits of a change are in force. In every span of time t at most Burst + N·t/Per messages start if and only if no
// message starts more than Burst-1 intervals before that time. Starts that were not recorded and a change that is
// executed later than assumed can only move it ahead.
type pace struct {
	change int
	next   int64
}

// checkRate checks each start. While limits change, it follows both the old and the new ones.
func (g *flowGroup) checkRate(facts *FlowFacts, result *Result) {
	slices.SortFunc(g.starts, func(a, b *start) int { return cmp.Compare(a.lo, b.lo) })
	var paces []pace
	var unsure []*start
	last := int64(0)
	for i, s := range g.starts {
		first, latest := g.inForce(s.lo, s.hi)
		if first < 0 || !s.exact() && first != latest {
			continue
		}
		if paces == nil {
			paces = []pace{{change: first}}
		}
		paces = g.changed(paces, first, latest, last)
		unsure = slices.DeleteFunc(unsure, func(o *start) bool { return o.hi < s.lo })
		before := 0 // of these messages it is not known whether they started before
		for _, o := range unsure {
			before += o.n
		}
		var kept []pace
		paced := false
		for _, p := range paces {
			if fits, full := p.start(g.changes[p.change].flow.Rate, s, before); fits {
				kept, paced = append(kept, p), paced || full
			}
		}
		if facts.Starts += s.n; paced {
			facts.Paced++
		}
		if len(kept) == 0 {
			kept = paces[len(paces)-1:]
			g.violateRate(i, kept[0].change, result)
		}
		if paces = kept; !s.exact() {
			unsure = append(unsure, s)
		}
		last = s.lo
	}
}

// changed returns the paces under the changes first to latest, which may be in force after a start at last.
func (g *flowGroup) changed(paces []pace, first, latest int, last int64) []pace {
	for i := 0; i < len(paces) && paces[i].change < latest; i++ { // paces are in the order of their changes
		from, to := g.changes[paces[i].change].flow.Rate, g.changes[paces[i].change+1]
		p := pace{paces[i].change + 1, 0}
		if r := to.flow.Rate; from.N > 0 && r.N > 0 {
			// A changed rate keeps the time of the next start, or sets it to Burst intervals from now.
			n := int64(r.N)
			at := max(to.from, last) * n
			if p.next = min(paces[i].next/int64(from.N)*n, at+int64(r.Burst)*r.Per.Microseconds()); g.shared && r != from {
				p.next = min(p.next, at) // a shard that has started nothing has the whole burst of its share
			}
		}
		if i+1 == len(paces) {
			paces = append(paces, p)
		} else {
			paces[i+1].next = min(paces[i+1].next, p.next)
		}
	}
	return slices.DeleteFunc(paces, func(p pace) bool { return p.change < first })
}

// start counts the messages of a start. fits is false if the rate does not allow them, even if as many messages as
// before says have not started before. full is true if it allows no more now.
func (p *pace) start(r store.Rate, s *start, before int) (fits, full bool) {
	if r.N == 0 {
		return true, false
	}
	n, per := int64(r.N), r.Per.Microseconds()
	early := int64(r.Burst-1) * per
	for range s.n {
		if p.next-early-int64(before)*per > s.hi*n {
			return false, true
		}
		p.next = max(p.next, s.lo*n) + per
	}
	return true, p.next-early > s.hi*n
}

// violateRate reports the span until the i-th start in which the most messages too many started since a change.
func (g *flowGroup) violateRate(i, change int, result *Result) {
	s, r := g.starts[i], g.changes[change].flow.Rate
	n, began, started, most := 0, s.lo, 0, int64(0)
	for j := i; j >= 0 && (j == i || g.starts[j].lo > g.changes[change].to); j-- {
		o := g.starts[j]
		n += o.n
		if over := int64(n-r.Burst)*r.Per.Microseconds() - (s.hi-o.lo)*int64(r.N); over > most || j == i {
			began, started, most = o.lo, n, over
		}
	}
	result.violate("rate", "-", "%s: %s claimed %d messages under lease %s at %d, after which %d had started in %d "+
		"µs, since the limits of %d; they are %s", g.name, s.actor, s.n, s.lease, s.hi, started, s.hi-began,
		g.changes[change].to, r)
}
