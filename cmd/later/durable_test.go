package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

func TestUnconfirmedDurableSendIsExit17AndPrintsTheID(t *testing.T) {
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	c := newCLI(t)
	send := []string{"--store", primary.URL(), "send", "q", "x", "--id", "a", "--durable"}
	replica.Freeze(t)
	contains(t, c.fails(17, append(send, "1,100ms")...), "sent with id a", "0 of 1 replicas within 100ms")
	contains(t, c.fails(17, append(send, "1,100ms")...), "already in queue", "0 of 1 replicas within 100ms")
	replica.Thaw(t)
	contains(t, c.fails(12, append(send, "1,20s")...), "already in queue")
	if got := c.ok("--store", primary.URL(), "send", "q", "x", "--id", "b", "--durable", "1"); got != "b\n" {
		t.Errorf("printed %q", got)
	}
}

// TestBatchReportsWhichLinesAreSentButNotConfirmed checks that unconfirmed lines count as sent, and that later lines
// are not sent. The lines are so large that the batch takes several calls.
func TestBatchReportsWhichLinesAreSentButNotConfirmed(t *testing.T) {
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	c := newCLI(t)
	c.store = primary.URL()
	replica.Freeze(t)
	large := strings.Repeat("x", store.MaxPayload)
	lines := strings.Repeat(large+"\n", 2*store.MaxBatchBytes/store.MaxPayload)
	sent := func(stats map[string]any) int { return int(stats["ready"].(float64)) }
	r := c.runWith(t.Context(), lines, "send", "q", "--batch", "--durable", "1,100ms")
	n := sent(object(t, c.ok("stats", "q", "--json")))
	if r.exit != 17 || n == 0 || n == strings.Count(lines, "\n") {
		t.Errorf("exit %d, want 17, after %d lines, want some: %s", r.exit, n, r.stderr)
	}
	contains(t, r.stderr, fmt.Sprintf("sent %d messages to q", n),
		fmt.Sprintf("; %d of them are not confirmed as durable\n", n),
		fmt.Sprintf("lines 1 to %d are sent, but not confirmed as durable", n), "0 of 1 replicas within 100ms")

	r = c.runWith(t.Context(), "a\nb\n", "send", "few", "--batch", "--durable", "1,100ms", "--json")
	n = sent(object(t, c.ok("stats", "few", "--json")))
	if got := object(t, r.stdout); r.exit != 17 || got["sent"] != float64(n) || got["unconfirmed"] != float64(n) {
		t.Errorf("exit %d: %v, want %d sent and unconfirmed", r.exit, got, n)
	}
	contains(t, r.stderr, `"code":"not_durable"`)

	replica.Thaw(t)
	r = c.runWith(t.Context(), "a\nb\n", "send", "all", "--batch", "--durable", "1,20s", "--json")
	if got := object(t, r.stdout); r.exit != 0 || got["sent"] != 2.0 || got["unconfirmed"] != nil {
		t.Errorf("exit %d: %v %s", r.exit, got, r.stderr)
	}
}

func TestDurableNeedsAStoreThatCanConfirm(t *testing.T) {
	c := newCLI(t)
	disk := "file://" + t.TempDir()
	c.ok("--store", disk, "send", "q", "x", "--durable", "0")
	contains(t, c.fails(19, "--store", disk, "send", "q", "x", "--durable", "1"), "embedded store has none")
	for _, wrong := range []string{"", "-1", "17", "x", "1,", "1,x", "1,0s", "1,61m"} {
		contains(t, c.fails(2, "send", "q", "x", "--durable", wrong), "--durable")
	}
}
