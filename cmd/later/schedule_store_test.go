package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestScheduleIsPutListedPausedTriggeredAndDeleted(t *testing.T) {
	c := newCLI(t)
	put := []string{"schedule", "put", "nightly", "--queue", "reports", "--cron", "0 2 * * *", "--tz", "Europe/Berlin",
		"hello", "--header", "k=v", "--jitter", "1m", "--missed", "all", "--missed-max", "7", "--unfinished", "allow",
		"--max-attempts", "3", "--timeout", "10m", "--group", "g", "--key", "k", "--exclude", "2040-12-25"}
	contains(t, c.ok(put...), "created nightly: next run ")
	contains(t, c.ok(put...), "unchanged nightly: next run ")
	out := c.ok("schedule", "put", "hb", "--queue", "pings", "--every", "30s")
	if !regexp.MustCompile(`^created hb: next run .*in (30|2\d\.\d)s`).MatchString(out) { // 29.9 s on a busy machine
		t.Errorf("put printed %q", out)
	}
	changed := object(t, c.ok("schedule", "put", "hb", "--queue", "pings", "--every", "1h", "--json"))
	if changed["schedule"] != "hb" || changed["result"] != "changed" {
		t.Errorf("put printed %v", changed)
	}
	contains(t, c.ok("schedule", "get", "nightly"), "rule            0 2 * * * (Europe/Berlin)", "next run ",
		"0 sent, 0 missed, 0 skipped, 0 triggered", "if missed       all, within 7d", "exclude         2040-12-25",
		"header          k=v", "group           g", "key             k", "\nhello\n")
	got := object(t, c.ok("schedule", "get", "nightly", "--json"))
	if got["name"] != "nightly" || got["cron"] != "0 2 * * *" || got["missed_max"] != 7.0 ||
		got["missed_runs"] != 0.0 ||
		got["next_run"].(map[string]any)["cause"] != "due" {
		t.Errorf("get printed %v", got)
	}
	contains(t, c.ok("schedule", "list"), "SCHEDULE", "every 1h", "0 2 * * * (Europe/Berlin)")
	if all := objects(t, c.ok("schedule", "list", "--json")); len(all) != 2 || all[0]["name"] != "hb" {
		t.Errorf("list printed %v", all)
	}
	contains(t, c.ok("schedule", "next", "nightly", "-n", "2"), "LOCAL (Europe/Berlin)", "NOMINAL")
	all := objects(t, c.ok("schedule", "next", "--all", "-n", "30", "--json"))
	of := map[any]int{}
	for _, run := range all {
		of[run["schedule"]]++
	}
	inOrder := slices.IsSortedFunc(all, func(a, b map[string]any) int {
		return strings.Compare(a["due"].(string), b["due"].(string))
	})
	if len(all) != 30 || of["nightly"] == 0 || of["hb"] == 0 || !inOrder || all[0]["id"] == nil {
		t.Errorf("next printed %v", all)
	}

	contains(t, c.ok("schedule", "pause", "hb", "--note", "for repairs"), "paused hb")
	contains(t, c.ok("schedule", "list"), "paused: for repairs")
	r := c.run("schedule", "next", "hb")
	if r.exit != 0 || r.stdout != "" || !strings.Contains(r.stderr, "no next run: paused: for repairs") {
		t.Errorf("next of a paused schedule: %+v", r)
	}
	id := strings.TrimSpace(c.ok("schedule", "trigger", "hb"))
	contains(t, c.ok("get", "pings", id), "schedule=hb", "schedule-cause=triggered")
	contains(t, c.ok("schedule", "resume", "hb"), "resumed hb")
	contains(t, c.ok("schedule", "get", "hb"), "1 triggered", "triggered, message "+id)

	backfill := []string{"schedule", "backfill", "nightly", "--from", "2020-01-01T00:00:00Z", "--to",
		"2020-01-08T00:00:00Z"}
	contains(t, c.ok(append(backfill, "--dry-run")...), "7 runs of nightly would be sent")
	contains(t, c.ok(backfill...), "sent 7 runs of nightly, 0 were there before")
	contains(t, c.ok(backfill...), "sent 0 runs of nightly, 7 were there before")
	contains(t, c.ok("stats", "reports"), "7")

	contains(t, c.ok("schedule", "delete", "hb"), "deleted hb")
	contains(t, c.fails(11, "schedule", "get", "hb"), `no schedule "hb"; existing schedules: nightly`)
	contains(t, c.fails(11, "schedule", "delete", "hb"), `no schedule "hb"`)
	contains(t, c.fails(2, "cancel", "schedules:", "nightly"), "later schedule")
	contains(t, c.fails(2, "send", "schedules:", "x"), "later schedule")
}

