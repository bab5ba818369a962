//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/benchmark"
)

// small are the arguments of a quick run of later bench.
var small = []string{
	"bench", "--quick", "--messages", "2000", "--herd", "500", "--rate", "200", "--duration", "300ms",
	"--delay", "100ms",
}

// measured runs later bench --json and returns its objects by workload. It checks the objects of send itself.
func (c *cli) measured(args ...string) map[string]map[string]any {
	c.t.Helper()
	byName := map[string]map[string]any{}
	senders := ""
	for _, o := range objects(c.t, c.ok(append(append([]string{}, args...), "--json")...)) {
		name, _ := o["workload"].(string)
		byName[name] = o
		if name == "send" {
			senders += fmt.Sprint(o["senders"], "x", o["batch"], " ")
			n := o["sent"].(float64) // fewer than 500 on a slow disk
			if n < 1 || n > 500 || o["messages_per_second"].(float64) <= 0 {
				c.t.Errorf("sent %v", o)
			}
		}
	}
	if senders != "1x1 32x1 1000x1 4x1000 " {
		c.t.Errorf("sent by %s", senders)
	}
	return byName
}

// checkMeasured checks the figures that every store must report.
func checkMeasured(t *testing.T, got map[string]map[string]any) {
	t.Helper()
	for workload, want := range map[string]map[string]any{
		"": {"cpus": float64(runtime.GOMAXPROCS(0)), "size": 100.0},
		"drain": {"handlers": 32.0, "sent": 1000.0, "handled": 1000.0, "doubles": 0.0, "early": 0.0,
			"unfinished": 0.0},
		"lateness": {"rate": 200.0, "sent": 60.0, "handled": 60.0, "doubles": 0.0, "early": 0.0},
		"memory":   {"sent": 500.0},
		"herd":     {"sent": 500.0, "handled": 500.0, "doubles": 0.0, "early": 0.0, "unfinished": 0.0},
		"idle":     {},
	} {
		if got[workload] == nil {
			t.Errorf("%s was not measured", workload)
		}
		for name, value := range want {
			if got[workload][name] != value {
				t.Errorf("%s: %s is %v, want %v", workload, name, got[workload][name], value)
			}
		}
	}
}

func TestBenchMeasuresARedisAndLeavesOtherQueuesAlone(t *testing.T) {
	t.Setenv(runAsProgramEnv, "1") // the PING process is this test binary
	c := newCLI(t)
	c.ok("send", "orders", "x", "--in", "1h", "--id", "a")
	got := c.measured(small...)
	checkMeasured(t, got)
	for workload, figures := range map[string][]string{
		"": {"server"}, "drain": {"server_cpu_us", "client_cpus"}, "herd": {"worst_ping_ms"},
		"memory": {"bytes_above_payload"}, "idle": {"commands_per_second", "server_cpu_ms_per_second"},
		"lateness": {"p999_ms"},
	} {
		for _, name := range figures {
			mayBeZero := name == "server" || name == "commands_per_second" // an idle worker calls about once a second
			if n, ok := got[workload][name].(float64); !mayBeZero && (!ok || n == 0) ||
				got[workload][name] == nil {
				t.Errorf("%s has no %s: %v", workload, name, got[workload])
			}
		}
	}
	if got := c.ok("queues"); got != "orders\n" {
		t.Errorf("queues afterwards: %q", got)
	}
	contains(t, c.ok("get", "orders", "a"), "state           scheduled\n")
}

func TestBenchMeasuresTheEmbeddedStoreAndMemory(t *testing.T) {
	for name, url := range map[string]string{
		"URL": "file://" + filepath.Join(t.TempDir(), "store"), "directory": filepath.Join(t.TempDir(), "store"),
		"memory": "mem://",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &cli{t, url}
			got := c.measured(small...)
			checkMeasured(t, got)
			for workload, name := range map[string]string{
				"": "server", "drain": "server_cpu_us", "herd": "worst_ping_ms", "idle": "commands_per_second",
			} {
				if got[workload][name] != nil {
					t.Errorf("%s of %s is %v", name, workload, got[workload][name])
				}
			}
		})
	}
}

