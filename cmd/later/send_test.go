//go:build unix

package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/laterq/later/store"
)

func TestDuplicateIDIsExit12AndChangesNothing(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "first", "--id", "a", "--in", "1h")
	contains(t, c.fails(12, "send", "q", "second", "--id", "a"), `id "a" is already in queue "q"`, "later get q a")
	if got := object(t, c.ok("get", "q", "a", "--json")); got["payload_text"] != "first" ||
		got["state"] != "scheduled" {
		t.Errorf("got %v", got)
	}
}

func TestSendReadsAPayloadFromStdinByteForByte(t *testing.T) {
	c := newCLI(t)
	r := c.runWith(t.Context(), "two\nlines\n", "send", "q", "-", "--json", "--id", "a")
	if got := object(t, r.stdout); got["id"] != "a" || got["queue"] != "q" {
		t.Errorf("got %v", got)
	}
	if got := object(t, c.ok("get", "q", "a", "--json")); got["payload_text"] != "two\nlines\n" {
		t.Errorf("got %v", got)
	}
	c.ok("send", "q", "", "--id", "empty")
	if got := object(t, c.ok("get", "q", "empty", "--json")); got["payload_text"] != "" {
		t.Errorf("got %v", got)
	}
}

func TestTooLargePayloadIsExit10(t *testing.T) {
	c := newCLI(t)
	large := strings.Repeat("x", store.MaxPayload+1)
	if r := c.runWith(t.Context(), large, "send", "q", "-"); r.exit != 10 ||
		!strings.Contains(r.stderr, "1048576 bytes") {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	r := c.runWith(t.Context(), "a\nb\n"+large+"\nc\n", "send", "q", "--batch")
	if r.exit != 10 || !strings.Contains(r.stderr, "line 3: payload exceeds the limit of 1048576 bytes") {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	if r := c.runWith(t.Context(), large[1:], "send", "q", "-"); r.exit != 0 {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	if r := c.runWith(t.Context(), large[1:]+"\n"+large[1:], "send", "q", "--batch"); r.exit != 0 {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	if got := object(t, c.ok("stats", "q", "--json")); got["ready"] != 5.0 {
		t.Errorf("got %v", got)
	}
}

func TestBatchSendsEachLineInOrder(t *testing.T) {
	c := newCLI(t)
	const n = 2345
	var input, want strings.Builder
	for i := range n {
		fmt.Fprintf(&input, "line %d\n", i)
	}
	want.WriteString(input.String() + "\nlast, without an end\n")
	input.WriteString("\nlast, without an end")
	r := c.runWith(t.Context(), input.String(), "send", "q", "--batch", "--header", "k=v")
	summary := fmt.Sprintf("later: sent %d messages to q in ", n+2)
	if r.exit != 0 || r.stdout != "" || !strings.HasPrefix(r.stderr, summary) {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	if got := c.ok("work", "q", "--max", fmt.Sprint(n+2)); got != want.String() {
		t.Errorf("got %d bytes, or another order, want %d", len(got), want.Len())
	}
	r = c.runWith(t.Context(), "a\nb\n", "send", "q", "--batch", "--json")
	if got := object(t, r.stdout); got["sent"] != 2.0 {
		t.Errorf("got %v", got)
	}
}

func TestBatchSendsALineAtOnceAndPrintsASummaryWhenStopped(t *testing.T) {
	c := newCLI(t)
	stdin, input := pipe(t)
	defer input.Close()
	p := c.startAs(os.Args[0], stdin, "send", "q", "--batch")
	fmt.Fprintln(input, "hello")
	if got := c.ok("work", "q", "--max", "1"); got != "hello\n" {
		t.Errorf("got %q", got)
	}
	p.signal(syscall.SIGINT)
	p.await(p.stderr, "sent 1 messages to q")
	if exit := p.exit(); exit != 130 {
		t.Errorf("exit %d, want 130", exit)
	}
}

func TestSendReplacesAndDebounces(t *testing.T) {
	c := newCLI(t)
	send := func(payload, outcome string, flags ...string) {
		t.Helper()
		args := append([]string{"send", "q", payload, "--id", "a", "--json"}, flags...)
		if got := object(t, c.ok(args...)); got["outcome"] != outcome || got["id"] != "a" {
			t.Errorf("got %v, want %s", got, outcome)
		}
	}
	send("first", "sent", "--on-duplicate", "replace", "--in", "1h")
	due := object(t, c.ok("get", "q", "a", "--json"))["due"]
	send("second", "replaced", "--on-duplicate", "replace")
	if got := object(t, c.ok("get", "q", "a", "--json")); got["payload_text"] != "second" || got["due"] != due {
		t.Errorf("got %v, want the second payload, due at %v", got, due)
	}
	send("third", "debounced", "--on-duplicate", "debounce", "--wait", "2h", "--max-wait", "3h")
	if got := object(t, c.ok("get", "q", "a", "--json")); got["payload_text"] != "third" || got["due"] == due {
		t.Errorf("got %v", got)
	}
	contains(t, c.fails(12, "send", "q", "x", "--id", "a", "--on-duplicate", "keep"), `id "a" is already in queue "q"`)
	if r := c.ok("send", "q", "x", "--id", "b", "--on-duplicate", "replace"); r != "b\n" {
		t.Errorf("got %q", r)
	}
	for want, flags := range map[string][]string{
		"there is no id":               {"--on-duplicate", "replace"},
		"must be keep, replace, debou": {"--id", "a", "--on-duplicate", "merge"},
		"needs --wait and --max":       {"--id", "a", "--on-duplicate", "debounce", "--wait", "1s"},
		"are for --on-duplicate":       {"--id", "a", "--on-duplicate", "replace", "--wait", "1s"},
		"maximum wait of debounce":     {"--id", "a", "--on-duplicate", "debounce", "--wait", "2s", "--max-wait", "1s"},
		"give only one of them": {"--id", "a", "--in", "1s", "--on-duplicate", "debounce", "--wait", "1s", "--max-wait",
			"1s"},
	} {
		contains(t, c.fails(2, append([]string{"send", "q", "x"}, flags...)...), want)
	}
}

func TestSendFollowsAMessageThatAWorkerHolds(t *testing.T) {
	c := newCLI(t)
	send := func(payload, outcome string) {
		t.Helper()
		got := object(t, c.ok("send", "q", payload, "--id", "a", "--on-duplicate", "follow", "--json"))
		if got["outcome"] != outcome {
			t.Errorf("got %v, want %s", got, outcome)
		}
	}
	send("first", "sent")
	send("second", "replaced")
	held, err := c.client().Queue("q").Receive(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	send("third", "follows")
	send("fourth", "follows")
	contains(t, c.ok("get", "q", "a"), "leased", "follows         an earlier message, which a worker holds", "fourth",
		"delivered       no")
	got := object(t, c.ok("get", "q", "a", "--json"))
	if got["follows"] != true || got["state"] != "leased" || got["payload_text"] != "fourth" {
		t.Errorf("got %v", got)
	}
	contains(t, c.fails(13, "send", "q", "x", "--id", "a", "--on-duplicate", "replace"), "is not replaced")
	if err := held[0].Ack(t.Context()); err != nil || string(held[0].Payload) != "second" {
		t.Fatal(string(held[0].Payload), err)
	}
	if got := c.ok("work", "q", "--max", "1"); got != "fourth\n" {
		t.Errorf("got %q", got)
	}
}
