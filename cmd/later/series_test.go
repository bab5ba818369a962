package main

import (
	"strings"
	"testing"
	"time"
)

func TestSeriesIsSentListedMovedAndCancelled(t *testing.T) {
	c := newCLI(t)
	send := []string{"series", "send", "q", "a", "x", "--until", "2040-06-01T09:00:00Z", "--offsets", "-1d,-1h",
		"--offsets", "2d", "--header", "k=v"}
	if got := c.ok(send...); got != "sent 3 messages of series a\n" {
		t.Errorf("send printed %q", got)
	}
	contains(t, c.fails(12, send...), "later series list q a")
	contains(t, c.ok("get", "q", "a/-24h0m0s"), "k=v")
	contains(t, c.ok("series", "list", "q", "a"), "1/3     -1d  scheduled", "2/3     -1h", "3/3     +2d", "a/+48h0m0s")

	got := c.ok("series", "move", "q", "a", "--until", "2041-06-01T09:00:00Z")
	if got != "moved 3 messages of series a\n" {
		t.Errorf("move printed %q", got)
	}
	listed := objects(t, c.ok("series", "list", "q", "a", "--json"))
	if len(listed) != 3 || listed[0]["due"] != "2041-05-31T09:00:00.000Z" || listed[0]["index"] != 1.0 ||
		listed[0]["until"] != "2041-06-01T09:00:00.000Z" || listed[0]["offset"] != "-24h0m0s" ||
		listed[0]["series"] != "a" {
		t.Errorf("list printed %v", listed)
	}
	past := time.Now().Add(-time.Minute).Format(time.RFC3339)
	moved := object(t, c.ok("series", "move", "q", "a", "--until", past, "--json"))
	if moved["moved"] != 1.0 || moved["skipped"] != 2.0 || moved["left"] != 0.0 || moved["series"] != "a" {
		t.Errorf("move to the past printed %v", moved)
	}
	if got := c.ok("series", "cancel", "q", "a"); got != "cancelled 1 message of series a\n" {
		t.Errorf("cancel printed %q", got)
	}
	r := c.run("series", "list", "q", "a")
	if r.exit != 0 || !strings.Contains(r.stderr, "nothing of the series remains") {
		t.Errorf("list of nothing: %+v", r)
	}
	contains(t, c.fails(11, "series", "list", "qq", "a"), `no queue "qq"`)
}

func TestSeriesOfThePastIsSkippedOrSent(t *testing.T) {
	c := newCLI(t)
	until := time.Now().Add(time.Hour).Format(time.RFC3339)
	contains(t, c.ok("series", "send", "q", "a", "x", "--until", until, "--offsets", "-1d,-1m"),
		"sent 1 message of series a, skipped 1 of the past\n")
	sent := object(t, c.ok("series", "send", "q", "a", "x", "--until", until, "--offsets", "-1d,-1m", "--past", "send",
		"--json"))
	if sent["sent"] != 1.0 || sent["duplicates"] != 1.0 || sent["skipped"] != 0.0 || sent["queue"] != "q" {
		t.Errorf("send printed %v", sent)
	}
	contains(t, c.ok("series", "list", "q", "a"), "ready")
	left := c.ok("series", "move", "q", "a", "--until", until)
	contains(t, left, "moved 1 message of series a, left 1\n")
	cancelled := object(t, c.ok("series", "cancel", "q", "a", "--keep-id", "--json"))
	if cancelled["cancelled"] != 2.0 {
		t.Errorf("cancel printed %v", cancelled)
	}
	c.fails(12, "series", "send", "q", "a", "x", "--until", until, "--offsets", "-1d,-1m", "--past", "send")
}
