package main

import (
	"strconv"
	"testing"
	"time"

	"github.com/laterq/later"
)

func TestFlowLimitsAQueue(t *testing.T) {
	c := newCLI(t)
	if got := c.ok("flow", "q", "--rate", "10/1s", "--burst", "3"); got !=
		"q is limited to 10/1s burst 3 (the next start now)\n" {
		t.Errorf("got %q", got)
	}
	// Each flag changes one limit and keeps the others.
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"--concurrency", "20"}, "20 messages in flight (0 now) and 10/1s burst 3 (the next start now)"},
		{[]string{"--rate", "5/1d"}, "20 messages in flight (0 now) and 5/24h burst 3 (the next start now)"},
		{[]string{"--burst", "0"}, "20 messages in flight (0 now) and 5/24h (the next start now)"},
		{[]string{"--concurrency", "0"}, "5/24h (the next start now)"},
		{[]string{"--rate", "0", "--concurrency", "1"}, "1 message in flight (0 now)"},
	} {
		if got := c.ok(append([]string{"flow", "q"}, step.args...)...); got != "q is limited to "+step.want+"\n" {
			t.Errorf("%v: got %q, want the limits %q", step.args, got, step.want)
		}
	}

	q := c.client().Queue("q")
	for _, id := range []string{"a", "b"} {
		c.ok("send", "q", "x", "--id", id)
	}
	if got, err := q.Receive(t.Context(), 2); err != nil || len(got) != 1 {
		t.Fatalf("received %d, %v", len(got), err)
	}
	contains(t, c.ok("flow", "q"), "q is limited to 1 message in flight (1 now)\n")
	for _, args := range [][]string{{"flow", "q", "--json"}, {"stats", "q", "--json"}} {
		flow, _ := object(t, c.ok(args...))["flow"].(map[string]any)
		if flow["concurrency"] != 1.0 || flow["leased"] != 1.0 || flow["rate"] != nil {
			t.Errorf("%v: flow is %v", args, flow)
		}
	}
	if got := c.ok("flow", "q", "--none"); got != "q has no limits\n" {
		t.Errorf("got %q", got)
	}
	if state, err := q.Flow(t.Context()); err != nil || state.Flow != (later.Flow{}) {
		t.Errorf("flow is %+v, %v", state, err)
	}
}

func TestFlowLetsMessagesBeUrgent(t *testing.T) {
	c := newCLI(t)
	contains(t, c.fails(2, "send", "q", "x", "--urgency", "high"),
		`urgency is "high", and messages of queue "q" have none`)
	want := "keys of q take turns by urgency (0 waiting, 0 full, 0 resting)\n"
	if got := c.ok("flow", "q", "--urgency"); got != want {
		t.Errorf("got %q", got)
	}
	c.ok("send", "q", "x", "--urgency", "high", "--id", "a")
	if got := object(t, c.ok("get", "q", "a", "--json"))["urgency"]; got != "high" {
		t.Errorf("the urgency is %v", got)
	}
	contains(t, c.fails(2, "send", "q", "x", "--urgency", "urgent"),
		`invalid argument "urgent" for "--urgency" flag: must be one of high, low`)
	c.ok("flow", "q", "--concurrency", "2", "--urgency=false")
	state, err := c.client().Queue("q").Flow(t.Context())
	if want := (later.Flow{Concurrency: 2, Fair: true}); err != nil || state.Flow != want.Normal() {
		t.Errorf("flow is %+v, %v", state.Flow, err)
	}
	c.ok("flow", "q", "--urgency")
	c.ok("flow", "q", "--fair=false")
	state, err = c.client().Queue("q").Flow(t.Context())
	if want := (later.Flow{Concurrency: 2}); err != nil || state.Flow != want {
		t.Errorf("flow is %+v, %v", state.Flow, err)
	}
}

func TestFlowRefusesBadLimits(t *testing.T) {
	c := newCLI(t)
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"q", "--rate", "10"}, 2, "must be a number of messages and a duration, such as 10/1s"},
		{[]string{"q", "--rate", "x/1s"}, 2, "must be a number of messages above 0"},
		{[]string{"q", "--rate", "10/soon"}, 2, "duration"},
		{[]string{"q", "--rate", "0/1s"}, 2, "--rate 0 removes the limit"},
		{[]string{"q", "--rate", "1000001/1h"}, 2, "rate is 1000001 messages"},
		{[]string{"q", "--rate", "10/9us"}, 2, "period of the rate is 9µs"},
		{[]string{"q", "--rate", "10/1s", "--burst", "-1"}, 2, "burst of the rate is -1"},
		{[]string{"q", "--burst", "3"}, 2, "--burst is for a rate"},
		{[]string{"q", "--concurrency", "-1"}, 2, "concurrency is -1: must be 1 to 1000000"},
		{[]string{"q", "--none", "--concurrency", "3"}, 2, "both given"},
		{[]string{"topic:orders", "--concurrency", "3"}, 2, "one of Later's own"},
		{[]string{"unknown"}, 11, `no queue "unknown"`},
	} {
		contains(t, c.fails(test.code, append([]string{"flow"}, test.args...)...), test.want)
	}
	if names, err := c.client().Queues(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("refused limits created %v, %v", names, err)
	}
}

// Commands that change different limits at the same time do not undo each other.
func TestFlowKeepsConcurrentChanges(t *testing.T) {
	c := newCLI(t)
	for i := range 5 {
		n := strconv.Itoa(i + 1)
		results := make(chan result)
		for _, args := range [][]string{{"--concurrency", n}, {"--rate", n + "/1s"}} {
			go func() { results <- c.run(append([]string{"flow", "q"}, args...)...) }()
		}
		for range 2 {
			if r := <-results; r.exit != 0 {
				t.Fatalf("exit %d: %s", r.exit, r.stderr)
			}
		}
		want := later.Flow{Concurrency: i + 1, Rate: later.Rate{N: i + 1, Per: time.Second, Burst: 1}}
		if state, err := c.client().Queue("q").Flow(t.Context()); err != nil || state.Flow != want {
			t.Fatalf("limits %+v, %v, want %+v", state.Flow, err, want)
		}
	}
}
