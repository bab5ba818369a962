package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/laterq/later"
)

func TestFindPrintsMessagesAndNamesOfAllQueues(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "orders", `{"total": 120}`, "--id", "cancel-order-42", "--in", "1h")
	c.ok("send", "mail", "hello", "--id", "reminder", "--in", "1h", "--group", "order-42")
	c.ok("send", "mail", "Order 42 is late", "--id", "late")
	for args, want := range map[string]string{
		"order 42":                "group order-42, content mail/late, content mail/reminder, content orders/cancel-order-42",
		"cancel-order-42":         "id orders/cancel-order-42",
		"orders":                  "queue orders",
		"order 42 --queue orders": "content orders/cancel-order-42",
		"total>=100":              "content orders/cancel-order-42",
		"total >= 100":            "content orders/cancel-order-42",
		"order 42 --limit 1":      "group order-42, content mail/late",
		"nothing --look 1":        "",
	} {
		found := []string{}
		lines := objects(t, c.ok(append([]string{"find", "--json"}, strings.Fields(args)...)...))
		for _, line := range lines {
			if m, ok := line["message"].(map[string]any); ok {
				found = append(found, fmt.Sprintf("%s %s/%s", line["stage"], m["queue"], m["id"]))
			} else if n, ok := line["name"].(map[string]any); ok {
				found = append(found, fmt.Sprintf("%s %s", n["kind"], n["name"]))
			}
		}
		if got := strings.Join(found, ", "); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
		p, _ := lines[len(lines)-1]["progress"].(map[string]any)
		if bounded := strings.HasSuffix(args, " 1"); p["done"] == bounded {
			t.Errorf("%s: %v", args, p)
		}
	}
	r := c.run("find", "order", "42")
	contains(t, r.stdout, "FOUND BY", "group     mail   order-42", "content   mail    late", "cancel-order-42  scheduled")
	contains(t, r.stderr, `looked at 3 of 3 messages in 2 queues, for "order" and "42" in id, group, key or payload`)
	if r := c.run("find", "nothing"); r.exit != 0 || r.stdout != "" {
		t.Errorf("%+v", r)
	} else {
		contains(t, r.stderr, "nothing was found: looked at 3")
	}
	contains(t, c.run("find", "order", "--limit", "1").stderr, "others may match: use a higher --limit or --look")
	contains(t, c.fails(11, "find", "a", "--queue", "other"), `no queue "other"`)
}

func TestFindSaysWhichNamesAndConditionsItLeavesOut(t *testing.T) {
	c := newCLI(t)
	for i := range 53 {
		c.client().Queue(fmt.Sprintf("mail-%d", i)).Send(t.Context(), nil, later.WithID("attempts=0"))
	}
	contains(t, c.run("find", "mail").stderr, "; 3 names are not listed")
	r := c.run("find", "attempts=0")
	contains(t, r.stdout, "id        mail-0", "attempts=0")
	contains(t, r.stderr, "put it in quotes to find the text")
	if r.exit == 0 {
		t.Errorf("exit code %d", r.exit)
	}
}

func TestFindPrintsLongListsInParts(t *testing.T) {
	c := newCLI(t)
	for range 3 {
		if _, err := c.client().Queue("q").SendBatch(t.Context(), make([]later.Outgoing, 400)); err != nil {
			t.Fatal(err)
		}
	}
	if rows := strings.Count(c.ok("find", "attempts<=3", "--limit", "0", "--look", "0"), "content "); rows != 1200 {
		t.Errorf("printed %d rows", rows)
	}
}
