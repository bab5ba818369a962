//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laterq/later"
)

func TestEventsShowsOtherProcessesUntilInterrupted(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x", "--id", "first", "--in", "1h")
	all, some := c.start("events"), c.start("events", "q", "--kind", "cancelled", "--id", "wanted", "--json")
	// Each sends until the watchers have begun to watch. A command is a process of its own, with its first report at
	// once.
	seen := func(p *process, text string) string {
		t.Helper()
		for limit := time.After(eventTimeout); ; {
			c.ok("send", "q", "x", "--id", "wanted", "--in", "1h")
			c.ok("cancel", "q", "wanted")
			for more := true; more; {
				select {
				case line, ok := <-p.stdout:
					if !ok {
						t.Fatalf("%q was not shown", text)
					}
					if strings.Contains(line, text) {
						return line
					}
				case <-limit:
					t.Fatalf("%q was not shown in time", text)
				default:
					more = false
				}
			}
		}
	}
	line := seen(all, "cancelled")
	contains(t, line, "  cancelled    q  wanted  ", "]@")
	if _, err := time.Parse("15:04:05.000", line[:12]); err != nil {
		t.Error(err)
	}
	got := object(t, seen(some, "wanted"))
	from, _ := got["process"].(map[string]any)
	if got["kind"] != "cancelled" || got["queue"] != "q" || got["id"] != "wanted" || from["pid"] == nil {
		t.Errorf("got %v", got)
	}
	for _, p := range []*process{all, some} {
		p.signal(syscall.SIGINT)
		if code := p.exit(); code != 0 {
			t.Errorf("exit %d after Ctrl-C", code)
		}
	}
	for line := range some.rest(some.stdout) {
		if !strings.Contains(line, `"cancelled"`) {
			t.Errorf("unwanted line %s", line)
		}
	}
}

func TestEventsRefusesWhatCannotBeWatched(t *testing.T) {
	c := newCLI(t)
	contains(t, c.fails(11, "events", "nowhere"), `no queue "nowhere"`)
	contains(t, c.fails(2, "events", "--kind", "sunk"), `--kind is "sunk"`, "must be one of sent, duplicate")
	c.store = unshared(fileURL(t.TempDir()))
	contains(t, c.fails(19, "events"), "only this process has", "Client.Watch")
}

func TestEventsLines(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 67_000_000, time.Local)
	p := later.Process{Host: "h", PID: 7, Name: "work"}
	var lines eventLines
	for _, test := range []struct {
		event later.WatchEvent
		want  string
	}{
		{later.WatchEvent{Kind: later.EventSent, Queue: "mail", ID: "a", Time: at, Process: p},
			"03:04:05.067  sent         mail  a    work[7]@h"},
		{later.WatchEvent{Kind: later.EventNacked, Queue: "q", ID: "abc", Time: at, Process: p, Attempt: 2,
			Lateness: 600 * time.Microsecond, Duration: 1500 * time.Millisecond, Error: "out of\npaper"},
			"03:04:05.067  nacked       q     abc  attempt 2, late 0.6ms, took 1500.0ms  work[7]@h  out of paper"},
		{later.WatchEvent{Kind: later.EventPurged, Queue: "q", Time: at, Process: p, Count: 12},
			"03:04:05.067  purged       q          12 messages                           work[7]@h"},
		{later.WatchEvent{Kind: later.EventMissed, Time: at, Missed: 3}, "03:04:05.067  missed       3 events"},
		{later.WatchEvent{Kind: later.EventMissed, Time: at},
			"03:04:05.067  missed       the connection was interrupted; some events may be missing"},
	} {
		if got := lines.format(&test.event); got != test.want {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}

func TestActivityCountsEvents(t *testing.T) {
	c := newCLI(t)
	contains(t, c.fails(11, "activity", "nowhere"), `no queue "nowhere"`)
	contains(t, c.run("activity").stderr, "nothing has happened")
	for range 3 {
		c.ok("send", "q", "x", "--in", "1h")
	}
	c.ok("send", "other", "x", "--in", "1h")
	c.ok("pause", "q")
	out := c.ok("activity")
	contains(t, out, "QUEUE  EVENT   MINUTE  HOUR  DAY\n", "other  sent         1     1    1\n",
		"q      sent         3     3    3\n", "q      paused       1     1    1\n")
	got := object(t, c.ok("activity", "q", "--json"))
	for _, window := range []string{"minute", "hour", "day"} {
		w := got[window].(map[string]any)
		counts := w["counts"].(map[string]any)
		if counts["sent"] != 3.0 || counts["paused"] != 1.0 || w["from"] == nil {
			t.Errorf("%s: %v", window, w)
		}
	}
	if got["queue"] != "q" || got["now"] == nil {
		t.Errorf("got %v", got)
	}
}
