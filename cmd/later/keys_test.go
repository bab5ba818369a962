package main

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
)

func TestKeysTakeTurnsAndHaveLimits(t *testing.T) {
	c := newCLI(t)
	if got := c.ok("flow", "q", "--fair"); got != "keys of q take turns (0 waiting, 0 full, 0 resting)\n" {
		t.Errorf("got %q", got)
	}
	contains(t, c.ok("keys", "q"), "q has no keys that wait\n")
	contains(t, c.ok("flow", "q", "--key-concurrency", "1", "--concurrency", "5"),
		"q is limited to 5 messages in flight (0 now); its keys take turns, each limited to 1 message in flight (0 waiting")
	for i := range 3 {
		c.ok("send", "q", "x", "--id", "a"+strconv.Itoa(i), "--key", "a")
	}
	c.ok("send", "q", "x", "--id", "b", "--key", "b")
	contains(t, c.ok("keys", "q"), "q has no keys that wait: no worker has looked yet at its 4 messages that are due\n")
	q := c.client().Queue("q")
	got, err := q.Receive(t.Context(), 4)
	if err != nil || len(got) != 2 || got[0].Key+got[1].Key != "ab" {
		t.Fatalf("received %v, %v; want one of each key", got, err)
	}
	keys := strings.Fields(strings.Split(c.ok("keys", "q"), "\n")[1])
	if len(keys) < 6 || keys[0] != "a" || keys[1] != "2" {
		t.Errorf("keys are %q", keys)
	}
	contains(t, c.ok("keys", "q"), "full", "1 message in flight (1 now)")

	contains(t, c.ok("keys", "q", "a", "--concurrency", "2", "--weight", "3"),
		"turn", "2 messages in flight (1 now) and weight 3 (its own)")
	contains(t, c.ok("keys", "q", "a", "--rate", "1/1h"), "2 messages in flight (1 now) and 1/1h (the next start now)")
	contains(t, c.ok("keys", "q", "a", "--burst", "2"), "1/1h burst 2")
	contains(t, c.ok("keys", "q", "new"), "new        0  -", "1 message in flight (0 now)")
	contains(t, c.ok("keys", "q", "--overridden"), "a ")
	shown := object(t, c.ok("keys", "q", "a", "--json"))
	if override, _ := shown["override"].(map[string]any); override["weight"] != 3.0 || shown["queue"] != "q" ||
		shown["reason"] != "turn" {
		t.Errorf("a is %v", shown)
	}
	c.ok("keys", "q", "a", "--inherit")
	contains(t, c.ok("keys", "q", "--overridden"), "q has no keys with limits of their own\n")
	contains(t, c.ok("flow", "q", "--fair=false"), "q is limited to 5 messages in flight (2 now)\n")
	state, err := q.Flow(t.Context())
	if want := (later.Flow{Concurrency: 5}); err != nil || state.Flow != want {
		t.Errorf("flow is %+v, %v", state.Flow, err)
	}
	if got, err := q.Receive(t.Context(), 4); err != nil || len(got) != 2 {
		t.Errorf("received %d, %v, without limits of keys", len(got), err)
	}
}

func TestKeysRefusesBadInput(t *testing.T) {
	c := newCLI(t)
	c.ok("flow", "plain", "--concurrency", "3")
	c.ok("flow", "fair", "--key-rate", "10/1s")
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"unknown"}, 11, `no queue "unknown"`},
		{[]string{"plain"}, 2, "later flow plain --fair lets them"},
		{[]string{"fair", "--weight", "2"}, 2, "without a key"},
		{[]string{"fair", "a", "--overridden"}, 2, "both given"},
		{[]string{"fair", "a", "--inherit", "--weight", "2"}, 2, "--inherit and --weight are both given"},
		{[]string{"fair", "a/b", "--weight", "2"}, 2, "key"},
		{[]string{"fair", strings.Repeat("x", 65), "--weight", "2"}, 2, "key is 65 bytes long"},
		{[]string{"fair", "a", "--weight", "0"}, 2, "weight is 0: must be 1 to 1000"},
		{[]string{"fair", "a", "--weight", "1001"}, 2, "weight is 1001"},
		{[]string{"fair", "a", "--concurrency", "-1"}, 2, "concurrency of a key is -1"},
		{[]string{"fair", "a", "--rate", "10"}, 2, "must be a number of messages and a duration"},
	} {
		contains(t, c.fails(test.code, append([]string{"keys"}, test.args...)...), test.want)
	}
	c.ok("flow", "no-rate", "--fair")
	contains(t, c.fails(2, "keys", "no-rate", "a", "--burst", "3"), "--burst is for a rate")
	contains(t, c.fails(2, "flow", "fair", "--key-rate", "0", "--key-burst", "3"), "--key-burst is for a rate")
}

