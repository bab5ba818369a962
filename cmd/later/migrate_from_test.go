package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redisdump"
	"github.com/laterq/later/internal/redistest"
)

// newSource returns the URL and a client of a Redis with the keys of a fixture of package migrate.
func newSource(t *testing.T, fixture string) (url string, rdb *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	rdb = server.Client(t)
	dump, err := os.ReadFile(filepath.Join("..", "..", "migrate", "testdata", fixture))
	if err == nil {
		err = redisdump.Load(t.Context(), rdb, dump)
	}
	if err != nil {
		t.Fatal(err)
	}
	return server.URL(), rdb
}

func TestMigrateFromAsynqWithADryRunThenForReal(t *testing.T) {
	c := newCLI(t)
	source, rdb := newSource(t, "asynq.json")
	out := c.ok("migrate", "from-asynq", source, "--dry-run")
	contains(t, out, "SOURCE   QUEUE    TO COPY",
		"1 pending, 4 scheduled, 1 retry, 3 archived, 1 completed (left there)",
		"DUE ", "2070-01-0", "retry-1", "scheduled,")
	if shown := strings.Count(out, "\n"); shown != 15 { // two tables of 3 and 11 lines, and an empty one
		t.Errorf("%d lines:\n%s", shown, out)
	}
	if queues := c.ok("queues"); strings.Contains(queues, "default") {
		t.Errorf("the dry run wrote %s", queues)
	}
	lines := objects(t, c.ok("migrate", "from-asynq", source, "--dry-run", "--json"))
	if len(lines) != 12 || lines[0]["copied"] != 9.0 || lines[0]["dry_run"] != true ||
		lines[2]["source_state"] == nil ||
		lines[2]["due"] == nil {
		t.Errorf("%v", lines)
	}
	contains(t, c.ok("migrate", "from-asynq", source, "--watch", "0s"), "default  default       9         0")
	contains(t, c.ok("migrate", "from-asynq", source, "--delete-source", "--watch", "0s"), "0         9")
	contains(t, c.ok("get", "default", "retry-1"), "fails", "kind")
	contains(t, c.ok("dead", "list", "default"), "archived-1")
	if n := rdb.Exists(t.Context(), "asynq:{default}:scheduled", "asynq:{default}:retry").Val(); n != 0 {
		t.Error("the source was not deleted")
	}
}

func TestMigrateFromDelayQueue(t *testing.T) {
	c := newCLI(t)
	source, rdb := newSource(t, "delayqueue.json")
	contains(t, c.ok("migrate", "from-delayqueue", source, "--queue", "orders", "--as", "jobs", "--watch", "0s"),
		"dp:orders  jobs ", "2 pending, 2 ready, 1 retry")
	contains(t, c.ok("list", "jobs", "--state", "scheduled"), "d43e7332-9330-4752-a21a-05a48510b132")
	stderr := c.fails(11, "migrate", "from-delayqueue", source, "--queue", "none")
	contains(t, stderr, `queue "none" of delayqueue`)
	busy, _ := newSource(t, "delayqueue-busy.json")
	contains(t, c.fails(13, "migrate", "from-delayqueue", busy, "--queue", "busy"), "the source is in use",
		"or force it")
	contains(t, c.ok("migrate", "from-delayqueue", busy, "--queue", "busy", "--force"), "1 unack")
	if rdb.DBSize(t.Context()).Val() == 0 {
		t.Error("the source was deleted")
	}
}

func TestMigrateFromZSet(t *testing.T) {
	c := newCLI(t)
	server := redistest.Start(t)
	rdb := server.Client(t)
	rdb.ZAdd(t.Context(), "jobs", redis.Z{Score: 3e9, Member: `{"id":"a"}`},
		redis.Z{Score: 3e9 + 1, Member: `{"id":"b"}`})
	contains(t, c.ok("migrate", "from-zset", server.URL(), "jobs", "--id-from", "json:id", "--delete-source"),
		"2 waiting")
	contains(t, c.ok("list", "jobs"), "a ", "2065-01-24")
	if rdb.Exists(t.Context(), "jobs").Val() != 0 {
		t.Error("the source was not deleted")
	}
}

func TestMigrateCreatesNoStoreForASourceThatIsNotThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	server := redistest.Start(t)
	r := runMain(t.Context(), nil, "", "migrate", "from-zset", server.URL(), "none", "--store", dir)
	if r.exit != 11 {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the store was created: %v", err)
	}
}

func TestMigrateUsageErrors(t *testing.T) {
	for _, test := range []struct {
		exit int
		args []string
		want string
	}{
		{2, []string{"from-asnq"}, "did you mean from-asynq?"},
		{2, []string{"from-zset", "redis://localhost"}, "usage: later migrate from-zset REDIS KEY"},
		{2, []string{"from-zset", "redis://localhost", "k", "--unit", "h"}, `--unit is "h": must be s or ms`},
		{2, []string{"from-delayqueue", "redis://localhost"}, "--queue is missing"},
		{2, []string{"from-asynq", "localhost"}, "store URL has none of the schemes"},
		{2, []string{"from-asynq", "redis://localhost", "--dry-run", "--delete-source"}, "are both given"},
		{18, []string{"from-asynq", "redis://127.0.0.1:1"}, "the source at redis://127.0.0.1:1 cannot be used"},
	} {
		r := runMain(t.Context(), []string{"LATER_STORE=mem://"}, "", append([]string{"migrate"}, test.args...)...)
		if r.exit != test.exit || !strings.Contains(r.stderr, test.want) {
			t.Errorf("later migrate %q: exit %d: %s", test.args, r.exit, r.stderr)
		}
	}
}
