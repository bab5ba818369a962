package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later/internal/redistest"
)

func TestLaterAlonePrintsTheOverview(t *testing.T) {
	r := runMain(t.Context(), nil, "")
	if r.exit != 0 {
		t.Fatalf("exit %d: %s", r.exit, r.stderr)
	}
	contains(t, r.stdout, "at least once", "LATER_STORE", "12  duplicate", "later demo", "completion")
}

// goTypes are the names that pflag gives to values without a name.
var goTypes = []string{"int", "string", "strings", "stringArray", "duration", "float", "uint"}

func TestEveryCommandHasAPageWithAnExample(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		r := runMain(t.Context(), nil, "", args...)
		if r.exit != 0 || cmd.Long == "" || cmd.Short == "" {
			t.Errorf("later %q: exit %d\n%s", args, r.exit, r.stderr)
		}
		contains(t, r.stdout, "Examples:\n  ", cmd.Long)
		for line := range strings.Lines(r.stdout) {
			if len([]rune(line)) > 121 { // 120 and the line end
				t.Errorf("%q has a line of %d characters: %s", args, len([]rune(line)), line)
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); slices.Contains(goTypes, name) {
				t.Errorf("%q: the value of --%s is shown as %s: put a name into backquotes", args, f.Name, name)
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	root := (&Main{}).rootCommand()
	for _, cmd := range root.Commands() {
		visit(cmd)
	}
}

func TestUsageErrorsAreExit2AndNameTheHelp(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"sned", "q"}, `later: unknown command "sned"; did you mean send?; see later --help`},
		{[]string{"dead", "lst"}, `unknown command "lst"; did you mean list?; see later dead --help`},
		{[]string{"help", "sned"}, `later: unknown command "sned"; did you mean send?; see later --help`},
		{[]string{"help", "dead", "lst"}, `unknown command "lst"; did you mean list?; see later dead --help`},
		{[]string{"send", "--foo", "q"}, "unknown flag: --foo; see later send --help"},
		{[]string{"send", "--dedup-windo", "1d", "q"},
			"unknown flag: --dedup-windo; did you mean --dedup-window?; see later send --help"},
		{[]string{"work", "--stor", "x", "q"}, "unknown flag: --stor; did you mean --store?; see later work --help"},
		{[]string{"send", "-x", "q"}, "unknown shorthand flag: 'x' in -x; see later send --help"},
		{[]string{"send"}, "usage: later send QUEUE [PAYLOAD|-]"},
		{[]string{"send", "q", "hello", "world"},
			`"world" is one argument too many, perhaps part of one that needs quotes`},
		{[]string{"work", "q", "--", "cat"}, `"cat" after -- is no queue: give a command as one argument of --exec`},
		{[]string{"get", "q"}, "usage: later get QUEUE ID; see later get --help"},
		{[]string{"send", "q", "x", "--in", "30"},
			`invalid argument "30" for "--in" flag: give a duration such as 500ms`},
		{[]string{"send", "q", "x", "--timeout", "-5m"}, "must not be negative"},
		{[]string{"send", "q", "x", "--in", "100y"}, "the units are ms, s, m, h and d, and the limit is 36500d"},
		{[]string{"send", "q", "x", "--in", "3000000h"}, "the units are ms, s, m, h and d, and the limit is 36500d"},
		{[]string{"send", "q", "x", "--in", "36501d"}, "the limit is 36500d"},
		{[]string{"send", "q", "x", "--timeout", "25h"}, "later: timeout is 25h0m0s: must be 0 (none) to 24h0m0s"},
		{[]string{"send", "q", "x", "--max-attempts", "70000"},
			`invalid argument "70000" for "--max-attempts" flag: must be a whole number of 1 to 65535`},
		{[]string{"send", "q", "x", "--at", "noon"}, `for "--at" flag: give a time such as 15:04`},
		{[]string{"send", "q", "x", "--in", "1s", "--at", "12:00"}, "--in and --at are both given: use one of them"},
		{[]string{"send", "q", "x", "--in", "1s", "--in", "2s"}, `"--in" flag: it is given twice: give it once`},
		{[]string{"send", "--store", "a", "q", "x", "--store", "b"}, `"--store" flag: it is given twice: give it once`},
		{[]string{"send", "q", "--batch", "--dedup-window", "1h"},
			"dedup window is 1h0m0s and there is no id: give the id"},
		{[]string{"send", "q", "x", "--expire-at", "0001-01-01T00:00:00Z"}, "must be a time from 1970 on, or omitted"},
		{[]string{"send", "q", "x", "--on-duplicate", "follow"}, "mode for duplicates is follow and there is no id"},
		{[]string{"send", "q"}, "no payload: give one"},
		{[]string{"send", "q", "x", "--max-attempts", "0"},
			`invalid argument "0" for "--max-attempts" flag: must be a whole number of 1 to 65535`},
		{[]string{"send", "q", "x", "--timeout", "0s"}, `"--timeout" flag: must be more, or left out`},
		{[]string{"send", "q", "x", "--header", "k"}, `--header is "k": must be key=value`},
		{[]string{"send", "q", "x", "--header", "k=1", "--header", "k=2"}, `--header sets "k" twice`},
		{[]string{"send", "q", "x", "--id", ""}, "--id is empty"},
		{[]string{"send", "q", "x", "--group", ""}, `"--group" flag: give a value, or leave it out`},
		{[]string{"send", "q", "x", "--key", ""}, `"--key" flag: give a value, or leave it out`},
		{[]string{"send", "q", "x", "--key", "a/b"}, `key "a/b" holds a slash: leave it out`},
		{[]string{"send", "q", "x", "--key", strings.Repeat("k", 65)}, `for "--key" flag: the limit is 64`},
		{[]string{"cancel", "q"}, "no id: give one, or --group"},
		{[]string{"cancel", "q", "a", "--group", "g"}, "--group and an id are both given"},
		{[]string{"cancel", "q", "--group", ""}, "--group: group is empty"},
		{[]string{"reschedule", "q", "a", "--group", "g", "--in", "1m"}, "--group and an id are both given"},
		{[]string{"reschedule", "q", "--group", "g"}, "no due time"},
		{[]string{"list", "q", "--group", "g", "--state", "ready"}, "--group is given with --state"},
		{[]string{"send", "q", "x", "--kind", ""}, "--kind: kind is empty: must have 1 to 128 bytes"},
		{[]string{"send", "q", "x", "--kind", "a", "--header", "kind=b"}, "--kind and --header kind are both given"},
		{[]string{"send", "q", "x", "--expire-after", "1s", "--expire-at", "2040-01-01 00:00"}, "given twice"},
		{[]string{"send", "q{", "x"}, "holds a brace"},
		{[]string{"send", "..", "x"}, `queue name is "..", which URLs cannot have in their paths`},
		{[]string{"send", "q", "x", "--id", "."}, `id is ".", which URLs cannot have`},
		{[]string{"send", "q", "x", "--group", ".."}, `group is "..", which URLs cannot have`},
		{[]string{"forward", "q", "--to", "queue:."}, `queue name is ".", which URLs cannot have`},
		{[]string{"pause", "."}, `queue name is ".", which URLs cannot have`},
		{[]string{"send", "q", "x", "--batch"}, "omit PAYLOAD"},
		{[]string{"send", "q", "--batch", "--id", "a"}, "--id cannot be used with --batch"},
		{[]string{"list", "q", "--limit", "-1"}, "--limit is -1"},
		{[]string{"search", "q", "--limit", "-1"}, "--limit is -1: must be 1 or more, or 0 for all"},
		{[]string{"search", "q", "--look", "-1"}, "--look is -1: must be 1 or more, or 0 for all"},
		{[]string{"search", "q", "--state", "late"}, `"late"`},
		{[]string{"search", "q", "--group", "g", "--state", "dead"}, "group"},
		{[]string{"search", "q", "--header", "k"}, `--header is "k": must be key=value`},
		{[]string{"search", "q", "--header", "k=1", "--header", "k=2"}, `--header sets "k" twice`},
		{[]string{"search", "q", "--payload-json", "total"},
			"--payload-json: condition is \"total\": give a comparison"},
		{[]string{"search", "q", "--payload-json", "a == 1", "--min-attempts", "-1"},
			"attempts are -1 to 0: give 0 or more"},
		{[]string{"search"}, "usage: later search QUEUE"},
		{[]string{"find"}, "usage: later find TEXT..."},
		{[]string{"find", " "}, "text is empty: give an id"},
		{[]string{"find", "a", "--limit", "-1"}, "--limit is -1: must be 1 or more, or 0 for all"},
		{[]string{"find", "a", "--look", "-1"}, "--look is -1: must be 1 or more, or 0 for all"},
		{[]string{"find", "attempts<1"}, "give a comparison such as attempts>=1"},
		{[]string{"ping", "--timeout", "0"}, "--timeout is 0: must be more than 0"},
		{[]string{"ping", "q"}, "usage: later ping [--timeout DURATION]"},
		{[]string{"work", "q", "q"}, `queue "q" is given twice`},
		{[]string{"work", "q", "--lease", "1ms"}, "--lease is 1ms: must be 10ms to 1d"},
		{[]string{"work", "q", "--concurrency", "-1"}, "--concurrency is -1: must be 1 or more"},
		{[]string{"work", "q", "--concurrency", "0"}, "--concurrency is 0: must be 1 or more"},
		{[]string{"work", "q", "--exec", ""}, "--exec is empty: give a command, or omit it to print"},
		{[]string{"work", "q", "--exec", " "}, "--exec is empty"},
		{[]string{"work", "q", "--max", "-1"}, "--max is -1"},
		{[]string{"reschedule", "q", "id"}, "no due time"},
		{[]string{"edit", "q", "id"}, "nothing to change: give PAYLOAD"},
		{[]string{"edit", "q", "id", "--header", "k"}, `--header is "k": must be key=value`},
		{[]string{"edit", "q", "id", "--header", "k=1", "--remove-header", "k"}, `both name "k"`},
		{[]string{"edit", "q", "id", "--in", "1s", "--at", "12:00"}, "--in and --at are both given"},
		{[]string{"dead", "errors", "q", "--look", "0"}, "--look is 0: must be 1 or more"},
		{[]string{"dead", "replay", "q"}, "no ids"},
		{[]string{"dead", "replay", "q", "id", "--all"}, "--all and ids are both given"},
		{[]string{"purge", "q", "--state", "leased"}, `--state is "leased": use one of scheduled, ready, dead`},
		{[]string{"demo", "--orders", "0"}, "--orders is 0"},
		{[]string{"demo", "--speed", "0"}, "--speed is 0"},
		{[]string{"demo", "--ui", "--orders", "9"}, "--ui and --orders are both given"},
		{[]string{"demo", "--no-open"}, "--no-open is given without --ui"},
		{[]string{"serve", "--finished-age", "7d"}, "--finished-age is given without --keep-finished"},
		{[]string{"serve", "--keep-finished", "a*b"}, "with no * but at its end"},
		{[]string{"serve", "--keep-finished", "a", "--finished-count", "0"}, "--finished-count is 0: must be 1 or more"},
		{[]string{"serve", "--keep-finished", "a", "--finished-count", "2000000"}, "give 1 to 1000000"},
		{[]string{"serve", "--path-prefix", "later"}, `--path-prefix is "later": give a path such as /later`},
		{[]string{"shards"}, "usage: later shards QUEUE [N]"},
		{[]string{"shards", "q", "0"}, "number of shards is 0: must be 1 to 64"},
		{[]string{"shards", "q", "65"}, "number of shards is 65: must be 1 to 64"},
		{[]string{"shards", "q", "many"}, `number of shards is "many": must be 1 to 64`},
		{[]string{"shards", "q", "2", "3"}, `"3" is one argument too many`},
		{[]string{"shards", "..", "2"}, `queue name is ".."`},
		{[]string{"shards", "topic:news", "2"}, `queue "topic:news" is one of Later's own, which have one shard`},
		{[]string{"completion", "tcsh"}, "later completion --help"},
		{[]string{"stats", "--interval", "0s"}, "--interval"},
		{[]string{"series", "snd"}, `unknown command "snd"; did you mean send?; see later series --help`},
		{[]string{"series", "send", "q", "a"}, "usage: later series send QUEUE ID PAYLOAD"},
		{[]string{"series", "send", "q", "a", "x", "--offsets", "-1h"}, "no moment: give --until"},
		{[]string{"series", "send", "q", "a", "x", "--until", "12:00"}, "no offsets: give --offsets"},
		{[]string{"series", "send", "q", "a", "x", "--offsets", "-1h,x"}, `"x": give a duration`},
		{[]string{"series", "send", "q", "a", "x", "--offsets", "--1h"}, "must not be negative"},
		{[]string{"series", "send", "q", "a", "x", "--offsets", "1h,60m", "--until", "12:00"},
			"offset 1h0m0s is given twice"},
		{[]string{"series", "send", "q", "", "x", "--offsets", "1h", "--until", "12:00"}, "ID is empty"},
		{[]string{"series", "send", "q", "a", "x", "--offsets", "1h", "--until", "12:00", "--header", "series=x"},
			"a series sets this header itself"},
		{[]string{"series", "move", "q", "a"}, "no moment: give --until"},
		{[]string{"series", "move", "q", "a", "--until", "12:00", "--past", "run"},
			`--past is "run": must be skip or send`},
		{[]string{"schedule", "next"}, "no rule: give --cron, --every, --rrule, --times or --series-first"},
		{[]string{"schedule", "next", "a", "--cron", "@daily"}, "exclude each other"},
		{[]string{"schedule", "next", "a", "--from", "12:00"}, "--from and --name are for a rule"},
		{[]string{"schedule", "put", "a", "--cron", "@daily"}, `required flag(s) "queue" not set`},
		{[]string{"schedule", "put", "a", "--queue", "q"}, "no rule"},
		{[]string{"schedule", "put", "a", "--queue", "q", "--cron", "@daily", "--missed", "x"}, `missed is "x"`},
		{[]string{"schedule", "put", "a", "--queue", "q", "--cron", "@daily", "--timeout", "0"},
			`"--timeout" flag: must be more, or left out`},
		{[]string{"schedule", "put", "a", "--queue", "q", "--cron", "@daily", "--missed", "all"},
			"set unfinished to allow"},
		{[]string{"schedule", "backfill", "a"}, `required flag(s) "from", "to" not set`},
		{[]string{"schedule", "apply", "no-such-file"}, "no such file"},
		{[]string{"schedule", "next", "--cron", "61 * * * *"}, "the nearest value is 59"},
		{[]string{"schedule", "next", "--cron", "@daily", "--every", "1h"}, "exactly one of cron, every"},
		{[]string{"schedule", "next", "--cron", "@daily", "--tz", "Europe/Berln"}, "did you mean Europe/Berlin?"},
		{[]string{"schedule", "next", "--cron", "@daily", "--from", "noon"}, `--from is "noon": give a time`},
		{[]string{"schedule", "next", "--times", "x"}, `--times is "x": give a time`},
		{[]string{"schedule", "next", "--cron", "@daily", "--gap", "x"}, "gap"},
		{[]string{"schedule", "next", "--cron", "@daily", "--jitter", "25h"}, "jitter: 25h0m0s is not between"},
		{[]string{"token", "nw"}, `unknown command "nw"; did you mean new?; see later token --help`},
		{[]string{"token", "new", "x"}, "usage: later token new; see later token new --help"},
		{[]string{"token", "new", "--role", "sned"}, `role is "sned": did you mean send?`},
		{[]string{"token", "new", "--queue", "a*b"}, `queue is "a*b": a * can only be at the end`},
		{[]string{"token", "new", "--role", "admin", "--hide-payloads"}, "hides payloads from the role admin"},
		{[]string{"schedule", "next", "--cron", "@daily", "-n", "0"}, "--count is 0: must be 1 to 10000"},
	} {
		r := runMain(t.Context(), []string{"LATER_STORE=mem://"}, "", test.args...)
		if r.exit != 2 {
			t.Errorf("later %q: exit %d, want 2", test.args, r.exit)
		}
		if !strings.Contains(r.stderr, test.want) {
			t.Errorf("later %q: %q is not in %q", test.args, test.want, r.stderr)
		}
		if r.stdout != "" {
			t.Errorf("later %q printed %q", test.args, r.stdout)
		}
	}
}

