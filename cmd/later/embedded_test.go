//go:build unix

package main

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
)

// newDiskCLI returns a cli on a new embedded store.
func newDiskCLI(t *testing.T) *cli {
	t.Helper()
	return &cli{t, fileURL(filepath.Join(t.TempDir(), "store"))}
}

func TestDefaultStoreIsTheEmbeddedStoreOfTheUser(t *testing.T) {
	home := t.TempDir()
	env := []string{"HOME=" + home}
	dir, err := (&Main{Env: env}).defaultStore()
	if err != nil {
		t.Fatal(err)
	}
	path, _ := directoryOf(dir)
	for _, refused := range [][]string{
		{"send", "mail"}, {"send", "mail", "x", "--header", "k"}, {"send", "mail", "--batch", "--id", "a"},
	} {
		if r := runMain(t.Context(), env, "", refused...); r.exit != 2 || !isNew(dir) {
			t.Errorf("later %q: exit %d, want 2 and no store: %s", refused, r.exit, r.stderr)
		}
	}
	r := runMain(t.Context(), env, "", "send", "mail", "hello", "--id", "a")
	created := "later: created a store in " + path + "; use --store, LATER_STORE or REDIS_URL for another\n"
	if r.exit != 0 || r.stderr != created {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	if !strings.HasPrefix(path, home) {
		t.Errorf("the store is in %s, want it under %s", path, home)
	}
	r = runMain(t.Context(), env, "", "work", "mail", "--max", "1")
	if r.exit != 0 || r.stdout != "hello\n" {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	contains(t, r.stderr, "store="+dir)
	if r = runMain(t.Context(), env, "", "delete", "mail", "--yes"); r.exit != 0 {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	r = runMain(t.Context(), env, "", "stats")
	contains(t, r.stderr, "there are no queues yet in "+dir)
	contains(t, runMain(t.Context(), env, "", "version").stdout, "\nstore "+dir+" (the default)\n")
	v := object(t, runMain(t.Context(), env, "", "version", "--json").stdout)
	if v["store"] != dir || v["store_from"] != "the default" {
		t.Errorf("version printed %v", v)
	}
}

func TestDataDirectoryIsThatOfThePlatform(t *testing.T) {
	for _, test := range []struct {
		goos string
		env  map[string]string
		want string // the directory, or part of the error
	}{
		{"linux", map[string]string{"HOME": "/home/ann"}, "/home/ann/.local/share/later"},
		{"linux", map[string]string{"HOME": "/home/ann", "XDG_DATA_HOME": "/data"}, "/data/later"},
		{"linux", map[string]string{"XDG_DATA_HOME": "/data"}, "/data/later"},
		{"linux", map[string]string{"HOME": "/home/ann", "XDG_DATA_HOME": "data"}, "/home/ann/.local/share/later"},
		{"freebsd", map[string]string{"HOME": "/home/ann"}, "/home/ann/.local/share/later"},
		{"darwin", map[string]string{"HOME": "/Users/ann"}, "/Users/ann/Library/Application Support/later"},
		{"windows", map[string]string{"LocalAppData": "/local"}, "/local/later"},
		{"linux", nil, "HOME is not set"},
		{"darwin", nil, "HOME is not set"},
		{"windows", map[string]string{"HOME": "/home/ann"}, "LocalAppData is not set"},
		{"linux", map[string]string{"HOME": "ann"}, `HOME is "ann", not an absolute directory`},
	} {
		got, err := dataDirectory(test.goos, func(name string) string { return test.env[name] })
		if err != nil {
			got = err.Error()
		}
		if got != test.want && (err == nil || !strings.Contains(got, test.want)) {
			t.Errorf("%s with %v: %q, want %q", test.goos, test.env, got, test.want)
		}
	}
}

func TestDirectoriesNameEmbeddedStores(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	m := &Main{Env: []string{"HOME=/home/ann"}}
	for text, want := range map[string]string{
		"./a":                   fileURL(here) + "/a",
		".":                     fileURL(here),
		"../a":                  fileURL(filepath.Dir(here)) + "/a",
		"~/a/b":                 "file:///home/ann/a/b",
		"/a/b c%":               "file:///a/b%20c%25",
		"file:///a?sync=1s":     "file:///a?sync=1s",
		"redis://localhost/0":   "redis://localhost/0",
		"mem://":                "mem://",
		"file://a/b":            "use ./a/b, or file:///DIRECTORY",
		"file:a":                fileURL(here) + "/a",
		"file:./a?sync=1s":      fileURL(here) + "/a?sync=1s",
		"file:":                 "names no directory",
		"file://./a":            "use ./a, or file:///DIRECTORY",
		"file:/a":               "file:///a",
		"a/b":                   "neither a URL nor a directory",
		"":                      "neither a URL nor a directory",
		"user:secret@localhost": "neither a URL nor a directory",
		"./a?sync=1s":           "has a question mark: to set parameters, use a URL, " + fileURL(here) + "/a?sync=1s",
	} {
		got, err := m.storeURLOf(text)
		if err != nil {
			got = err.Error()
			if later.CodeOf(err) != "invalid" || strings.Contains(got, "secret") {
				t.Errorf("%q: %v", text, err)
			}
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	if _, err := (&Main{}).storeURLOf("~/a"); err == nil || !strings.Contains(err.Error(), "HOME") {
		t.Errorf("without HOME ~/a is %v", err)
	}
}

func TestEveryCommandWorksOnTheEmbeddedStore(t *testing.T) {
	c := newDiskCLI(t)
	if r := c.runWith(t.Context(), "a\nb\nc\n", "send", "q", "--batch", "--max-attempts", "1"); r.exit != 0 {
		t.Fatal(r.stderr)
	}
	c.ok("send", "q", "x", "--id", "x", "--in", "1h")
	c.fails(12, "send", "q", "x", "--id", "x")
	contains(t, c.ok("get", "q", "x"), "scheduled")
	c.ok("reschedule", "q", "x", "--in", "2h")
	c.ok("run-now", "q", "x")
	if got := c.ok("cancel", "q", "x"); got != "cancelled x, which was ready\n" {
		t.Errorf("got %q", got)
	}
	c.ok("pause", "q")
	contains(t, c.ok("stats"), "paused")
	c.ok("resume", "q")
	if got := c.ok("work", "q", "--max", "1"); got != "a\n" {
		t.Errorf("got %q", got)
	}
	c.run("work", "q", "--max", "2", "--exec", "exit 1")
	if got := len(objects(t, c.ok("dead", "list", "q", "--json"))); got != 2 {
		t.Errorf("%d dead, want 2", got)
	}
	if got := c.ok("dead", "replay", "q", "--all"); got != "replayed 2\n" {
		t.Errorf("got %q", got)
	}
	if got := len(objects(t, c.ok("list", "q", "--state", "ready", "--json"))); got != 2 {
		t.Errorf("%d ready, want 2", got)
	}
	if got := c.ok("purge", "q", "--yes"); got != "purged 2\n" {
		t.Errorf("got %q", got)
	}
	contains(t, c.ok("__complete", "stats", ""), "q\n")
	c.ok("delete", "q", "--yes")
	if got := c.ok("queues"); got != "" {
		t.Errorf("left: %s", got)
	}
}

func TestCompletionCreatesNoStore(t *testing.T) {
	home, empty := t.TempDir(), t.TempDir()
	for _, args := range [][]string{
		{"stats", ""}, {"work", "--store", empty, ""}, {"work", "--store", filepath.Join(empty, "a"), ""},
	} {
		r := runMain(t.Context(), []string{"HOME=" + home}, "", append([]string{"__complete"}, args...)...)
		if r.exit != 0 || r.stdout != ":4\n" {
			t.Errorf("%q: exit %d: %q", args, r.exit, r.stdout)
		}
	}
	for _, dir := range []string{home, empty} {
		if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
			t.Errorf("%s holds %v, %v", dir, names, err)
		}
	}
}

func TestProcessesShareAnEmbeddedStore(t *testing.T) {
	c := newDiskCLI(t)
	p := c.start("work", "mail")
	p.await(p.stderr, "working on mail")
	c.ok("send", "mail", "hello")
	p.await(p.stdout, "hello")
	other := c.start("work", "mail")
	other.await(other.stderr, "working on mail")
	p.signal(syscall.SIGKILL) // it had the directory open
	p.exit()
	c.ok("send", "mail", "again")
	other.await(other.stdout, "again")
	contains(t, c.ok("doctor"), "ok")
	c.ok("backup", filepath.Join(t.TempDir(), "backup"))
	other.signal(syscall.SIGTERM)
	if exit := other.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestStoreThatIsNotSharedIsExit18AndNamesTheHolder(t *testing.T) {
	c := newDiskCLI(t)
	c.store = unshared(c.store)
	p := c.start("work", "mail")
	p.await(p.stderr, "working on mail")
	got := c.fails(18, "send", "mail", "hello")
	contains(t, got, "is in use by process ", ", since 2", "Stop that process, or use Redis", "--store redis://")
	if strings.Contains(got, "store unavailable") {
		t.Errorf("the error repeats its kind: %s", got)
	}
	e, _ := object(t, c.fails(18, "stats", "--json"))["error"].(map[string]any)
	if e["code"] != "unavailable" {
		t.Errorf("got %v", e)
	}
	p.signal(syscall.SIGTERM)
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
	c.ok("send", "mail", "hello")
}

// heldStore returns the URL of a store that is open until the test ends, and not shared.
func heldStore(t *testing.T) string {
	t.Helper()
	url := unshared(newDiskCLI(t).store)
	holder, err := later.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.Close() })
	return url
}

func TestOpenWaitsASecondForAStoreInUse(t *testing.T) {
	url := heldStore(t)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := runMain(t.Context(), nil, "", "stats", "--store", url)
		if took := time.Since(began); r.exit != 18 || took < holderWait || took > holderWait+2*maxRetryPause {
			t.Errorf("exit %d after %v: %s", r.exit, took, r.stderr)
		}
	})
}

func TestOpenWaitsLongerForAYoungHolder(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ age, want time.Duration }{
		{time.Second, 2 * time.Second}, {2500 * time.Millisecond, time.Second}, {time.Hour, time.Second},
		{-time.Hour, time.Second}, // from another clock
	} {
		if got := holderWaitEnds(now.Add(-c.age), now).Sub(now); got != c.want {
			t.Errorf("wait for a holder of age %v: %v, want %v", c.age, got, c.want)
		}
	}
	if got := holderWaitEnds(time.Time{}, now).Sub(now); got != time.Second {
		t.Errorf("wait for a holder of unknown age: %v", got)
	}
}

