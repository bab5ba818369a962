package main

import (
	"strconv"
	"strings"
	"testing"

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
