package main

import (
	"testing"

	"github.com/laterq/later/internal/redistest"
)

func TestADurableSendThatIsNotConfirmedIsExit17AndTellsTheID(t *testing.T) {
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	c := newCLI(t)
	send := []string{"--store", primary.URL(), "send", "q", "x", "--id", "a", "--durable"}
	replica.Freeze(t)
	contains(t, c.fails(17, append(send, "1,100ms")...), "sent, with the id a", "0 of 1 replicas within 100ms")
	contains(t, c.fails(17, append(send, "1,100ms")...), "already in queue", "0 of 1 replicas within 100ms")
	replica.Thaw(t)
	contains(t, c.fails(12, append(send, "1,20s")...), "already in queue")
	if got := c.ok("--store", primary.URL(), "send", "q", "x", "--id", "b", "--durable", "1"); got != "b\n" {
		t.Errorf("printed %q", got)
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
