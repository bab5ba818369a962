//go:build unix

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/server"
)

// awaitWorkers waits until there are n live workers, and returns their JSON.
func (c *cli) awaitWorkers(n int) []map[string]any {
	c.t.Helper()
	return c.awaitWorkersWith(n, func(map[string]any) bool { return true })
}

// awaitWorkersWith waits until there are n live workers that are all as described. One that is too busy to answer is
// shown as of its last heartbeat.
func (c *cli) awaitWorkersWith(n int, like func(w map[string]any) bool) []map[string]any {
	c.t.Helper()
	for begin := time.Now(); ; {
		all := objects(c.t, c.ok("workers", "--json"))
		if len(all) == n && !slices.ContainsFunc(all, func(w map[string]any) bool { return !like(w) }) {
			return all
		}
		if time.Since(begin) > eventTimeout {
			c.t.Fatalf("%d workers are live after %v; want %d: %v", len(all), eventTimeout, n, all)
		}
	}
}

func TestWorkersShowsWhatEachHolds(t *testing.T) {
	c := newCLI(t)
	r := c.run("workers")
	if r.exit != 0 || r.stdout != "" {
		t.Errorf("got %+v", r)
	}
	contains(t, r.stderr, "no worker is live in redis://")
	contains(t, c.fails(11, "workers", "x"), `no worker "x": no worker is live`)

	c.ok("send", "q", "x", "--id", "a")
	p := c.start("work", "q", "--name", "one", "--concurrency", "7", "--exec", "echo started; sleep 300")
	p.await(p.stdout, "started")
	w := c.awaitWorkersWith(1, func(w map[string]any) bool { return w["held_count"] == 1.0 })[0]
	if w["name"] != "one" || w["pid"] != float64(p.cmd.Process.Pid) || w["state"] != "running" ||
		w["concurrency"] != 7.0 || w["held_count"] != 1.0 || w["queue_count"] != 1.0 || w["queues"].([]any)[0] != "q" {
		t.Errorf("got %v", w)
	}
	held := w["held"].([]any)[0].(map[string]any)
	if held["id"] != "a" || held["queue"] != "q" || held["attempt"] != 1.0 ||
		!strings.HasSuffix(held["held_for"].(string), "s") {
		t.Errorf("got %v", held)
	}
	contains(t, c.ok("workers"), "NAME", "HELD", "LONGEST", "one", "running", "q")
	contains(t, c.ok("workers", "one"), "handlers    1 of 7 run", "QUEUE  ID  ATTEMPT  HELD FOR\nq      a         1")
	contains(t, c.fails(11, "workers", "two"), `no worker "two"; live workers: one`)
	if got := c.ok("queues"); got != "q\n" {
		t.Errorf("later queues prints %q", got)
	}
	if got := c.ok("__complete", "workers", "pause", ""); !strings.HasPrefix(got, "one\n:") {
		t.Errorf("completion: %q", got)
	}
}

func TestWorkersShowsHowManyMessagesAreForwarded(t *testing.T) {
	w := later.WorkerInfo{Name: "one", Forwarding: 12, Forwards: []later.Forwarded{{Queue: "q", To: "list:l"}}}
	contains(t, describeWorker(w), "forwarding  12 messages", "forwards    q to list:l")
	w.GivenBack = []later.GivenBack{{Queue: "q", Kind: "k", Error: `kind "k" has no handler`, Messages: 3}}
	contains(t, describeWorker(w), `gives back  3 messages of q: kind "k" has no handler`)
	if got := view.Worker(w).GivenBack; len(got) != 1 || got[0].Messages != 3 {
		t.Errorf("given back in JSON is %v", got)
	}
	if got := view.Worker(w).Forwarding; got != 12 {
		t.Errorf("JSON has %d", got)
	}
}

