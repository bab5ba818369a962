package main

import (
	"strings"
	"testing"
)

func TestGroupIsListedMovedAndCancelled(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x", "--id", "c", "--group", "g", "--in", "1h")
	c.ok("send", "q", "x", "--id", "a", "--group", "g")
	c.ok("send", "q", "x", "--id", "b", "--group", "h")
	if _, err := c.client().Queue("q").Receive(t.Context(), 1); err != nil { // a
		t.Fatal(err)
	}
	listed := c.ok("list", "q", "--group", "g")
	contains(t, listed, "a   leased", "c   scheduled")
	asJSON := c.ok("list", "q", "--group", "g", "--json")
	if strings.Contains(listed, "ready") || strings.Count(asJSON, `"group":"g"`) != 2 {
		t.Errorf("the group has\n%s%s", listed, asJSON)
	}
	contains(t, c.ok("reschedule", "q", "--group", "g", "--in", "5m"), "moved 1 message of group g, now due in 5m (",
		"; left 1 leased and 0 dead\n")
	got := object(t, c.ok("reschedule", "q", "--group", "h", "--in", "5m", "--json"))
	if got["group"] != "h" || got["rescheduled"] != 1.0 || got["leased"] != 0.0 || got["due"] == nil {
		t.Errorf("reschedule printed %v", got)
	}
	if got := c.ok("cancel", "q", "--group", "g"); got != "cancelled 2 messages of group g: 1 scheduled, 1 leased\n" {
		t.Errorf("cancel printed %q", got)
	}
	got = object(t, c.ok("cancel", "q", "--group", "h", "--json"))
	if got["queue"] != "q" || got["cancelled"] != 1.0 || got["scheduled"] != 1.0 {
		t.Errorf("cancel printed %v", got)
	}
	if got := c.ok("cancel", "q", "--group", "g"); got != "cancelled 0 messages of group g\n" {
		t.Errorf("cancel of an empty group printed %q", got)
	}
	if r := c.run("list", "q", "--group", "g"); r.exit != 0 || !strings.Contains(r.stderr, "no matching messages") {
		t.Errorf("list of an empty group: %+v", r)
	}
	if r := c.run("cancel", "qq", "--group", "g"); r.exit == 0 {
		t.Error("cancel of a group in a queue that does not exist succeeded")
	}
}
