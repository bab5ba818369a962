//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestWorkPrintsMessagesInTheOrderTheyAreDueAndAcksThem(t *testing.T) {
	c := newCLI(t)
	now := time.Now()
	for _, seconds := range []int{3, 1, 2} {
		at := now.Add(time.Duration(-seconds) * time.Second).Format(time.RFC3339Nano)
		c.ok("send", "q", fmt.Sprintf("%d seconds ago", seconds), "--at", at)
	}
	if got := c.ok("work", "q", "--max", "3"); got != "3 seconds ago\n2 seconds ago\n1 seconds ago\n" {
		t.Errorf("got %q", got)
	}
	if got := object(t, c.ok("stats", "q", "--json")); got["ready"] != 0.0 || got["leased"] != 0.0 {
		t.Errorf("got %v", got)
	}
}

func TestWorkPrintsAllOfAMessageAsJSON(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "hello", "--id", "a", "--header", "k=v", "--max-attempts", "3", "--in", "20ms")
	got := object(t, c.ok("work", "q", "--max", "1", "--json"))
	for name, want := range map[string]any{
		"id": "a", "queue": "q", "payload_text": "hello", "attempt": 1.0, "max_attempts": 3.0,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if late, _ := got["lateness"].(string); !strings.HasSuffix(late, "s") || strings.HasPrefix(late, "-") {
		t.Errorf("lateness %v", got["lateness"])
	}
}

func TestWorkStopsAfterMaxAndLeavesTheOthers(t *testing.T) {
	c := newCLI(t)
	if r := c.runWith(t.Context(), strings.Repeat("x\n", 50), "send", "q", "--batch"); r.exit != 0 {
		t.Fatal(r.stderr)
	}
	if got := c.ok("work", "q", "--max", "7", "--concurrency", "3"); got != strings.Repeat("x\n", 7) {
		t.Errorf("got %q", got)
	}
	for _, o := range objects(t, c.ok("list", "q", "--json")) {
		if o["state"] != "ready" || o["attempts"] != 0.0 {
			t.Errorf("left: %v", o)
		}
	}
	if got := object(t, c.ok("stats", "q", "--json")); got["ready"] != 43.0 {
		t.Errorf("got %v", got)
	}
}

func TestExecGetsPayloadHeadersAndIdentity(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "the payload", "--id", "a", "--header", "content-type=text plain", "--header", "Ünï=x",
		"--max-attempts", "4", "--key", "customer-7", "--group", "order-42")
	got := c.ok("work", "q", "--max", "1", "--exec", `cat; echo; env | grep ^LATER_ | grep -v STORE | sort`)
	contains(t, got, "the payload\n", "LATER_ATTEMPT=1\n", "LATER_HEADER_CONTENT_TYPE=text plain\n",
		"LATER_HEADER__N_=x\n", "LATER_ID=a\n", "LATER_KEY=customer-7\n", "LATER_GROUP=order-42\n",
		"LATER_MAX_ATTEMPTS=4\n", "LATER_QUEUE=q\n", "LATER_DUE=2")
	stats := object(t, c.ok("stats", "q", "--json"))
	if stats["ready"] != 0.0 || stats["scheduled"] != 0.0 || stats["dead"] != 0.0 {
		t.Errorf("exit 0 did not ack: %v", stats)
	}
}

func TestExecDoesNotInheritSecretsOfTheWorker(t *testing.T) {
	c := newCLI(t)
	secrets := []string{"LATER_TOKEN=s3cret", "LATER_ID=outer", "LATER_KEY=outer", "LATER_STORE=http://:s3cret@127.0.0.1:1"}
	for _, env := range [][]string{secrets, {"LATER_STORE=redis://later:s3cret@127.0.0.1:1/0"},
		{"LATER_STORE=redis://127.0.0.1:1/0?sentinel_password=s3cret"}} {
		c.ok("send", "q", "x", "--id", "a")
		got := runMain(t.Context(), append(os.Environ(), env...), "", "work", "--store", c.store, "q", "--max", "1",
			"--exec", "env")
		if got.exit != 0 || strings.Contains(got.stdout, "s3cret") || !strings.Contains(got.stdout, "LATER_ID=a\n") ||
			strings.Contains(got.stdout, "LATER_KEY") {
			t.Errorf("%v: %d %s%s", env, got.exit, got.stdout, got.stderr)
		}
	}
	c.ok("send", "q", "x")
	plain := "LATER_STORE=redis://127.0.0.1:1/0"
	got := runMain(t.Context(), append(os.Environ(), plain, "OTHER=1"), "", "work", "--store", c.store, "q",
		"--max", "1", "--exec", "env")
	contains(t, got.stdout, plain+"\n", "OTHER=1\n", "PATH=")
}