func TestScheduleOfAnEmptyStore(t *testing.T) {
	c := newCLI(t)
	contains(t, c.fails(11, "schedule", "pause", "x"), "this store has no schedules yet")
	if r := c.run("schedule", "list"); r.exit != 0 || !strings.Contains(r.stderr, "there are no schedules yet") {
		t.Errorf("list: %+v", r)
	}
}

func TestScheduleFileIsApplied(t *testing.T) {
	c := newCLI(t)
	file := filepath.Join(t.TempDir(), "schedules.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const text = `
set: reports
schedules:
  - name: nightly
    queue: reports
    cron: 0 2 * * *
    time_zone: Europe/Berlin
    start: 2040-01-01T00:00:00Z
    payload: {kind: daily}
  - name: hb
    queue: pings
    every: 30s
    payload_text: hello
`
	write(text)
	contains(t, c.ok("schedule", "apply", file, "--dry-run"), "+ hb\n", `    + cron: "0 2 * * *"`,
		"2 created, 0 changed, 0 deleted, 0 unchanged (dry run: nothing was stored)")
	contains(t, c.ok("schedule", "apply", file), "2 created")
	if got := c.ok("schedule", "apply", file); got != "0 created, 0 changed, 0 deleted, 2 unchanged\n" {
		t.Errorf("the second apply printed %q", got)
	}
	if got := object(t, c.ok("schedule", "get", "nightly", "--json")); !reflect.DeepEqual(got["payload"],
		map[string]any{"kind": "daily"}) ||
		got["payload_text"] != nil {
		t.Errorf("get printed %v", got)
	}
	before, _, _ := strings.Cut(strings.Replace(text, "0 2 *", "0 3 *", 1), "  - name: hb")
	write(before)
	contains(t, c.ok("schedule", "apply", file, "--prune"), "- hb\n", "~ nightly\n",
		`    ~ cron: "0 2 * * *" → "0 3 * * *"`, "0 created, 1 changed, 1 deleted, 0 unchanged")
	changes := objects(t, c.ok("schedule", "apply", file, "--json"))
	if len(changes) != 1 || changes[0]["result"] != "unchanged" {
		t.Errorf("apply printed %v", changes)
	}
	again := c.ok("schedule", "get", "nightly", "--json")
	json := `{"schedules": [` + strings.Split(again, `,"created"`)[0] + `}]}`
	write(strings.Replace(json, `"set":"reports",`, "", 1))
	contains(t, c.ok("schedule", "apply", file, "--set", "reports"), "1 unchanged")

	for text, want := range map[string]string{
		"set: x\nset: y":  "not YAML",
		"schedules: []":   "no schedules",
		"schedule: []":    `field "schedule" is unknown: did you mean schedules?`,
		"- a":             "not a JSON object",
		"schedules: [{}]": "schedule 1: schedule name is empty",
		"schedules: [{name: a, queue: q, cron: 0 25 * * *}]": "the nearest value is 23",

		"schedules: [{name: a, queue: q, crom: x}]": `entry 1: schedule "a": field "crom" is unknown: did you mean ` +
			`cron?`,
		"schedules: [{name: a, queue: q, every: 1h, timeout: 1 hour}]": `field "timeout": give a duration such as 500ms`,

		"schedules: {}":                             `field "schedules" is an object: must be a list`,
		"schedules: [{name: 1}]":                    `field "name" is a number: must be a text, in quotes`,
		"schedules: [{name: a, every: 90}]":         `field "every" is a number: must be a duration such as "90s"`,
		"schedules: [{name: a, start: 2030-01-01}]": `field "start": "2030-01-01" is no time: give one such as`,
		"schedules: [{name: a, series: 5}]":         `field "series": text is not a JSON object but a number`,
		"schedules: []\n---\nschedules: []":         "it has 2 YAML documents",
		"a: &a [x, x]\nb: &b [*a, *a]":              `anchor "b" has an alias in it`,
	} {
		write(text)
		contains(t, c.fails(2, "schedule", "apply", file), want)
	}
	contains(t, c.fails(2, "schedule", "apply", file+"x"), "no such file")
	contains(t, c.ok("schedule", "list"), "nightly")
}
