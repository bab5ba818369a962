package main

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// shardRows returns what later shards printed: its first line, and the rows of its table.
func shardRows(t *testing.T, printed string) (first string, rows [][]string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(printed, "\n"), "\n")
	if len(lines) < 3 {
		t.Fatalf("printed %q", printed)
	}
	for _, line := range lines[2:] {
		rows = append(rows, strings.Fields(line))
	}
	return lines[0], rows
}

func TestShardsDividesAQueueAndShowsItsShards(t *testing.T) {
	for _, store := range []string{"redis", "file"} {
		t.Run(store, func(t *testing.T) {
			c := newCLI(t)
			if store == "file" {
				c.store = "file://" + t.TempDir()
			}
			for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				c.ok("send", "q", "x", "--id", id, "--in", "1h")
			}
			if first, rows := shardRows(t, c.ok("shards", "q")); first != "q has 1 shard" || len(rows) != 1 ||
				rows[0][2] != "8" {
				t.Errorf("%q, %q", first, rows)
			}
			for _, args := range [][]string{{"shards", "q", "3"}, {"shards", "q", "3"}, {"shards", "q"}} {
				first, rows := shardRows(t, c.ok(args...))
				if !strings.HasPrefix(first, "q has 3 shards, was changed from 1 at ") || len(rows) != 3 {
					t.Errorf("%q: %q, %q", args, first, rows)
				}
			}
			got := object(t, c.ok("shards", "q", "--json"))
			each, _ := got["each"].([]any)
			total := 0.0
			for _, one := range each {
				total += one.(map[string]any)["scheduled"].(float64)
			}
			if got["queue"] != "q" || got["shards"] != 3.0 || got["from"] != 1.0 || got["moving"] != false ||
				total != 8 {
				t.Errorf("%v", got)
			}
			contains(t, c.fails(23, "shards", "q", "2"), `queue "q" has changed from 1 to 3 shards`)
			contains(t, c.fails(2, "flow", "q", "--concurrency", "2"), "raise it to at least 3")
			contains(t, c.fails(2, "flow", "q", "--rate", "100/1s"), "burst")
			contains(t, c.fails(2, "send", "q", "--id", "x", "--key", "k", "text"), `must begin with "k/"`)
			c.ok("flow", "q", "--rate", "100/1s", "--burst", "10", "--concurrency", "7", "--order", "halt")
			flow := object(t, c.ok("flow", "q", "--json"))
			if flow["flow"].(map[string]any)["concurrency"] != 7.0 {
				t.Errorf("limits are %v", flow)
			}
			c.ok("delete", "q", "--yes")
			contains(t, c.fails(11, "shards", "q"), `no queue "q"`)

			r := c.run("shards", "new", "2")
			if r.exit != 0 || !strings.Contains(r.stderr, `queue "new" did not exist and was created`) {
				t.Errorf("exit %d: %s", r.exit, r.stderr)
			}
		})
	}
}

func TestShardsGoesOnInOtherProcessesAfterCtrlC(t *testing.T) {
	c := newCLI(t)
	q := c.client().Queue("q")
	for range 5 {
		c.ok("send", "q", "x")
	}
	held, err := q.Receive(t.Context(), 5)
	if err != nil || len(held) == 0 {
		t.Fatalf("received %d, %v", len(held), err)
	}
	p := c.start("shards", "q", "64")
	p.await(p.stderr, "messages move: Ctrl-C leaves that to other processes")
	p.signal(syscall.SIGINT)
	p.await(p.stderr, "the change of q to 64 shards has begun, and goes on while a process uses the queue")
	if exit := p.exit(); exit != 130 {
		t.Errorf("exit %d", exit)
	}
	if first, rows := shardRows(t, c.ok("shards", "q")); len(rows) != 64 ||
		!strings.HasPrefix(first, "q is changing from 1 to 64 shards since ") {
		t.Errorf("%q, %d shards", first, len(rows))
	}
	for _, d := range held {
		if err := d.Nack(t.Context(), 0, errors.New("again")); err != nil {
			t.Error(err)
		}
	}
	if err := q.SetShards(t.Context(), 64); err != nil {
		t.Error(err)
	}
	if shards, err := q.Shards(t.Context()); err != nil || shards.Moving {
		t.Errorf("%+v, %v", shards, err)
	}
	if stats, err := q.Stats(t.Context()); err != nil || stats.Ready != 5 {
		t.Errorf("%+v, %v", stats, err)
	}
}

func TestShardsSaysHowFarMessagesHaveMoved(t *testing.T) {
	of := func(from, to int, counts ...int64) later.Shards {
		s := later.Shards{From: from, Number: to, Moving: true}
		for _, n := range counts {
			s.Each = append(s.Each, store.Shard{Stats: later.Stats{Scheduled: n - 1, Leased: 1}})
		}
		return s
	}
	for _, test := range []struct {
		shards later.Shards
		want   string
	}{
		{of(1, 2, 70, 30), "30 of about 50 messages moved, 1 in flight"},
		{of(2, 4, 500, 500, 100, 100), "200 of about 600 messages moved, 2 in flight"},
		{of(3, 1, 70, 20, 10), "30 messages still to move, 2 in flight"},
	} {
		if got := movingText(test.shards); got != test.want {
			t.Errorf("from %d to %d shards: %q, want %q", test.shards.From, test.shards.Number, got, test.want)
		}
	}
}