func TestBenchPrintsALinePerMeasurement(t *testing.T) {
	c := newCLI(t)
	got := c.ok(append(small, "--run", "send,drain,memory,lateness")...)
	contains(t, got, "Later on redis://", "100-byte payloads", "send, 1000 goroutines  ", " msg/s  ",
		"µs of server CPU each", "drain, 32 handlers", "lateness, 200 msg/s", " ms late p50  ",
		"bytes beyond the payload")
	if strings.Contains(got, "herd") || strings.Contains(got, "idle") {
		t.Errorf("measured what was not asked for:\n%s", got)
	}
}

func TestBenchStoppedHalfwayDeletesItsQueues(t *testing.T) {
	c := newCLI(t)
	p := c.start("bench", "--json", "--quick", "--run", "send,lateness", "--duration", "10m", "--rate", "1000")
	p.await(p.stdout, `"batch":1000`)
	p.signal(syscall.SIGINT)
	if exit := p.exit(); exit != 130 {
		t.Errorf("exit %d, want 130", exit)
	}
	if got := c.ok("queues"); got != "" {
		t.Errorf("left: %s", got)
	}
}

func TestBenchRefusesNumbersOutOfRange(t *testing.T) {
	c := newCLI(t)
	for _, bad := range []struct{ args, want string }{
		{"--run sent", `--run has "sent": use some of send, drain, lateness, idle, memory, herd`},
		{"--messages 0", "--messages is 0: must be 1 to 10000000"},
		{"--size 31", "--size is 31: must be 32 to"},
		{"--rate 0", "--rate is 0: must be 1 to 1000000"},
		{"--herd 0", "--herd is 0"},
		{"--handlers 100000", "--handlers is 100000: must be 1 to 10000"},
		{"--duration 2h", "--duration is 2h: must be 1ms to 1h"},
		{"--delay 0s", "--delay is 0s: must be 1ms to 1h"},
		{"--rate 1000000 --duration 1h", "is 3600000000 messages: the product must be 1 to 10000000"},
		{"extra", "usage: later bench"},
	} {
		contains(t, c.fails(2, append([]string{"bench"}, strings.Fields(bad.args)...)...), bad.want)
	}
	if got := c.ok("queues"); got != "" {
		t.Errorf("left: %s", got)
	}
}

func TestBenchNotesWhenThisMachineIsTheBottleneck(t *testing.T) {
	all := float64(runtime.GOMAXPROCS(0))
	values := func(client, server, ms float64) benchmark.Values {
		return benchmark.Values{benchmark.ClientCPUs: client, benchmark.ServerCPUs: server, benchmark.TookMS: ms}
	}
	for _, c := range []struct {
		cost benchmark.Values
		want bool
	}{
		{values(all, 0.5, 1000), true},
		{values(all, 1, 1000), false},                                                // both are
		{values(all/2, 0.5, 1000), false},                                            // neither is
		{benchmark.Values{benchmark.ClientCPUs: all, benchmark.TookMS: 1000}, false}, // no server
		{values(all, 0, 1), false},                                                   // too short
	} {
		var stderr bytes.Buffer
		b := &bench{main: &Main{Stderr: &stderr}}
		b.warn("drain", c.cost)
		if got := strings.Contains(stderr.String(), "this machine was the bottleneck"); got != c.want {
			t.Errorf("%+v: %q", c.cost, stderr.String())
		}
	}
}

func TestQueueThatBenchCannotDeleteIsNamed(t *testing.T) {
	c := newCLI(t)
	client := c.client()
	b := &bench{main: &Main{Stderr: new(bytes.Buffer)}, client: client}
	err := b.withNewQueue(context.Background(), "send", func(q benchmark.Queue) error { return client.Close() })
	if err == nil || !strings.Contains(err.Error(), "remove it with later delete bench-send-") ||
		later.CodeOf(err) != later.CodeOf(later.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
