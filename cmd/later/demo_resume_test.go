//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
)

func TestDemoRunsInTheEmbeddedStoreAndLeavesNothing(t *testing.T) {
	t.Parallel()
	c := &cli{t, fileURL(t.TempDir())}
	r := c.run("demo", "--speed", "5", "--orders", "6")
	checkDemo(t, r)
	contains(t, r.stdout, "A shop on file:///")
	if got := c.ok("queues"); got != "" {
		t.Errorf("left: %s", got)
	}
}

func TestDemoRunsInMemoryWhereTheDefaultStoreCannotBeUsed(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	env := []string{"HOME=" + home}
	url, err := (&Main{Env: env}).defaultStore()
	if err != nil {
		t.Fatal(err)
	}
	c := &cli{t, url}
	p := c.start("work", "mail")
	p.await(p.stderr, "working on mail")
	check := func(env []string, reason string) {
		t.Helper()
		r := runMain(t.Context(), env, "", "demo", "--speed", "100", "--orders", "1")
		checkSummary(t, r.stdout)
		contains(t, r.stdout, "A shop on mem://")
		contains(t, r.stderr, "the demo runs in memory and cannot be continued after a stop: ", reason)
		if r.exit != 0 || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("exit %d: %s", r.exit, r.stderr)
		}
	}
	check(nil, "HOME")
	check(env, "is in use by process ")
	contains(t, c.fails(18, "demo"), "is in use by process ") // a named store must work
	p.signal(syscall.SIGTERM)
	p.exit()

	c.ok("send", "demo-mail", "mine", "--id", "a")
	check(env, `queue "demo-mail" has messages that are not a demo's`)
	contains(t, c.fails(2, "demo", "--fresh"), `queue "demo-mail" has messages`, "later delete demo-mail")
	c.ok("get", "demo-mail", "a")
}

// stopDemo starts a demo, waits until all is sent, and stops it by a signal.
func stopDemo(t *testing.T, c *cli, by syscall.Signal, exit int) {
	t.Helper()
	p := c.start("demo", "--orders", "7", "--speed", "2")
	p.await(p.stdout, "  webhook-6 ") // the first attempt, a second after the order
	p.signal(by)
	if by == syscall.SIGINT {
		p.await(p.stderr, "stopped: later demo continues, later demo --fresh starts over")
		contains(t, p.await(p.stdout, "Of 22 messages sent"), " waiting, 0 lost.")
	}
	if got := p.exit(); got != exit {
		t.Errorf("exit %d, want %d", got, exit)
	}
}

func TestDemoThatIsStoppedContinues(t *testing.T) {
	t.Parallel()
	for by, exit := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGKILL: exitBy(syscall.SIGKILL)} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			c := newDiskCLI(t)
			stopDemo(t, c, by, exit)
			contains(t, c.ok("queues"), "demo-mail\ndemo-orders\n")
			r := c.run("demo")
			if r.exit != 0 {
				t.Errorf("exit %d: %s", r.exit, r.stderr)
			}
			contains(t, r.stderr, "a demo was stopped here and continues with ")
			contains(t, r.stdout, "delivered  order-7", "dead       webhook-6", "Of 0 messages sent and ",
				" 0 waiting, 0 lost.")
			if strings.Contains(r.stdout, "placed") {
				t.Errorf("orders were placed again:\n%s", r.stdout)
			}
			if got := c.ok("queues"); got != "" {
				t.Errorf("left: %s", got)
			}
		})
	}
}

func TestDemoThatIsFreshForgetsAStoppedOne(t *testing.T) {
	t.Parallel()
	c := newDiskCLI(t)
	stopDemo(t, c, syscall.SIGINT, 130)
	r := c.run("demo", "--fresh", "--orders", "2", "--speed", "50")
	if r.exit != 0 || r.stderr != "" {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	contains(t, r.stdout, "Of 7 messages sent and 0 found: ")
}

func TestDemoNoticesALostMessage(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	p := c.start("demo", "--orders", "3", "--json")
	p.await(p.stdout, "-reminders") // the counts, printed when all is sent
	for name := range strings.Lines(c.ok("queues")) {
		if name = strings.TrimSpace(name); strings.HasSuffix(name, "-orders") {
			c.ok("cancel", name, "order-3") // it is not paid
		}
	}
	p.await(p.stderr, "1 messages are lost: order-3")
	contains(t, p.await(p.stdout, `"sent":10`), `"lost":1`)
	if exit := p.exit(); exit != 1 {
		t.Errorf("exit %d, want 1", exit)
	}
}
