//go:build unix

package chaos

import "fmt"

// history returns everything known about a message, one line per event, in order of time.
func (m *message) history() string {
	var lines []string
	add := func(at int64, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("%d ", at)+fmt.Sprintf(format, args...))
	}
	reply := func(c *call) string {
		if c.ret == 0 {
			return "no reply"
		}
		return fmt.Sprintf("%s after %d µs", c.outcome, c.ret-c.at)
	}
	for _, s := range m.sends {
		add(s.at, "%s sends it, due %s, flags %s: %s", s.actor, s.due, s.flags, reply(&s.call))
	}
	for _, s := range m.reschedules {
		add(s.at, "%s reschedules it, due %s: %s", s.actor, s.due, reply(&s.call))
	}
	for _, c := range m.cancels {
		add(c.at, "%s cancels it: %s", c.actor, reply(c))
	}
	for _, r := range m.replays {
		add(r.at, "%s replays it: %s", r.actor, reply(r))
	}
	for _, o := range m.founds {
		add(o.at, "it was found dead after %d attempts", o.attempts)
	}
	for _, d := range m.deliveries {
		add(d.now, "%s claims attempt %d under lease %s until %d (call from %d to %d)",
			d.actor, d.attempt, d.lease, d.deadline*1000, d.call, d.ret)
		for _, s := range d.settles {
			add(s.at, "%s settles (%s, delay %d µs) under lease %s: %s", s.actor, s.action, s.delay, d.lease,
				reply(&s.call))
		}
	}
	for _, h := range m.runs {
		add(h.at, "a handler starts, payload intact: %t", h.whole)
	}
	for _, f := range m.forwards {
		add(f.at, "%s reports that it was moved from %s", f.actor, f.queue)
	}
	for _, s := range m.sightings {
		add(s.at, "%s sees %q, attempt %d, by process %d", s.watcher, s.kind, s.attempt, s.pid)
	}
	for _, t := range m.leaseLosses {
		add(t.at, "the loss of attempt %[2]d is reported to %[1]s", t.actor, t.attempt)
	}
	return joinSorted(lines)
}
