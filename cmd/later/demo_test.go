//go:build unix

package main

import (
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/laterq/later/internal/redistest"
)

var summaryLine = regexp.MustCompile(
	`^sent=\d+ delivered=(\d+) early=0 lost=0 lateness p50=\d+\.\dms p99=\d+\.\dms max=\d+\.\dms$`)

// checkSummary checks the last line and returns the number of deliveries.
func checkSummary(t *testing.T, output string) int {
	t.Helper()
	all := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	match := summaryLine.FindStringSubmatch(all[len(all)-1])
	if match == nil {
		t.Fatalf("no summary at the end of:\n%s", output)
	}
	n, _ := strconv.Atoi(match[1])
	return n
}

func checkDemo(t *testing.T, r result) {
	t.Helper()
	if r.exit != 0 || r.stderr != "" {
		t.Fatalf("exit %d: %s", r.exit, r.stderr)
	}
	contains(t, r.stdout,
		"placed     order-6", "delivered  mail-6", "delivered  order-3",
		"failed     reminder-1   the mail server is busy (attempt 2 of 20)",
		"delivered  reminder-1   done (attempt 3 of 20)",
		"failed     webhook-6    partner.example returns 503 (attempt 3 of 3)",
		"dead       webhook-6    dead after attempt 3",
		"NEXT DUE", "ms late", "Of 19 messages sent and 0 found: ", " 1 dead, 0 waiting, 0 lost.")
	// If the machine stalls, the customer who asks for more time and the 2 payments may come too late.
	if !strings.Contains(r.stdout, "moved      order-3") && !strings.Contains(r.stdout, "too late   order-3") {
		t.Errorf("order 3 is neither moved nor too late in:\n%s", r.stdout)
	}
	// 6 mails, 4 unpaid orders, 3 attempts of the reminder, 5 webhooks and 3 attempts of another.
	if n := checkSummary(t, r.stdout); n < 21 || n > 23 {
		t.Errorf("%d deliveries", n)
	}
}

func TestDemoRunsInMemory(t *testing.T) {
	t.Parallel()
	checkDemo(t, runMain(t.Context(), nil, "", "demo", "--speed", "5", "--orders", "6", "--store", "mem://"))
}

func TestDemoRunsOnRedisAndDeletesItsQueues(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	checkDemo(t, c.run("demo", "--speed", "5", "--orders", "6"))
	if got := c.ok("queues"); got != "" {
		t.Errorf("left: %s", got)
	}
}

func TestDemoPrintsItsSummaryAsJSON(t *testing.T) {
	r := runMain(t.Context(), nil, "", "demo", "--speed", "20", "--orders", "1", "--json", "--store", "mem://")
	all := objects(t, r.stdout)
	last := all[len(all)-1]
	if r.exit != 0 || last["delivered"].(float64) < 6 || last["early"] != 0.0 || last["sent"] != 4.0 ||
		last["lost"] != 0.0 || last["lateness_max"] == nil {
		t.Errorf("exit %d: %v", r.exit, last)
	}
}

func TestDemoStoppedHalfwayStillCountsAndCleans(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	p := c.start("demo")
	p.await(p.stdout, "delivered  mail-1")
	p.signal(syscall.SIGINT)
	contains(t, p.await(p.stdout, " waiting, "), " 0 lost.")
	if n := checkSummary(t, p.await(p.stdout, "delivered=")); n < 1 || n > 24 {
		t.Errorf("%d deliveries", n)
	}
	if exit := p.exit(); exit != 130 {
		t.Errorf("exit %d, want 130", exit)
	}
	if got := c.ok("queues"); got != "" {
		t.Errorf("left: %s", got)
	}
}

func TestDemoThatFailsPrintsErrorsAndNoSummary(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	may := []any{"ACL", "SETUSER", "guest", "on", ">pw", "allkeys", "allchannels", "+info", "+config|get",
		"+client", "+hello", "+ping", "+publish"}
	if err := rdb.Do(t.Context(), may...).Err(); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(server.URL(), "redis://", "redis://guest:pw@", 1)
	r := runMain(t.Context(), nil, "", "demo", "--store", url)
	if r.exit != 22 || r.stdout != "" {
		t.Errorf("exit %d: %s", r.exit, r.stdout)
	}
	for line := range strings.Lines(r.stderr) {
		contains(t, line, "later: ", "NOPERM")
	}
}
