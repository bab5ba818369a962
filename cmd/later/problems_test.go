package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProblemsAreListedWithWhatHelps(t *testing.T) {
	c := newCLI(t)
	if r := c.run("problems", "--check"); r.exit != 0 || r.stdout != "" ||
		!strings.Contains(r.stderr, "there are no problems in ") {
		t.Errorf("without problems: %+v", r)
	}
	c.ok("send", "mail", "x", "--at", time.Now().Add(-61*time.Minute).Format(time.RFC3339))
	c.ok("pause", "orders")
	got := c.ok("problems")
	contains(t, got, "SEVERITY  PROBLEM ", "act       queue mail has no worker: 1 message is due, the first for 1 h  ",
		"later stats mail\n", "watch     queue orders is paused by ", "@", "later resume orders\n")
	if got := c.ok("problems", "--severity", "watch", "--check"); strings.Contains(got, "mail") {
		t.Errorf("got %s", got)
	}
	if r := c.run("problems", "--check"); r.exit != 30 || !strings.Contains(r.stdout, "has no worker") || r.stderr != "" {
		t.Errorf("--check: %+v", r)
	}
	all := objects(t, c.ok("problems", "--json"))
	if len(all) != 2 || all[0]["kind"] != "no_worker" || all[0]["severity"] != "act" || all[1]["kind"] != "paused" ||
		all[1]["action"].(map[string]any)["shell"] != "later resume orders" || all[1]["by"] == "" {
		t.Errorf("%v", all)
	}
	c.ok("resume", "orders")
	if got := c.ok("problems"); strings.Contains(got, "orders") {
		t.Errorf("got %s", got)
	}
	contains(t, c.fails(2, "problems", "--severity", "bad"), "give act or watch")
	contains(t, c.fails(2, "problems", "--watch", "--check"), "exclude each other")
}

func TestProblemsNameTheErrorOfDeadMessages(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "mail", "x")
	c.bury("mail", "no user 4711\x1b[31m")
	text := c.ok("problems")
	contains(t, text, "1 message of queue mail died in the last hour, most often: no user #", "later dead errors mail")
	if strings.Contains(text, "\x1b") {
		t.Errorf("a control sequence reaches the terminal: %q", text)
	}
}

func TestProblemsAreWatchedUntilCtrlC(t *testing.T) {
	c := newCLI(t)
	c.ok("pause", "orders")
	p := c.start("problems", "--watch", "--interval", "10ms")
	for range 3 {
		p.await(p.stdout, "1 problem")
		p.await(p.stdout, "queue orders is paused")
	}
	p.signal(syscall.SIGINT)
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

// A command that is listed does as it says with any names.
func TestCommandsOfProblemsKeepNames(t *testing.T) {
	c := newCLI(t)
	c.ok("flow", "mail", "--order", "halt")
	c.ok("send", "mail", "x", "--key", "--a  b", "--id", "1")
	c.bury("mail", "x")
	contains(t, c.ok("problems"), "later keys --resume -- mail '--a  b'\n")
	c.ok("keys", "--resume", "--", "mail", "--a  b")
	if got := c.ok("problems"); strings.Contains(got, "halted") {
		t.Errorf("got %s", got)
	}
	if got := shownCommand("later keys q 'a\u202eb'") + shownCommand("later keys q 'a\nb'"); got != "" {
		t.Errorf("a changed command is shown: %s", got)
	}
}