func TestStoreIsNamedByFlagThenByEnvironment(t *testing.T) {
	for _, test := range []struct {
		env, args []string
		want      string
	}{
		{nil, nil,
			"no store is named, and there is no default, because HOME is not set: use --store redis://localhost:6379/0"},
		{[]string{"HOME=here"}, nil, `HOME is "here", not an absolute directory`},
		{[]string{"REDIS_URL=a://x"}, nil, `"a": use one of`},
		{[]string{"REDIS_URL=a://x", "LATER_STORE=b://x"}, nil, `"b": use one of`},
		{[]string{"REDIS_URL=a://x", "LATER_STORE=b://x"}, []string{"--store", "c://x"}, `"c": use one of`},
		{[]string{"LATER_STORE=redis://localhost/0?bogus=1"}, nil, "(from LATER_STORE)"},
	} {
		r := runMain(t.Context(), test.env, "", append([]string{"stats"}, test.args...)...)
		if r.exit != 2 || !strings.Contains(r.stderr, test.want) {
			t.Errorf("%q %q: exit %d: %s", test.env, test.args, r.exit, r.stderr)
		}
	}
}

func TestMemoryStorePrintsThatMessagesAreLost(t *testing.T) {
	r := runMain(t.Context(), nil, "", "send", "q", "x", "--store", "mem://")
	if r.exit != 0 || r.stderr != "later: messages in mem:// are lost when this command ends\n" {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
}

func TestDeadRedisFailsSoonAndIsNamedWithoutItsPassword(t *testing.T) {
	server := redistest.Start(t)
	url := strings.Replace(server.URL(), "redis://", "redis://user:secret@", 1)
	server.Kill()
	for _, args := range [][]string{{"stats"}, {"send", "q", "x"}, {"work", "q"}, {"demo"}} {
		started := time.Now()
		r := runMain(t.Context(), []string{"REDIS_URL=" + url}, "", args...)
		if took := time.Since(started); took > 2*openTimeout {
			t.Errorf("%q took %v", args, took)
		}
		if r.exit != 18 {
			t.Errorf("%q: exit %d, want 18", args, r.exit)
		}
		contains(t, r.stderr, server.Addr(), "(from REDIS_URL) does not answer", "connection refused")
		if strings.Contains(r.stderr, "secret") {
			t.Errorf("%q printed the password: %s", args, r.stderr)
		}
		if r.stdout != "" {
			t.Errorf("%q printed %q", args, r.stdout)
		}
	}
}

func TestStoreThatAnswersIsNotReportedAsDown(t *testing.T) {
	server := redistest.Start(t, redistest.Args("--requirepass", "secret"))
	open := strings.Replace(server.URL(), "redis://", "redis://:secret@", 1)
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	const login = "give user and password in the store URL, as in redis://user:password@host:6379/0"
	for _, test := range []struct {
		url, want string
		exit      int
	}{
		{server.URL(), login, 22},
		{strings.Replace(open, "secret", "wrong", 1), login, 22},
		{strings.TrimSuffix(open, "/0") + "/99", "cannot be used: ", 22},
		{strings.Replace(open, "redis:", "redis+cluster:", 1), "cannot be used: ", 22},
		{strings.Replace(web.URL, "http://", "redis://", 1), "cannot be used: ", 18},
	} {
		url, want := test.url, test.want
		r := runMain(t.Context(), nil, "", "stats", "--store", url)
		if r.exit != test.exit || !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "is it running") {
			t.Errorf("%s: exit %d: %s", url, r.exit, r.stderr)
		}
	}
}

