package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// runAsProgramEnv is an environment variable that makes the test binary run as the program. Tests of signals and of
// restarting need a separate process, and the test binary has the race detector.
const runAsProgramEnv = "LATER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(runAsProgramEnv) != "" {
		openTimeout = 15 * time.Second // tests start many processes at once
		main()
	}
	logging.Disable() // as main does
	redistest.Main(m)
}

// cli runs commands on a store.
type cli struct {
	t     *testing.T
	store string
}

// newCLI returns a cli on the shared Redis, with a key prefix of its own.
func newCLI(t *testing.T) *cli {
	t.Helper()
	return &cli{t, redistest.Shared(t).URL() + "?prefix=" + strconv.FormatUint(rand.Uint64(), 36) + ":"}
}

type result struct {
	exit           int
	stdout, stderr string
}

// run runs the program in this process.
func (c *cli) run(args ...string) result {
	c.t.Helper()
	return c.runWith(c.t.Context(), "", args...)
}

func (c *cli) runWith(ctx context.Context, stdin string, args ...string) result {
	c.t.Helper()
	env := append(os.Environ(), "LATER_STORE="+c.store, "REDIS_URL=")
	return runMain(ctx, env, stdin, args...)
}

func runMain(ctx context.Context, env []string, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	m := &Main{Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr, Env: env}
	exit := m.Run(ctx, args)
	return result{exit, stdout.String(), stderr.String()}
}

// ok runs a command that must succeed and returns its standard output.
func (c *cli) ok(args ...string) string {
	c.t.Helper()
	r := c.run(args...)
	if r.exit != 0 {
		c.t.Fatalf("later %q: exit %d: %s", args, r.exit, r.stderr)
	}
	return r.stdout
}

// fails runs a command that must exit with this code and returns its standard error.
func (c *cli) fails(exit int, args ...string) string {
	c.t.Helper()
	r := c.run(args...)
	if r.exit != exit {
		c.t.Fatalf("later %q: exit %d, want %d\nstdout: %s\nstderr: %s", args, r.exit, exit, r.stdout, r.stderr)
	}
	return r.stderr
}

// client returns a client of the cli's store.
func (c *cli) client() *later.Client {
	c.t.Helper()
	client, err := later.Open(c.t.Context(), c.store)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { client.Close() })
	return client
}

// bury receives a message of a queue and buries it with an error.
func (c *cli) bury(queue, text string) {
	c.t.Helper()
	got, err := c.client().Queue(queue).Receive(c.t.Context(), 1)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := got[0].Bury(c.t.Context(), errors.New(text)); err != nil {
		c.t.Fatal(err)
	}
}

// damage creates a queue that cannot be read.
func (c *cli) damage(queue string) {
	c.t.Helper()
	c.ok("send", queue, "x")
	_, prefix, _ := strings.Cut(c.store, "?prefix=")
	due := prefix + "{" + queue + "}:due"
	rdb := redistest.Shared(c.t).Client(c.t)
	if err := rdb.Del(c.t.Context(), due).Err(); err != nil {
		c.t.Fatal(err)
	}
	if err := rdb.Set(c.t.Context(), due, "x", 0).Err(); err != nil {
		c.t.Fatal(err)
	}
}

// objects parses one JSON object per line.
func objects(t *testing.T, output string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(output) {
		object := map[string]any{}
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatalf("%q is not a JSON object: %v", line, err)
		}
		all = append(all, object)
	}
	return all
}

// object parses a single line of JSON.
func object(t *testing.T, output string) map[string]any {
	t.Helper()
	all := objects(t, output)
	if len(all) != 1 {
		t.Fatalf("%d lines, want 1: %s", len(all), output)
	}
	return all[0]
}

// contains fails the test if text lacks one of the parts.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("missing %q in:\n%s", part, text)
		}
	}
}
