package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestPauseNotesThatItCreatedAQueue(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "orders", "x")
	r := c.run("pause", "ordres", "orders")
	if r.exit != 0 || r.stdout != "paused ordres\npaused orders\n" ||
		r.stderr != "later: queue \"ordres\" did not exist and was created; did you mean orders?\n" {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	r = c.run("pause", "refunds", "--json")
	if got := object(t, r.stderr); got["note"] != `queue "refunds" did not exist and was created` {
		t.Errorf("%v", got)
	}
	object(t, r.stdout)
}

func TestSendNotesThatANewQueueHasASimilarName(t *testing.T) {
	c := newCLI(t)
	for _, test := range []struct{ queue, note string }{
		{"orders", ""}, // the first one
		{"orders", ""}, // exists
		{"refunds", ""},
		{"ordres", "later: queue \"ordres\" did not exist and was created; did you mean orders?\n"},
	} {
		if r := c.run("send", test.queue, "x"); r.exit != 0 || r.stderr != test.note {
			t.Errorf("%s: exit %d: %s", test.queue, r.exit, r.stderr)
		}
	}
	r := c.runWith(t.Context(), "x\n", "send", "refund", "--batch", "--json")
	if notes := objects(t, r.stderr); len(notes) != 1 || !strings.HasSuffix(notes[0]["note"].(string),
		"mean refunds?") {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	for i := range maxNamed {
		c.ok("send", fmt.Sprintf("a%d", i), "x")
	}
	contains(t, c.fails(11, "list", "oders"), ", a9 and 4 more (see later queues); did you mean orders?\n")
}

func TestPublishNotesThatATopicHasNoSubscriptions(t *testing.T) {
	c := newCLI(t)
	c.ok("topic", "subscribe", "orders", "mail")
	for _, test := range []struct{ topic, note string }{
		{"orders", ""},
		{"ordres", "later: topic \"ordres\" has no subscriptions: a message waits for the first one; " +
			"did you mean orders?\n"},
		{"news", "later: topic \"news\" has no subscriptions: a message waits for the first one\n"},
	} {
		if r := c.run("topic", "publish", test.topic, "x"); r.exit != 0 || r.stderr != test.note {
			t.Errorf("%s: exit %d: %s", test.topic, r.exit, r.stderr)
		}
	}
	c.ok("topic", "configure", "news", "--drop-unsubscribed")
	r := c.run("topic", "publish", "news", "x", "--in", "1h")
	contains(t, r.stderr, "a message is dropped if there is none when it is due\n")
}

func TestWorkWarnsOfQueuesThatDoNotExist(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "orders", "x")
	r := c.run("work", "orders", "ordres", "--max", "1")
	if r.exit != 0 || strings.Count(r.stderr, "does not exist") != 1 {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	contains(t, r.stderr,
		"warn: queue does not exist yet: waiting for its first message; did you mean orders? queue=ordres\n")
}
