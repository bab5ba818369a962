//go:build unix

package chaos

import (
	"fmt"
	"strings"
	"testing"

	"github.com/laterq/later"
)

func TestCheckerFindsUntrueEvents(t *testing.T) {
	const (
		producer = "b 1 - producer 11\n" + sentOK
		worker   = "b 1 - worker 22\nc 1001000 m 1000900 1000950 1002 A q 1000 1 10\n" +
			"x 1001100 m A ack 0\nX 1001200 m A ok\n"
		sent    = "v 1003000 m sent q 0 11 1000000\n"
		claimed = "v 1003000 m claimed q 1 22 1001000\n"
		acked   = "v 1003000 m acked q 1 22 1001000\n"
	)
	refused := strings.ReplaceAll(worker, "A ok", "A lease_lost")
	dead := map[string]*later.Info{"m": {State: later.StateDead, DeadReason: later.DeadExpired}}
	for name, c := range map[string]struct {
		worker, watcher string
		left            map[string]*later.Info
		want            string
	}{
		"what happened":             {worker, sent + claimed + acked, nil, ""},
		"sent by another process":   {worker, strings.Replace(sent, " 11 ", " 22 ", 1), nil, "untrue"},
		"of an unknown process":     {worker, strings.Replace(sent, " 11 ", " 33 ", 1), nil, "untrue"},
		"before it was sent":        {worker, strings.Replace(sent, " 1000000\n", " 990000\n", 1), nil, "untrue"},
		"before it was claimed":     {worker, strings.Replace(claimed, " 1001000\n", " 999000\n", 1), nil, "untrue"},
		"another attempt":           {worker, strings.Replace(claimed, " 1 22 ", " 2 22 ", 1), nil, "untrue"},
		"another queue":             {worker, strings.Replace(acked, " q ", " p ", 1), nil, "untrue"},
		"acked, but it was refused": {refused, acked, nil, "lost untrue"},
		"another settle":            {worker, strings.Replace(acked, "acked", "nacked", 1), nil, "untrue"},
		"cancelled":                 {worker, strings.Replace(sent, "sent", "cancelled", 1), nil, "untrue"},
		"rescheduled":               {worker, strings.Replace(sent, "sent", "rescheduled", 1), nil, "untrue"},
		"sent as a duplicate":       {worker, strings.Replace(sent, "sent", "duplicate", 1), nil, "untrue"},
		"died":                      {worker, strings.Replace(acked, "acked", "died", 1), nil, "untrue"},
		"expired":                   {"", strings.Replace(claimed, "claimed", "expired", 1), dead, "dead untrue"},
		"of another message":        {worker, strings.Replace(acked, " m ", " n ", 1), nil, "untrue"},
		"a kind that nobody made":   {worker, strings.Replace(acked, "acked", "purged", 1), nil, "untrue"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.worker == "" {
				c.worker = "b 1 - worker 22\n"
			}
			wantViolations(t, history{"producer.1": producer, "worker.1": c.worker,
				"watcher.1": "b 1 - watcher 44\n" + c.watcher}, c.left, c.want)
		})
	}
}

// TestCheckerFindsEventsThatAreMissingAndNotCounted has a process that acks a message every 0.1 s, and a watcher that
// does not receive some of its events.
func TestCheckerFindsEventsThatAreMissingAndNotCounted(t *testing.T) {
	var producer, worker strings.Builder
	worker.WriteString("b 1 - receiver 22\n")
	const n = 60
	for i := range n {
		at := 1_000_000 + i*100_000
		fmt.Fprintf(&producer, "s %d m%d k%d +0 -\nS %d m%d ok\n", at, i, i, at+100, i)
		fmt.Fprintf(&worker, "c %d m%d %d %d %d A%d q %d 1 10\nx %d m%d A%d ack 0\nX %d m%d A%d ok\n",
			at+1000, i, at+900, at+950, at/1000+10_000, i, at/1000, at+1100, i, i, at+1200, i, i)
	}
	// events returns the record of a watcher that skips the events of some messages, and has the line told before one
	// message.
	events := func(skip func(i int) bool, before int, told string) string {
		text := "b 1 - watcher 44\n"
		for i := range n {
			at := 1_000_000 + i*100_000 + 1200
			if i == before {
				text += told
			}
			if !skip(i) {
				text += fmt.Sprintf("v %d m%d claimed q 1 22 %d\nv %d m%d acked q 1 22 %d\n", at, i, at, at, i, at)
			}
		}
		return text
	}
	middle := func(i int) bool { return i >= 20 && i < 30 }
	for name, c := range map[string]struct{ watcher, want string }{
		"all":                    {events(func(int) bool { return false }, -1, ""), ""},
		"none of some":           {events(middle, -1, ""), "uncounted"},
		"one is missing":         {events(func(i int) bool { return i == 30 }, -1, ""), "uncounted"},
		"counted":                {events(middle, 30, "w 1 - 20 q 22\n"), ""},
		"counted for all queues": {events(middle, 30, "w 1 - 20 - 0\n"), ""},
		"counted too few":        {events(middle, 30, "w 1 - 19 q 22\n"), "uncounted"},
		"counted elsewhere":      {events(middle, 30, "w 1 - 20 p 22\n"), "uncounted"},
		"a gap":                  {events(middle, 30, "w 1 - 0 - 0\n"), ""},
		"a gap elsewhere":        {events(middle, 50, "w 1 - 0 - 0\n"), "uncounted"},
	} {
		t.Run(name, func(t *testing.T) {
			r := wantViolations(t, history{"producer.1": producer.String(), "receiver.1": worker.String(),
				"watcher.1": c.watcher}, nil, c.want)
			if r.StreamsChecked == 0 {
				t.Error("no stream was checked")
			}
		})
	}
}

func TestCheckerFindsAQueueThatWaitsForAFrozenWatcher(t *testing.T) {
	const claim = "b 1 - receiver 22\nc 1000000 m 999900 999950 1002 A q 999 1 10\n"
	frozen := func(seconds int) string {
		return fmt.Sprintf("! 1000000 - stop watcher.1\n! %d - continue watcher.1\n", 1_000_000+seconds*1_000_000)
	}
	later := func(at int) string {
		return fmt.Sprintf("c %d n %d %d 99002 B q 999 1 10\n", at*1_000_000, at*1_000_000-100, at*1_000_000-50)
	}
	var answers string
	for i := range 20 {
		answers += fmt.Sprintf("p %d - 1000\n", 1_000_000+i*1_000_000)
	}
	for name, c := range map[string]struct{ run, worker, want string }{
		"for long":       {frozen(11), claim, "slowed"},
		"until it died":  {"! 1000000 - stop watcher.1\n! 12000000 - kill watcher.1\n", claim, "slowed"},
		"for a while":    {frozen(9), claim, ""},
		"and it goes on": {frozen(19), claim + later(10), ""},
		"goes on late":   {frozen(19), claim + later(12), "slowed"},
	} {
		t.Run(name, func(t *testing.T) {
			wantViolations(t, history{"run": answers + c.run, "receiver.1": c.worker,
				"watcher.1": "b 1 - watcher 44\n"}, nil, c.want)
			wantViolations(t, history{"run": c.run, "receiver.1": c.worker, "watcher.1": "b 1 - watcher 44\n"}, nil, "")
		})
	}
}
