//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
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
		contains(t, r.stderr, "the demo runs in memory and cannot be continued after a stop: "+reason)
		if r.exit != 0 || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("exit %d: %s", r.exit, r.stderr)
		}
	}
	check(nil, "there is no directory for an embedded store")
	check(env, "the embedded store in "+home)
	contains(t, c.fails(18, "demo"), "is in use by process ") // a named store must work
	p.signal(syscall.SIGTERM)
	p.exit()

	c.ok("send", "demo-mail", "mine", "--id", "a")
	check(env, `queue "demo-mail" was not created by a demo`)
	contains(t, c.fails(2, "demo"), `queue "demo-mail" was not created by a demo`, "later delete demo-mail")
	c.ok("get", "demo-mail", "a")
	c.ok("delete", "demo-mail", "--yes")
	c.ok("send", "demo-book", "mine", "--id", "a", "--in", "1h")
	contains(t, c.fails(2, "demo", "--fresh"), `queue "demo-book" was not created by a demo`)
	c.ok("get", "demo-book", "a")
}

// stopDemo starts a demo and stops it by Ctrl-C.
func stopDemo(t *testing.T, c *cli) {
	t.Helper()
	p := c.start("demo", "--orders", "7", "--speed", "4")
	p.await(p.stdout, "delivered  mail-7")
	p.await(p.stdout, "  demo-webhooks ") // in the first table, which is printed after all sends have returned
	p.signal(syscall.SIGINT)
	p.await(p.stderr, " messages waiting: later demo continues, later demo --fresh starts over")
	contains(t, p.await(p.stdout, "Of 16 messages"), " waiting, none lost; ")
	if exit := p.exit(); exit != 130 {
		t.Errorf("exit %d, want 130", exit)
	}
}

func TestDemoThatIsStoppedContinues(t *testing.T) {
	t.Parallel()
	c := newDiskCLI(t)
	stopDemo(t, c)
	contains(t, c.ok("queues"), "demo-book\ndemo-mail\ndemo-orders\n")
	r := c.run("demo", "--orders", "9")
	if r.exit != 0 {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	contains(t, r.stderr, "continues as it started, with --orders 7 --speed 4; use --fresh to start over")
	contains(t, r.stdout, "messages of a demo that was stopped after ", "delivered  order-7", "dead       webhook-1",
		"Of 16 messages sent: ", " none lost; ", "The demo was stopped once and continued.")
	if strings.Contains(r.stdout, "placed") || strings.Contains(r.stdout, "mail-1 ") {
		t.Errorf("completed steps were repeated:\n%s", r.stdout)
	}
	if n := checkSummary(t, r.stdout); n < 18 || n > 21 {
		t.Errorf("%d deliveries", n)
	}
	if got := c.ok("queues"); got != "" {
		t.Errorf("left: %s", got)
	}
}

func TestDemoThatIsFreshForgetsAStoppedOne(t *testing.T) {
	c := newDiskCLI(t)
	stopDemo(t, c)
	r := c.run("demo", "--fresh", "--orders", "2", "--speed", "50")
	if r.exit != 0 || strings.Contains(r.stdout, "Found") {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	contains(t, r.stdout, "Of 6 messages sent: ")
}

func TestDemoNoticesALostMessage(t *testing.T) {
	t.Parallel()
	c := newDiskCLI(t)
	stopDemo(t, c)
	c.ok("cancel", "demo-orders", "order-7") // nobody paid for it
	r := c.run("demo", "--json")
	contains(t, r.stderr, "1 messages are lost: order-7")
	all := objects(t, r.stdout)
	if last := all[len(all)-1]; r.exit != 1 || last["lost"] != 1.0 {
		t.Errorf("exit %d: %v", r.exit, last)
	}
}

// TestDemoThatIsKilledContinuesAndLosesNothing repeatedly kills a demo with SIGKILL after a random number of printed
// lines, and then lets it end. It checks what the runs printed, not the demo's own journal.
func TestDemoThatIsKilledContinuesAndLosesNothing(t *testing.T) {
	rounds := 4
	if os.Getenv("LATER_LONG") != "" {
		rounds = 100
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			killDemo(t, newDiskCLI(t))
		})
	}
}

func killDemo(t *testing.T, c *cli) {
	const orders, maxKills = 6, 4
	happened := map[string]bool{} // "placed order-1" and so on
	var summary map[string]any
	var kills []int
	for summary == nil {
		p := c.start("demo", "--orders", fmt.Sprint(orders), "--speed", "4", "--json")
		killAt := 1 + rand.IntN(20)
		if len(kills) == maxKills {
			killAt = 0
		}
		seen := 0
		for line := range p.rest(p.stdout) {
			var event map[string]any
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				t.Logf("cut by the kill: %q", line)
				continue
			}
			if event["event"] != nil {
				happened[fmt.Sprint(event["event"], " ", event["id"])] = true
			} else if event["sent"] != nil {
				summary = event
			}
			if seen++; seen == killAt {
				kills = append(kills, killAt)
				p.cmd.Process.Kill()
			}
		}
		if exit := p.exit(); exit != 0 && exit != exitBy(syscall.SIGKILL) {
			var said []string
			for line := range p.rest(p.stderr) {
				said = append(said, line)
			}
			t.Fatalf("killed at %v, exit %d: %s", kills, exit, strings.Join(said, "\n"))
		}
	}
	t.Logf("killed after %v lines: %v", kills, summary)
	for i := 1; i <= orders; i++ {
		order, mail := fmt.Sprintf("order-%d", i), fmt.Sprintf("mail-%d", i)
		// A kill can come between the end of a handler and its line. A payment that is "too late" found that the order
		// had cancelled itself.
		ended := happened["delivered "+order] || happened["paid "+order] || happened["too late "+order]
		if happened["placed "+order] && !ended {
			t.Errorf("%s was placed, but neither cancelled itself nor was paid", order)
		}
		if !happened["delivered "+mail] {
			t.Errorf("%s was never delivered", mail)
		}
	}
	if !happened["delivered reminder-1"] {
		t.Error("the reminder was never delivered")
	}
	if summary["sent"] != 2.0*orders+2 || summary["lost"] != 0.0 || summary["waiting"] != 0.0 ||
		summary["early"] != 0.0 || summary["dead"] != 1.0 {
		t.Errorf("the summary is %v", summary)
	}
	c.ok("demo", "--speed", "100", "--orders", "1") // finishes a demo killed after its summary, or runs a new one
	if got := c.ok("queues"); got != "" {
		t.Errorf("left: %s", got)
	}
}