func TestKeysWithAnOrderAreHaltedAndResumed(t *testing.T) {
	c := newCLI(t)
	contains(t, c.ok("flow", "q", "--order", "halt"),
		"keys of q take turns, each in order until a message of it is dead (0 waiting, 0 full, 0 resting, 0 halted)\n")
	contains(t, c.ok("keys", "q", "--halted"), "q has no keys that are halted\n")
	for _, id := range []string{"a1", "a2", "b1"} {
		c.ok("send", "q", "x", "--id", id, "--key", id[:1])
	}
	q := c.client().Queue("q")
	got, err := q.Receive(t.Context(), 4)
	if err != nil || len(got) != 2 || got[0].ID+got[1].ID != "a1b1" {
		t.Fatalf("received %v, %v; want the first message of each key", got, err)
	}
	if err := got[1].Nack(t.Context(), time.Hour, errors.New("later")); err != nil {
		t.Fatal(err)
	}
	contains(t, c.ok("keys", "q", "b"), "b          0", "in order")
	if err := got[0].Bury(t.Context(), errors.New("bad")); err != nil {
		t.Fatal(err)
	}
	contains(t, c.ok("keys", "q", "--halted"), "a ", "halted by a1")
	contains(t, c.ok("flow", "q"), "1 halted)\n")
	contains(t, c.ok("get", "q", "a1"), "it halts its key a")
	shown := object(t, c.ok("keys", "q", "a", "--json"))
	if shown["reason"] != "halted" || shown["holder"] != "a1" || shown["halted"] != true || shown["order"] != "halt" {
		t.Errorf("a is %v", shown)
	}
	contains(t, c.ok("dead", "purge", "q", "a1"), "purged 1; key a goes on\n")
	got, err = q.Receive(t.Context(), 4)
	if err != nil || len(got) != 1 || got[0].ID != "a2" {
		t.Fatalf("received %v, %v after the purge", got, err)
	}
	if err := got[0].Bury(t.Context(), errors.New("bad")); err != nil {
		t.Fatal(err)
	}
	c.ok("keys", "q", "a", "--resume")
	contains(t, c.ok("keys", "q", "--halted"), "q has no keys that are halted\n")
	contains(t, c.fails(11, "keys", "q", "a", "--resume"), `key "a" of queue "q" is not halted`)
	contains(t, c.ok("flow", "q", "--order", "continue"), "each in order (")
	contains(t, c.ok("flow", "q", "--order", "none"), "keys of q take turns (")
}

func TestOrdersOfKeysAreChecked(t *testing.T) {
	c := newCLI(t)
	c.ok("flow", "q", "--order", "continue")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"flow", "q", "--order", "sorted"}, `--order is "sorted": must be continue, halt or none`},
		{[]string{"flow", "q", "--key-concurrency", "2"}, "concurrency of a key is 2: must be 1 or 0"},
		{[]string{"flow", "q", "--drain"}, "--drain waits after a change of limits: give a limit, too"},
		{[]string{"keys", "q", "--resume"}, "--resume is given without a key"},
		{[]string{"keys", "q", "a", "--halted"}, "--halted and a key are both given"},
		{[]string{"keys", "q", "--overridden", "--halted"}, "--overridden and --halted are both given"},
		{[]string{"keys", "q", "a", "--resume", "--weight", "2"}, "--resume and --weight are both given"},
		{[]string{"keys", "q", "a", "--concurrency", "2"}, "concurrency of a key is 2: must be 1 or left out"},
	} {
		contains(t, c.fails(2, test.args...), test.want)
	}
}

// With --drain the command ends when the messages in flight at the change are done.
func TestFlowDrains(t *testing.T) {
	c := newCLI(t)
	q := c.client().Queue("q")
	c.ok("send", "q", "x", "--id", "a")
	got, err := q.Receive(t.Context(), 1)
	if err != nil || len(got) != 1 {
		t.Fatalf("received %v, %v", got, err)
	}
	done := make(chan string)
	go func() { done <- c.ok("flow", "q", "--concurrency", "3", "--drain") }()
	for state := (later.FlowState{}); state.Concurrency != 3; {
		if state, err = q.Flow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case text := <-done:
		t.Fatalf("the command ended with %q while a message was in flight", text)
	default:
	}
	if err := got[0].Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	contains(t, <-done, "q is limited to 3 messages in flight (0 now)\n")
}
