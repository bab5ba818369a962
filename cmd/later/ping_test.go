package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
)

func TestPingPrintsTheStoreThatServesCalls(t *testing.T) {
	server := redistest.Shared(t)
	r := runMain(t.Context(), []string{"LATER_STORE=" + server.URL()}, "", "ping")
	contains(t, r.stdout, server.URL()+" answered in ", "ms\n")
	r = runMain(t.Context(), []string{"LATER_STORE=" + server.URL()}, "", "ping", "--json")
	got := object(t, r.stdout)
	if took, _ := got["took"].(string); r.exit != 0 || got["store"] != server.URL() || !strings.HasSuffix(took, "s") {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
}

func TestPingCreatesNoStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	r := runMain(t.Context(), []string{"LATER_STORE=" + dir}, "", "ping")
	if _, err := os.Stat(dir); r.exit != 11 || r.stdout != "" || !os.IsNotExist(err) {
		t.Errorf("exit %d: %s, %v", r.exit, r.stdout, err)
	}
	contains(t, r.stderr, "no store at file://"+filepath.ToSlash(dir)+": later send QUEUE PAYLOAD creates one")
	if r := runMain(t.Context(), nil, "", "send", "q", "x", "--store", dir); r.exit != 0 {
		t.Fatal(r.stderr)
	}
	if r := runMain(t.Context(), nil, "", "ping", "--store", dir); r.exit != 0 {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
}

func TestPingOfAStoreThatDoesNotServeCallsSaysWhy(t *testing.T) {
	server := redistest.Start(t)
	c := &cli{t, server.URL()}
	server.Freeze(t)
	started := time.Now()
	contains(t, c.fails(18, "ping", "--timeout", "100ms"), "the store at "+server.URL(), "not answer")
	if took := time.Since(started); took > openTimeout {
		t.Errorf("a ping of a server that hangs took %v", took)
	}
	server.Thaw(t)
	c.ok("ping")
	server.Kill()
	contains(t, c.fails(18, "ping"), "does not answer; is it running")
}