func TestWorkersPauseResumeAndDrainReachOtherProcesses(t *testing.T) {
	c := newCLI(t)
	a, b := c.start("work", "q", "--name", "a"), c.start("forward", "f", "--to", "queue:q", "--name", "b")
	c.awaitWorkers(2)
	if got := c.ok("workers", "pause", "--all"); got != "paused a\npaused b\n" && got != "paused b\npaused a\n" {
		t.Errorf("pause prints %q", got)
	}
	left := c.sendWhilePaused("q")
	got := object(t, c.ok("workers", "resume", "a", "--json"))
	if got["name"] != "a" || got["command"] != "resume" || got["done"] != true {
		t.Errorf("resume prints %v", got)
	}
	a.await(a.stdout, left)
	for _, w := range c.awaitWorkers(2) {
		if want := map[any]string{"a": "running", "b": "paused"}[w["name"]]; w["state"] != want {
			t.Errorf("%s is %s, want %s", w["name"], w["state"], want)
		}
	}
	contains(t, c.fails(11, "workers", "drain", "a", "c"), `no worker "c"; live workers: a, b`)
	if got := c.ok("workers", "drain", "b"); got != "drained b\n" {
		t.Errorf("drain prints %q", got)
	}
	b.await(b.stderr, "draining")
	b.await(b.stderr, "drained")
	if exit := b.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
	r := c.runWith(t.Context(), "no\n", "workers", "drain")
	if r.exit != 2 {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	contains(t, r.stderr, "Drain the one live worker? [y/N]", "nothing was done")
	if r := c.runWith(t.Context(), "y\n", "workers", "drain"); r.exit != 0 || r.stdout != "drained a\n" {
		t.Errorf("got %+v", r)
	}
	if exit := a.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
	contains(t, c.run("workers", "drain", "--all").stderr, "no worker is live")
}

func TestWorkersDrainFailsAndNamesThoseThatTakeTooLong(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x")
	slow := c.start("work", "q", "--name", "slow", "--exec", "echo started; sleep 300")
	slow.await(slow.stdout, "started")
	fast := c.start("work", "q", "--name", "fast")
	c.awaitWorkers(2)
	r := c.run("workers", "drain", "--all", "--wait", "6s")
	if r.exit != 18 || r.stdout != "drained fast\n" {
		t.Errorf("got %+v", r)
	}
	contains(t, r.stderr, "later: not drained within 6s: slow\n")
	if exit := fast.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
	if w := c.awaitWorkers(1)[0]; w["state"] != "draining" {
		t.Errorf("the slow worker is %v", w)
	}
	contains(t, c.fails(1, "workers", "restart", "slow"), "later: worker slow: refused: it is draining to end\n")
	if got := c.ok("workers", "drain", "slow", "--wait", "0"); got != "told slow\n" {
		t.Errorf("drain prints %q", got)
	}
}

func TestWorkersRestartIsRefusedWithoutAProgram(t *testing.T) {
	c := newCLI(t)
	link := filepath.Join(t.TempDir(), "later")
	if err := os.Symlink(os.Args[0], link); err != nil {
		t.Fatal(err)
	}
	p := c.startAs(link, nil, "work", "q", "--name", "a")
	c.awaitWorkers(1)
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	contains(t, c.fails(1, "workers", "restart", "a", "--one-at-a-time"), "worker a: refused: ", "no such file")
	c.ok("send", "q", "it works on")
	p.await(p.stdout, "it works on")

	if err := os.WriteFile(link, []byte("no program"), 0o700); err != nil { // fails only when it is executed
		t.Fatal(err)
	}
	contains(t, c.fails(18, "workers", "restart", "a", "--wait", "2s"), "not restarted within 2s: a")
	p.await(p.stderr, "cannot restart, continuing")
	c.ok("send", "q", "and on")
	p.await(p.stdout, "and on")
}

// TestWorkersRestartReplacesAFleetWhileMessagesFlow restarts three processes, twice: all at once, and one at a time.
func TestWorkersRestartReplacesAFleetWhileMessagesFlow(t *testing.T) {
	c := newCLI(t)
	fleet := make([]*process, 3)
	var mu sync.Mutex
	handled := map[string]int{}
	var reading sync.WaitGroup
	for i := range fleet {
		p := c.start("work", "q", "--concurrency", "3", "--exec", "read id; sleep 0.0$((RANDOM%10)); echo handled $id")
		fleet[i] = p
		reading.Go(func() {
			for line := range p.stdout {
				id, _ := strings.CutPrefix(line, "handled ")
				mu.Lock()
				handled[id]++
				mu.Unlock()
			}
		})
	}
	before := c.awaitWorkers(3)

	flowing, stop := context.WithCancel(t.Context())
	var sent []string
	sending := make(chan struct{})
	q := c.client().Queue("q")
	go func() {
		defer close(sending)
		for i := 0; flowing.Err() == nil; i++ {
			id := fmt.Sprint("m", i)
			if _, err := q.Send(t.Context(), []byte(id+"\n"), later.WithID(id),
				later.In(20*time.Millisecond)); err != nil {
				t.Errorf("send: %v", err)
				return
			}
			sent = append(sent, id)
			select {
			case <-time.After(5 * time.Millisecond):
			case <-flowing.Done():
			}
		}
	}()
	for _, args := range [][]string{{"--all"}, {"--all", "--one-at-a-time"}} {
		out := c.ok(append([]string{"workers", "restart"}, args...)...)
		if strings.Count(out, "restarted ") != 3 {
			t.Errorf("restart %q prints:\n%s", args, out)
		}
		after := c.awaitWorkers(3)
		if !slices.Equal(values(before, "pid"), values(after, "pid")) {
			t.Errorf("the processes were %v and are %v", values(before, "pid"), values(after, "pid"))
		}
		for _, process := range values(after, "process") {
			if slices.Contains(values(before, "process"), process) {
				t.Errorf("process %s was not executed again", process)
			}
		}
		before = after
	}
	stop()
	<-sending
	for begin := time.Now(); time.Since(begin) < eventTimeout; {
		got := object(t, c.ok("stats", "q", "--json"))
		if got["scheduled"] == 0.0 && got["ready"] == 0.0 && got["leased"] == 0.0 {
			break
		}
	}
	c.ok("workers", "drain", "--all")
	for _, p := range fleet {
		if exit := p.exit(); exit != 0 {
			t.Errorf("exit %d", exit)
		}
	}
	reading.Wait()
	lost, twice := 0, 0
	for _, id := range sent {
		switch handled[id] {
		case 0:
			lost++
		case 1:
		default:
			twice++
		}
	}
	t.Logf("%d messages during two restarts of three processes", len(sent))
	if len(sent) == 0 || lost > 0 || twice > 0 {
		t.Errorf("of %d messages %d were lost and %d handled twice", len(sent), lost, twice)
	}
}

// values returns the values of a field, sorted.
func values(all []map[string]any, field string) (found []string) {
	for _, w := range all {
		found = append(found, fmt.Sprint(w[field]))
	}
	slices.Sort(found)
	return found
}

func TestCtrlCDuringARestartByCommandEndsInstead(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x")
	gate, open := newGate(t)
	p := c.start("work", "q", "--name", "a", "--exec", "echo started; read go < "+gate)
	p.await(p.stdout, "started")
	c.awaitWorkers(1)
	if got := c.ok("workers", "restart", "a", "--wait", "0"); got != "told a\n" {
		t.Errorf("restart prints %q", got)
	}
	p.await(p.stderr, "draining to restart")
	p.signal(syscall.SIGINT)
	p.await(p.stderr, "draining to end instead")
	open()
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
	for line := range p.rest(p.stderr) {
		if strings.Contains(line, "working on") {
			t.Errorf("the process restarted: %s", line)
		}
	}
}

// TestWorkerOverHTTPHasRestartedWhenItStartedAgain is about a worker over HTTP: its id is made of its token and name,
// so it stays the same after a restart.
func TestWorkerOverHTTPHasRestartedWhenItStartedAgain(t *testing.T) {
	before := later.WorkerInfo{ID: "http-w", Process: "http-w", Name: "w", Started: time.Now()}
	k := &controller{do: later.CommandRestart, before: []later.WorkerInfo{before}}
	draining, again := before, before
	draining.State, again.State = later.WorkerDraining, later.WorkerRunning
	again.Started = before.Started.Add(time.Second)
	for _, test := range []struct {
		now  []later.WorkerInfo
		want bool
	}{{[]later.WorkerInfo{draining}, false}, {nil, false}, {[]later.WorkerInfo{again}, true}} {
		if got := k.obeyed(before, test.now); got != test.want {
			t.Errorf("%+v has restarted: %v", test.now, got)
		}
	}
}

// Clients that receive over HTTP without a name are listed, without handlers, and take no commands.
func TestClientsWithoutANameTakeNoCommands(t *testing.T) {
	c := newCLI(t)
	api, err := server.New(c.client(), server.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	c.ok("send", "mail", "x")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/queues/mail/receive", strings.NewReader(`{}`))
	r.Header.Set("Content-Type", "application/json")
	reply := httptest.NewRecorder()
	if api.ServeHTTP(reply, r); reply.Code != http.StatusOK {
		t.Fatalf("%d %s", reply.Code, reply.Body)
	}
	name := c.awaitWorkers(1)[0]["name"].(string)
	if got := strings.Fields(c.ok("workers")); !slices.Contains(got, "-") || !slices.Contains(got, "mail") {
		t.Errorf("got %q", got)
	}
	if got := c.ok("workers", name); strings.Contains(got, "handlers") {
		t.Errorf("got %s", got)
	}
	contains(t, c.run("workers", "pause", "--all").stderr, "they take no commands")
	if r := c.run("workers", "pause", name); r.exit == 0 || !strings.Contains(r.stderr, "give the field worker") {
		t.Errorf("got %+v", r)
	}
}

func TestWorkersControlUsage(t *testing.T) {
	c := newCLI(t)
	contains(t, c.fails(2, "workers", "drain", "a", "--all"), "--all and a NAME are both given")
	contains(t, c.fails(2, "workers", "restart", "--one-at-a-time", "--wait", "0"), "leave out --wait 0")
	contains(t, c.fails(2, "workers", "pause", "--one-at-a-time"), "unknown flag: --one-at-a-time")
}