func TestExecExit75RetriesWithoutALogAndOthersAreLoggedFailures(t *testing.T) {
	for exit, logged := range map[int]bool{75: false, 1: true} {
		c := newCLI(t)
		c.ok("send", "q", "x", "--id", "a")
		r := c.run("work", "q", "--max", "1", "--exec", fmt.Sprintf("echo to out; echo sorry >&2; exit %d", exit))
		if r.exit != 0 || r.stdout != "to out\n" || !strings.Contains(r.stderr, "sorry\n") {
			t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
		}
		if got := strings.Contains(r.stderr, "error: command failed"); got != logged {
			t.Errorf("exit %d: logged %v: %s", exit, got, r.stderr)
		}
		got := object(t, c.ok("get", "q", "a", "--json"))
		if want := fmt.Sprintf("exit status %d: sorry", exit); got["attempts"] != 1.0 || got["last_error"] != want {
			t.Errorf("got %v, want %q", got, want)
		}
	}
}

func TestExecKeepsTheEndOfALongErrorAsTheReason(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x", "--max-attempts", "1")
	r := c.run("work", "q", "--max", "1", "--exec", "seq 1 10000 >&2; exit 1")
	contains(t, r.stderr, "message is dead")
	got := object(t, c.ok("dead", "list", "q", "--json"))["last_error"].(string)
	if !strings.HasPrefix(got, "exit status 1: ") || !strings.HasSuffix(got, "\n9999\n10000") || len(got) > 2048 {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestExecKillsTheWholeGroupAtTheDeadline(t *testing.T) {
	for name, command := range map[string]string{
		"that ends on SIGTERM": "sleep 300 & sleep 300",
		"that ignores SIGTERM": `trap "" TERM; sleep 300 & sleep 300; sleep 300`,
		"that exits with 0":    `trap "exit 0" TERM; sleep 300 & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCLI(t)
			hold, awaitEnd := watchGroup(t)
			c.ok("send", "q", "x", "--id", "a", "--max-attempts", "1")
			r := c.run("work", "q", "--max", "1", "--timeout", "300ms", "--exec", hold+"; "+command)
			awaitEnd()
			contains(t, r.stderr, "error: command was stopped", "time limit has passed")
			got := object(t, c.ok("get", "q", "a", "--json"))
			lastError := got["last_error"].(string)
			if got["state"] != "dead" || !strings.HasPrefix(lastError, "handler's time limit has passed (300ms)") {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestExecOutlivedByAChildIsDone(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	hold, awaitEnd := watchGroup(t)
	c.ok("send", "q", "x")
	// The child keeps the output open for longer than killGrace.
	r := c.run("work", "q", "--max", "1", "--exec", hold+"; sleep 3 &")
	if r.exit != 0 || strings.Contains(r.stderr, "error") {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	if got := object(t, c.ok("stats", "q", "--json")); got["ready"] != 0.0 || got["scheduled"] != 0.0 {
		t.Errorf("not acked: %v", got)
	}
	awaitEnd()
}

func TestCancellingAMessageKillsItsCommand(t *testing.T) {
	c := newCLI(t)
	hold, awaitEnd := watchGroup(t)
	c.ok("send", "q", "x", "--id", "a")
	p := c.start("work", "q", "--max", "1", "--lease", "300ms", "--exec", hold+"; echo started; sleep 300")
	p.await(p.stdout, "started")
	if got := c.ok("cancel", "q", "a"); got != "cancelled a, which was leased\n" {
		t.Errorf("got %q", got)
	}
	awaitEnd()
	p.await(p.stderr, "its message was cancelled")
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestWorkDrainsWhenItsContextEnds(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "hello")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	printed := writerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	})
	m := &Main{Stdin: strings.NewReader(""), Stdout: printed, Stderr: io.Discard, Env: []string{"REDIS_URL=" + c.store}}
	if exit := m.Run(ctx, []string{"work", "q"}); exit != 0 {
		t.Errorf("exit %d", exit)
	}
	if got := object(t, c.ok("stats", "q", "--json")); got["ready"] != 0.0 || got["leased"] != 0.0 {
		t.Errorf("not acked: %v", got)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestFullDiskIsAnErrorAndTheMessageIsReleased(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "hello", "--id", "a")
	full := writerFunc(func([]byte) (int, error) { return 0, syscall.ENOSPC })
	var stderr strings.Builder
	m := &Main{Stdin: strings.NewReader(""), Stdout: full, Stderr: &stderr, Env: []string{"REDIS_URL=" + c.store}}
	if exit := m.Run(t.Context(), []string{"work", "q"}); exit != 1 {
		t.Errorf("exit %d, want 1", exit)
	}
	contains(t, stderr.String(), "cannot be printed and is released", "later: no space left on device")
	if got := object(t, c.ok("get", "q", "a", "--json")); got["state"] != "ready" || got["attempts"] != 0.0 {
		t.Errorf("got %v", got)
	}
}
