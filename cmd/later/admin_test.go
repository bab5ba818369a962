package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
)

func TestGetShowsAllOfAMessage(t *testing.T) {
	c := newCLI(t)
	if got := c.ok("send", "q", "two\nlines", "--id", "a", "--in", "2d", "--header", "k=v=w", "--kind", "a.b",
		"--max-attempts", "5", "--timeout", "10s", "--expire-after", "1h", "--dedup-window", "1d",
		"--group", "g 1", "--key", "customer 7"); got != "a\n" {
		t.Errorf("send printed %q, want the id", got)
	}
	contains(t, c.ok("get", "q", "a"), "id              a\n",
		"state           scheduled\nwhy             due ",
		"attempts        0 of 5 failed\n", "delivered       no\n", "timeout         10s\n",
		"expire after    1h\n", "dedup window    1d\n", "group           g 1\n",
		"key             customer 7\n", "header          k=v=w\n",
		"header          kind=a.b\n", "payload         9 bytes\n", "\ntwo\nlines\n")
	got := object(t, c.ok("get", "q", "a", "--json"))
	for name, want := range map[string]any{
		"id": "a", "queue": "q", "state": "scheduled", "payload_text": "two\nlines", "max_attempts": 5.0,
		"attempts":  0.0,
		"delivered": false, "timeout": "10s", "expire_after": "1h0m0s", "dedup_window": "24h0m0s",
		"group": "g 1", "key": "customer 7",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	due, err := time.Parse(time.RFC3339, got["due"].(string))
	if in := time.Until(due); err != nil || in < 47*time.Hour || in > 48*time.Hour {
		t.Errorf("due %v", got["due"])
	}
}

func TestGetShowsTheFailuresOfAMessage(t *testing.T) {
	c := newCLI(t)
	q := c.client().Queue("q")
	c.ok("send", "q", "x", "--id", "a")
	for _, reason := range []string{"no route", "panic: boom\n\nits stack"} {
		held, err := q.Receive(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := held[0].Nack(t.Context(), 0, errors.New(reason)); err != nil {
			t.Fatal(err)
		}
	}
	contains(t, c.ok("get", "q", "a"), "last error      panic: boom\n", "\nfailures        20", " attempt 2 after ",
		": panic: boom\n                20", " attempt 1 after ", ": no route\n")
	for _, command := range [][]string{{"get", "q", "a", "--json"}, {"list", "q", "--json"}} {
		failures, _ := object(t, c.ok(command...))["failures"].([]any)
		if len(failures) != 2 {
			t.Fatalf("%v: failures %v", command, failures)
		}
		first := failures[0].(map[string]any)
		if first["attempt"] != 2.0 || first["error"] != "panic: boom" || first["worker"] == nil ||
			first["time"] == nil {
			t.Errorf("%v: %v", command, first)
		}
	}
}

// TestGetShowsWhetherAMessageWasDelivered checks, too, that a released message does not count as delivered.
func TestGetShowsWhetherAMessageWasDelivered(t *testing.T) {
	c := newCLI(t)
	q := c.client().Queue("q")
	c.ok("send", "q", "x", "--id", "a")
	for _, step := range []struct {
		settle func(d *later.Delivery) error
		text   string // while leased
		after  bool   // after settle
	}{
		{func(d *later.Delivery) error { return d.Release(t.Context()) }, "now, for the first time", false},
		{func(d *later.Delivery) error { return d.Snooze(t.Context(), 0) }, "now, for the first time", true},
		{func(d *later.Delivery) error { return d.Release(t.Context()) }, "yes", true},
	} {
		held, err := q.Receive(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		contains(t, c.ok("get", "q", "a"), "delivered       "+step.text+"\n")
		if err := step.settle(held[0]); err != nil {
			t.Fatal(err)
		}
		text := map[bool]string{false: "no", true: "yes"}[step.after]
		contains(t, c.ok("get", "q", "a"), "delivered       "+text+"\n")
		for _, command := range [][]string{{"get", "q", "a", "--json"}, {"list", "q", "--json"}} {
			if got := object(t, c.ok(command...))["delivered"]; got != step.after {
				t.Errorf("%v: delivered is %v, want %v", command, got, step.after)
			}
		}
	}
}

func TestNonTextPayloadIsBase64InJSON(t *testing.T) {
	c := newCLI(t)
	if r := c.runWith(t.Context(), "\xff\x00", "send", "q", "-", "--id", "a", "--in", "1h"); r.exit != 0 {
		t.Fatal(r.stderr)
	}
	got := object(t, c.ok("get", "q", "a", "--json"))
	if got["payload_base64"] != "/wA=" || got["payload_text"] != nil {
		t.Errorf("got %v", got)
	}
}

func TestUnknownIDsAndQueuesAreExit11(t *testing.T) {
	c := newCLI(t)
	contains(t, c.fails(11, "stats", "ordrs"), `no queue "ordrs"; this store has no queues yet`)
	c.ok("send", "orders", "x", "--in", "1h")
	c.ok("send", "mail", "x", "--in", "1h")
	for _, args := range [][]string{
		{"stats", "ordrs"}, {"list", "ordrs"}, {"get", "ordrs", "a"}, {"cancel", "ordrs", "a"},
		{"run-now", "ordrs", "a"},
		{"reschedule", "ordrs", "a", "--in", "1s"}, {"dead", "list", "ordrs"}, {"dead", "errors", "ordrs"},
		{"dead", "replay", "ordrs", "--all"},
		{"dead", "purge", "ordrs", "a"}, {"resume", "ordrs"}, {"purge", "ordrs", "--yes"}, {"delete", "ordrs", "--yes"},
	} {
		contains(t, c.fails(11, args...), `no queue "ordrs"; existing queues: mail, orders`+"\n")
	}
	for _, args := range [][]string{
		{"get", "orders", "a"}, {"cancel", "orders", "a"}, {"run-now", "orders", "a"},
		{"reschedule", "orders", "a", "--in", "1s"},
	} {
		contains(t, c.fails(11, args...), `message "a" of queue "orders"`, "not found")
	}
}

func TestListShowsStatesAndRanges(t *testing.T) {
	c := newCLI(t)
	q := c.client().Queue("q")
	c.ok("send", "q", "held", "--id", "leased")
	if _, err := q.Receive(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.ok("send", "q", "late", "--id", "ready")
	c.ok("send", "q", "first", "--id", "s1", "--at", "2040-01-01T00:00:00Z")
	c.ok("send", "q", "second", "--id", "s2", "--at", "2040-01-02T00:00:00Z")
	ids := func(args ...string) (ids []string) {
		for _, o := range objects(t, c.ok(append([]string{"list", "q", "--json"}, args...)...)) {
			ids = append(ids, o["id"].(string))
		}
		return ids
	}
	for _, test := range []struct{ args, want string }{
		{"", "leased ready s1 s2"},
		{"--state=scheduled", "s1 s2"},
		{"--state=ready", "ready"},
		{"--state=dead", ""},
		{"--from=2040-01-01T00:00:00Z", "s1 s2"},
		{"--from=2040-01-01T00:00:00.001Z", "s2"},
		{"--to=2040-01-02T00:00:00Z --state=scheduled", "s1"},
		{"--limit=3", "leased ready s1"},
		{"--limit=0", "leased ready s1 s2"},
	} {
		if got := strings.Join(ids(strings.Fields(test.args)...), " "); got != test.want {
			t.Errorf("list %s: %q, want %q", test.args, got, test.want)
		}
	}
	contains(t, c.ok("list", "q"), "ID      STATE      DUE", "s1      scheduled  2040-01-01", "leased  leased",
		"  held\n")
	contains(t, c.run("list", "q", "--limit", "2").stderr, "there are more messages: use a higher --limit")
	contains(t, c.run("list", "q", "--state", "dead").stderr, `no matching messages in queue "q"`)
	contains(t, c.fails(2, "list", "q", "--state", "late"), `state is "late": give scheduled, ready, leased or dead`)
}

func TestCancelPrintsTheStateAndContinuesAfterAnUnknownID(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x", "--id", "a", "--in", "1h")
	c.ok("send", "q", "x", "--id", "b")
	r := c.run("cancel", "q", "a", "nope", "b", "none")
	if r.exit != 11 || r.stdout != "cancelled a, which was scheduled\ncancelled b, which was ready\n" {
		t.Errorf("exit %d: %s", r.exit, r.stdout)
	}
	contains(t, r.stderr, `"nope"`, `"none"`)
	c.ok("send", "q", "x", "--id", "a", "--in", "1h")
	if got := object(t, c.ok("cancel", "q", "a", "--json")); got["id"] != "a" || got["was"] != "scheduled" {
		t.Errorf("got %v", got)
	}
	c.ok("send", "q", "x", "--id", "a", "--dedup-window", "1h")
	c.ok("cancel", "q", "a", "--keep-id")
	contains(t, c.fails(12, "send", "q", "x", "--id", "a"), `"a"`)
}

func TestRescheduleAndRunNowMoveMessages(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x", "--id", "a", "--in", "1h")
	c.ok("reschedule", "q", "a", "--at", "2040-01-01T00:00:00Z")
	if got := object(t, c.ok("get", "q", "a", "--json"))["due"]; got != "2040-01-01T00:00:00.000Z" {
		t.Errorf("due %v", got)
	}
	if got := c.ok("reschedule", "q", "a", "--in", "2h"); !strings.HasPrefix(got, "a is due in 2h (") {
		t.Errorf("got %q", got)
	}
	moved := object(t, c.ok("reschedule", "q", "a", "--in", "2h", "--json"))
	due := object(t, c.ok("get", "q", "a", "--json"))["due"]
	if moved["id"] != "a" || moved["queue"] != "q" || moved["due"] != due {
		t.Errorf("got %v, want due %v", moved, due)
	}
	moved = object(t, c.ok("run-now", "q", "a", "--json"))
	due = object(t, c.ok("get", "q", "a", "--json"))["due"]
	if moved["id"] != "a" || moved["queue"] != "q" || moved["due"] != due {
		t.Errorf("got %v, want due %v", moved, due)
	}
	if got := c.ok("run-now", "q", "a"); got != "a is due now\n" {
		t.Errorf("got %q", got)
	}
	if got := object(t, c.ok("get", "q", "a", "--json"))["state"]; got != "ready" {
		t.Errorf("state %v", got)
	}
	if _, err := c.client().Queue("q").Receive(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.fails(13, "reschedule", "q", "a", "--in", "1s")
	c.fails(13, "run-now", "q", "a")
}

func TestDeadMessagesAreListedReplayedAndPurged(t *testing.T) {
	c := newCLI(t)
	q := c.client().Queue("q")
	bury := func(n int) {
		deliveries, err := q.Receive(t.Context(), n)
		if err != nil || len(deliveries) != n {
			t.Fatalf("%d deliveries: %v", len(deliveries), err)
		}
		for _, d := range deliveries {
			if err := d.Bury(t.Context(), errors.New("bad address")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		c.ok("send", "q", "to "+id, "--id", id)
	}
	bury(3)
	contains(t, c.ok("dead", "list", "q"), "REASON  ATTEMPTS  LAST ERROR   PAYLOAD\n",
		"buried         1  bad address  to a\n")
	if got := objects(t, c.ok("dead", "list", "q", "--json")); len(got) != 3 || got[0]["dead_reason"] != "buried" {
		t.Errorf("got %v", got)
	}
	contains(t, c.ok("dead", "errors", "q"), "REASON  ERROR        EXAMPLE\n", "buried  bad address  c\n")
	contains(t, c.ok("dead", "errors"), "EXAMPLE  QUEUES\n", "bad address  c        q (3)\n")
	contains(t, c.ok("dead", "errors", "--json"), `"queues":[{"queue":"q","count":3}]`, `"example_queue":"q"`)
	contains(t, c.ok("dead", "errors", "q", "--look", "2", "--json"), `"pattern":"bad address","count":2,`)
	c.fails(14, "reschedule", "q", "a", "--in", "1s")

	if got := c.ok("dead", "replay", "q", "a", "--in", "1h"); got != "replayed 1\n" {
		t.Errorf("got %q", got)
	}
	contains(t, c.fails(11, "dead", "replay", "q", "a", "b"), "1 of the 2 ids are not dead")
	if got := object(t, c.ok("dead", "replay", "q", "--all", "--json")); got["replayed"] != 1.0 {
		t.Errorf("got %v", got)
	}
	bury(2)
	if got := c.ok("dead", "purge", "q", "b"); got != "purged 1\n" {
		t.Errorf("got %q", got)
	}
	contains(t, c.fails(2, "dead", "purge", "q", "--all"),
		`Permanently remove 1 dead messages from queue "q"?`, "not confirmed")
	if got := c.ok("dead", "purge", "q", "--all", "--yes"); got != "purged 1\n" {
		t.Errorf("got %q", got)
	}
	if got := object(t, c.ok("stats", "q", "--json")); got["dead"] != 0.0 || got["scheduled"] != 1.0 {
		t.Errorf("got %v", got)
	}
}

func TestDeadRetainLimitsDeadMessages(t *testing.T) {
	c := newCLI(t)
	if got := c.ok("dead", "retain", "q", "--max-age", "30d", "--max-count", "1"); got !=
		"dead messages of q are kept for 30d, up to 1; 0 were dropped\n" {
		t.Errorf("got %q", got)
	}
	q := c.client().Queue("q")
	for _, id := range []string{"a", "b"} {
		c.ok("send", "q", "x", "--id", id)
		c.bury("q", "bad address")
	}
	c.ok("send", "q", "x", "--id", "c")
	if _, err := q.Receive(t.Context(), 1); err != nil { // a claim, which drops a
		t.Fatal(err)
	}
	if got := objects(t, c.ok("dead", "list", "q", "--json")); len(got) != 1 || got[0]["id"] != "b" {
		t.Errorf("got %v", got)
	}
	for _, args := range [][]string{{"dead", "retain", "q", "--json"}, {"stats", "q", "--json"}} {
		got := object(t, c.ok(args...))
		if got["dead_max_age"] != "720h0m0s" || got["dead_max_count"] != 1.0 || got["dead_dropped"] != 1.0 {
			t.Errorf("%v: got %v", args, got)
		}
	}
	if got := c.ok("dead", "retain", "q", "--forever"); got !=
		"dead messages of q are kept for ever; 1 were dropped\n" {
		t.Errorf("got %q", got)
	}
	contains(t, c.fails(2, "dead", "retain", "q", "--forever", "--max-count", "1"), "both given")
	contains(t, c.fails(2, "dead", "retain", "q", "--max-count", "0"), "--forever")
	contains(t, c.fails(2, "dead", "retain", "q", "--max-count", "-1"), "maximum number of dead messages is -1")
	contains(t, c.fails(11, "dead", "retain", "unknown"), "unknown")
}

func TestPauseStopsDeliveriesUntilResume(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x")
	if got := c.ok("pause", "q", "new"); got != "paused q\npaused new\n" {
		t.Errorf("got %q", got)
	}
	contains(t, c.ok("stats", "q"), "paused\n")
	if got := objects(t, c.ok("resume", "q", "new", "--json")); len(got) != 2 || got[0]["paused"] != false {
		t.Errorf("got %v", got)
	}
	if got := c.ok("work", "q", "--max", "1"); got != "x\n" {
		t.Errorf("got %q", got)
	}
}

func TestPurgeAsksFirst(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x")
	c.ok("send", "q", "x", "--in", "1h")
	for _, answer := range []string{"", "\n", "n\n", "yesterday\n"} {
		r := c.runWith(t.Context(), answer, "purge", "q")
		if r.exit != 2 || !strings.Contains(r.stderr, "nothing was done") {
			t.Errorf("answer %q: exit %d: %s", answer, r.exit, r.stderr)
		}
		contains(t, r.stderr,
			`Permanently remove all messages (1 scheduled, 1 ready, 0 leased, 0 dead) from queue "q"? [y/N] `)
	}
	if r := c.runWith(t.Context(), "y\n", "purge", "q", "--state", "ready"); r.exit != 0 || r.stdout != "purged 1\n" {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	if got := object(t, c.ok("purge", "q", "--yes", "--json")); got["purged"] != 1.0 {
		t.Errorf("got %v", got)
	}
}

func TestDeleteAsksFirstAndQueuesListsTheRest(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "b", "x")
	c.ok("send", "a", "x")
	if got := c.ok("queues"); got != "a\nb\n" {
		t.Errorf("got %q", got)
	}
	contains(t, c.fails(2, "delete", "a"),
		`Delete queue "a" with all messages (0 scheduled, 1 ready, 0 leased, 0 dead)?`)
	if r := c.runWith(t.Context(), "YES\n", "delete", "a"); r.exit != 0 || r.stdout != "deleted a\n" {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	if got := object(t, c.ok("queues", "--json")); got["queue"] != "b" {
		t.Errorf("got %v", got)
	}
}

func TestStatsCountsAllQueuesOrTheNamedOnes(t *testing.T) {
	c := newCLI(t)
	contains(t, c.run("stats").stderr, "there are no queues yet")
	c.ok("send", "orders", "x", "--in", "1h")
	c.ok("send", "orders", "x", "--in", "2h")
	c.ok("send", "mail", "x")
	if _, err := c.client().Queue("mail").Receive(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(c.ok("stats"), "\n")
	if strings.Join(strings.Fields(lines[0]), " ") != "QUEUE SCHEDULED READY LEASED DEAD NEXT DUE" {
		t.Errorf("heading %q", lines[0])
	}
	if strings.Join(strings.Fields(lines[1]), " ") != "mail 0 0 1 0 -" {
		t.Errorf("mail %q", lines[1])
	}
	row := strings.Join(strings.Fields(lines[2]), " ")
	if !strings.HasPrefix(row, "orders 2 0 0 0 in 59m") && !strings.HasPrefix(row, "orders 2 0 0 0 in 1h (") {
		t.Errorf("orders %q", row)
	}
	got := object(t, c.ok("stats", "orders", "--json"))
	if got["queue"] != "orders" || got["scheduled"] != 2.0 || got["next_due"] == nil || got["paused"] != false {
		t.Errorf("got %v", got)
	}
}

func TestStatsReportsADamagedQueueAndShowsTheOthers(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "good", "x")
	c.damage("bad")
	for _, args := range [][]string{{"stats"}, {"stats", "good", "bad", "good"}} {
		r := c.run(args...)
		if r.exit != 20 || strings.Count(r.stdout, "good") != 1 ||
			!strings.HasPrefix(r.stderr, `later: stats on queue "bad": `) {
			t.Errorf("%q: exit %d: %s%s", args, r.exit, r.stdout, r.stderr)
		}
		r = c.run(append(args, "--json")...)
		e, _ := object(t, r.stderr)["error"].(map[string]any)
		if got := object(t, r.stdout); r.exit != 20 || got["queue"] != "good" || e["code"] != "corrupt" {
			t.Errorf("%q: exit %d: %s%s", args, r.exit, r.stdout, r.stderr)
		}
	}
	if r := c.run("stats", "bad"); r.exit != 20 || r.stdout != "" {
		t.Errorf("exit %d: %s", r.exit, r.stdout)
	}
}

func TestWatchedStatsShowTheChangePerSecond(t *testing.T) {
	now := time.Unix(1e9, 0)
	before := later.Stats{Scheduled: 100, Ready: 5, Now: now}
	after := later.Stats{Scheduled: 103, Ready: 5, Dead: 40, Now: now.Add(2 * time.Second)}
	got := statsTable([]queueStats{{"q", after, &before}}).lines()[1]
	if got := strings.Join(strings.Fields(got), " "); got != "q 103 +1.5 5 0 40 +20 -" {
		t.Errorf("got %q", got)
	}
}
