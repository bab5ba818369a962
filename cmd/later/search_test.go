package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// found returns the ids that later search prints, and its notes.
func (c *cli) found(args ...string) (ids []string, notes string) {
	c.t.Helper()
	r := c.run(append([]string{"search", "q", "--json"}, args...)...)
	if r.exit != 0 {
		c.t.Fatalf("%q: exit %d: %s", args, r.exit, r.stderr)
	}
	for _, info := range objects(c.t, r.stdout) {
		ids = append(ids, info["id"].(string))
	}
	return ids, r.stderr
}

func TestSearchPrintsTheMessagesThatMeetAllConditions(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", `{"total": 12, "name": "Anna"}`, "--id", "a", "--header", "kind=order", "--header", "region=eu")
	c.ok("send", "q", `{"total": 120, "name": "Bo"}`, "--id", "b", "--in", "1h", "--header", "kind=order")
	c.ok("send", "q", `{"total": 9}`, "--id", "c-9", "--in", "3h", "--group", "g")
	q := c.client().Queue("q")
	if _, err := q.Send(t.Context(), []byte("plain"), later.WithID("d"), later.MaxAttempts(2)); err != nil {
		t.Fatal(err)
	}
	held, err := q.Receive(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range held {
		if d.ID == "d" {
			if err := d.Bury(t.Context(), errors.New("disk 7 is full")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct{ args, want string }{
		{"", "a b c-9 d"}, // leased, scheduled, dead
		{"--state scheduled", "b c-9"},
		{"--state dead", "d"},
		{"--group g", "c-9"},
		{"--group g --id b", ""},
		{"--id 9", "c-9"},
		{"--payload plain", "d"},
		{"--payload-json total>=12", "a b"},
		{"--payload-json name~nn", "a"},
		{"--header kind=order", "a b"},
		{"--header kind=order --header region=eu", "a"},
		{"--header kind=order --payload-json total>12", "b"},
		{"--error full", "d"},
		{"--error-pattern disk_#_is_full", "d"},
		{"--error-pattern disk", ""},
		{"--min-attempts 1", "d"},
		{"--max-attempts 1 --payload plain", "d"},
		{"--state scheduled --from 2100-01-01T00:00:00Z", ""},
		{"--state scheduled --to 2100-01-01T00:00:00Z --id b", "b"},
	} {
		args := strings.Fields(test.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ")
		}
		if ids, _ := c.found(args...); strings.Join(ids, " ") != test.want {
			t.Errorf("%s: found %q, want %q", test.args, ids, test.want)
		}
	}
	contains(t, c.ok("search", "q", "--state", "scheduled"), "ID ", "STATE", "b ", "c-9 ")
	if r := c.run("search", "q", "--payload", "nothing"); r.exit != 0 || r.stdout != "" {
		t.Errorf("exit %d: %s", r.exit, r.stdout)
	} else {
		contains(t, r.stderr, `no matching messages in queue "q"`)
	}
	contains(t, c.fails(11, "search", "other"), `no queue "other"`)
}

func TestSearchIsBoundedByLimitAndLook(t *testing.T) {
	c := newCLI(t)
	msgs := make([]later.Outgoing, 30)
	for i := range msgs {
		msgs[i] = later.Outgoing{ID: fmt.Sprintf("%02d", i), Payload: []byte("x")}
	}
	if _, err := c.client().Queue("q").SendBatch(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	if ids, notes := c.found("--payload", "x", "--limit", "7"); len(ids) != 7 || ids[6] != "06" ||
		!strings.Contains(notes, "use a higher --limit") {
		t.Errorf("found %q: %s", ids, notes)
	}
	if ids, notes := c.found("--id", "1", "--look", "12"); strings.Join(ids, " ") != "01 10 11" ||
		!strings.Contains(notes, "looked at 12 messages, others may match too: use a higher --look, or 0 for all") {
		t.Errorf("found %q: %s", ids, notes)
	}
	for _, look := range []string{"0", "31"} {
		if ids, notes := c.found("--id", "9", "--limit", "0", "--look", look); strings.Join(ids, " ") != "09 19 29" ||
			notes != "" {
			t.Errorf("found %q: %s", ids, notes)
		}
	}
	more := make([]later.Outgoing, store.MaxBatch)
	if _, err := c.client().Queue("q").SendBatch(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	if ids, _ := c.found("--limit", "0"); len(ids) != len(msgs)+len(more) { // several pages
		t.Errorf("found %d messages", len(ids))
	}
	if rows := strings.Count(c.ok("search", "q", "--limit", "0"), " ready "); rows != len(msgs)+len(more) {
		t.Errorf("printed %d rows", rows)
	}
}