func TestErrorsAreJSONWithJSON(t *testing.T) {
	for _, test := range []struct {
		code string
		args []string
	}{
		{"not_found", []string{"stats", "q", "--json"}},
		{"invalid", []string{"stats", "--bogus", "--json"}},
		{"invalid", []string{"--json", "bogus"}},
	} {
		r := newCLI(t).run(test.args...)
		e, _ := object(t, r.stderr)["error"].(map[string]any)
		if e["code"] != test.code || e["message"] == "" || r.stdout != "" {
			t.Errorf("%q: %s", test.args, r.stderr)
		}
	}
}

func TestVersionPrintsTheGoVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		if r := runMain(t.Context(), nil, "", arg); r.exit != 0 || !strings.Contains(r.stdout, "go1.") {
			t.Errorf("%s: exit %d: %s", arg, r.exit, r.stdout)
		}
		r := runMain(t.Context(), nil, "", arg, "--json")
		if v := object(t, r.stdout); v["version"] == "" || v["go"] == "" {
			t.Errorf("%s: %v", arg, v)
		}
	}
}

func TestHelpIsThePageOfTheCommand(t *testing.T) {
	for _, command := range []string{"", "send", "dead list"} {
		help := runMain(t.Context(), nil, "", append([]string{"help"}, strings.Fields(command)...)...)
		page := runMain(t.Context(), nil, "", append(strings.Fields(command), "--help")...)
		if help.exit != 0 || help.stdout != page.stdout {
			t.Errorf("help %s: exit %d: %s", command, help.exit, help.stdout)
		}
	}
	r := runMain(t.Context(), nil, "", "__complete", "help", "dead", "")
	if !strings.HasPrefix(r.stdout, "errors\nlist\npurge\nreplay\n") {
		t.Errorf("completion returned %q", r.stdout)
	}
}