func TestWaitForAStoreEndsWithItsContext(t *testing.T) {
	url := heldStore(t)
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
		began := time.Now()
		_, err := openWithRetry(ctx, url)
		if took := time.Since(began); !errors.Is(err, cause) || took != 100*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestShortCommandsAtTheSameTimeAllSucceed(t *testing.T) {
	c := newDiskCLI(t)
	var commands sync.WaitGroup
	for range 12 {
		commands.Go(func() {
			if r := c.run("send", "q", "x"); r.exit != 0 {
				t.Errorf("exit %d: %s", r.exit, r.stderr)
			}
		})
	}
	commands.Wait()
	if got := object(t, c.ok("stats", "q", "--json")); got["ready"] != 12.0 {
		t.Errorf("got %v", got)
	}
}

func TestDirectoryThatCannotBeCreatedIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := runMain(t.Context(), []string{"HOME=" + file, "XDG_DATA_HOME=" + file}, "", "stats")
	if r.exit != 18 {
		t.Errorf("exit %d, want 18", r.exit)
	}
	contains(t, r.stderr, file, "(the default) cannot be used", "not a directory",
		"use --store, LATER_STORE or REDIS_URL for another")
	r = runMain(t.Context(), nil, "", "stats", "--store", filepath.Join(file, "x"))
	contains(t, r.stderr, "(from --store) cannot be used")
	foreign := filepath.Dir(file)
	r = runMain(t.Context(), nil, "", "stats", "--store", foreign)
	if r.exit != 19 {
		t.Errorf("exit %d, want 19", r.exit)
	}
	contains(t, r.stderr, "holds file and is not a store of Later")
}