func TestCompletionScriptsAreValid(t *testing.T) {
	for shell, check := range map[string]string{"bash": "-n", "zsh": "-n", "fish": "--no-execute"} {
		r := runMain(t.Context(), nil, "", "completion", shell)
		if r.exit != 0 || !strings.Contains(r.stdout, "later") {
			t.Errorf("%s: exit %d: %s", shell, r.exit, r.stderr)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue // not installed
		}
		script := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(script, []byte(r.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(path, check, script).CombinedOutput(); err != nil {
			t.Errorf("%s rejects its script: %v: %s", shell, err, out)
		}
	}
}

func TestCompletionCompletesQueueNames(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "orders", "x")
	c.ok("send", "mail", "x")
	if got := c.ok("__complete", "stats", "or"); !strings.HasPrefix(got, "orders\n:") {
		t.Errorf("got %q", got)
	}
	if got := c.ok("__complete", "pause", "orders", ""); !strings.HasPrefix(got, "mail\n:") {
		t.Errorf("got %q", got)
	}
	if got := c.ok("__complete", "list", "orders", "--state", ""); !strings.Contains(got, "scheduled\nready") {
		t.Errorf("got %q", got)
	}
}

func TestMainRunsWithoutAnEnvironment(t *testing.T) {
	var stdout bytes.Buffer
	cmd := exec.Command(os.Args[0], "demo", "--speed", "20", "--orders", "2")
	cmd.Stdout = &stdout
	cmd.Env = []string{runAsProgramEnv + "=1"}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	contains(t, stdout.String(), "early=0")
}

func TestTheUsageSaysHowManyArgumentsThereAre(t *testing.T) {
	for _, test := range []struct {
		usage       string
		least, most int
	}{
		{"ping [--timeout DURATION]", 0, 0},
		{"get QUEUE ID", 2, 2},
		{"stats [QUEUE...]", 0, unlimited},
		{"work QUEUE... [--exec COMMAND]", 1, unlimited},
		{"purge QUEUE [--state STATE]...", 1, 1},
		{"cancel QUEUE (ID... | --group GROUP)", 1, unlimited},
		{"reschedule QUEUE (ID | --group GROUP) (--in DURATION | --at TIME)", 1, 2},
		{"edit QUEUE ID [PAYLOAD|-] [--header KEY=VALUE] [--in DURATION | --at TIME]", 2, 3},
		{"next [NAME | --all | --cron EXPRESSION | --every DURATION | …]", 0, 1},
		{"rewind TOPIC QUEUE --from TIME | --from-id ID", 2, 2},
	} {
		if _, least, most := parseUsage(test.usage); least != test.least || most != test.most {
			t.Errorf("%s: %d to %d arguments", test.usage, least, most)
		}
	}
}