func TestNothingOfPebbleReachesTheTerminal(t *testing.T) {
	c := newDiskCLI(t)
	for _, args := range [][]string{{"send", "q", "x"}, {"stats"}, {"work", "q", "--max", "1"},
		{"delete", "q", "--yes"}} {
		if got := c.run(args...).stderr; strings.Contains(got, "pebble") || strings.Contains(got, "WAL") {
			t.Errorf("%q printed:\n%s", args, got)
		}
	}
	u, _ := url.Parse(c.store)
	if _, err := os.Stat(filepath.Join(u.Path, "LATER")); errors.Is(err, fs.ErrNotExist) {
		t.Error("there is no embedded store")
	}
}

func TestScheduleApplyDryRunCreatesNoStore(t *testing.T) {
	c := newDiskCLI(t)
	file := filepath.Join(t.TempDir(), "schedules.yaml")
	if err := os.WriteFile(file, []byte("schedules: [{name: hb, queue: pings, every: 30s}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(t, c.ok("schedule", "apply", file, "--dry-run"), "+ hb\n", "1 created")
	if !isNew(c.store) {
		t.Error("there is a store")
	}
	contains(t, c.ok("schedule", "apply", file), "1 created")
	contains(t, c.ok("schedule", "apply", file, "--dry-run"), "1 unchanged")
}
