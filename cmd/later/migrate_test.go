//go:build unix

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// importInto imports an export and returns the result.
func (c *cli) importInto(export string, args ...string) result {
	c.t.Helper()
	return c.runWith(c.t.Context(), export, append([]string{"import"}, args...)...)
}

func TestExportIsImportedIntoEveryOtherStore(t *testing.T) {
	redis, disk := newCLI(t), newDiskCLI(t)
	cluster := &cli{t, redistest.SharedCluster(t).URL()}
	for _, from := range []*cli{redis, disk} {
		fillWithEveryKind(t, from.store, "q")
		fillWithEveryKind(t, from.store, "mail")
	}
	for _, test := range []struct{ from, to *cli }{{redis, newDiskCLI(t)}, {disk, newCLI(t)}, {disk, cluster}} {
		want := messagesByID(t, test.from.store, "q")
		r := test.from.run("export")
		if r.exit != 0 {
			t.Fatalf("exit %d: %s", r.exit, r.stderr)
		}
		contains(t, r.stderr, "of the exported messages are leased", "exported ", " messages\n")
		in := test.to.importInto(r.stdout)
		if in.exit != 0 {
			t.Fatalf("exit %d: %s", in.exit, in.stderr)
		}
		contains(t, in.stdout, "QUEUE  IMPORTED  EXISTING\nmail ", "\nq ")
		sameMessages(t, "imported", messagesByID(t, test.to.store, "q"), want)
		again := objects(t, test.to.importInto(r.stdout, "--json").stdout)
		if len(again) != 2 || again[0]["queue"] != "mail" || again[0]["imported"] != 0.0 ||
			again[0]["duplicates"] != float64(len(want)) {
			t.Errorf("imported again: %v", again)
		}
		sameMessages(t, "imported again", messagesByID(t, test.to.store, "q"), want)
	}
	for _, queue := range []string{"q", "mail"} {
		cluster.ok("delete", queue, "--yes")
	}
}

func TestExportsAndCopiesHaveLimits(t *testing.T) {
	c, to := newDiskCLI(t), newDiskCLI(t)
	c.ok("send", "mail", "m")
	c.ok("flow", "mail", "--rate", "10/1s", "--fair")
	c.ok("keys", "mail", "customer-7", "--concurrency", "5")
	export := c.ok("export")
	for _, move := range []func() result{
		func() result { return to.importInto(export, "--json") },
		func() result { return to.run("copy", "--from", c.store, "--to", to.store, "--json") },
	} {
		if r := move(); objects(t, r.stdout)[0]["limits"] != "set" {
			t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
		}
		contains(t, to.ok("flow", "mail", "--json"), `"n":10`, `"fair":true`)
		contains(t, to.ok("keys", "mail", "customer-7", "--json"), `"override":{"concurrency":5}`)
		to.ok("delete", "mail", "--yes")
	}
	to.ok("flow", "mail", "--concurrency", "1")
	const note = `queue "mail" has limits of its own, which stay: later flow mail shows them`
	contains(t, to.importInto(export).stderr, note)
	contains(t, to.run("copy", "--from", c.store, "--to", to.store).stderr, note)
}

func TestExportWritesTheNamedQueues(t *testing.T) {
	c := newDiskCLI(t)
	for _, queue := range []string{"a", "b", "c"} {
		c.ok("send", queue, "<x> & y")
	}
	c.ok("pause", "c")
	r := c.run("export", "c", "a", "--json")
	lines := objects(t, r.stdout)
	if len(lines) != 4 || lines[1]["queue"] != "c" || lines[2]["queue"] != "a" ||
		lines[1]["payload_text"] != "<x> & y" {
		t.Errorf("got %s", r.stdout)
	}
	contains(t, r.stdout, "<x> & y")
	if notes := objects(t, r.stderr); len(notes) != 2 || notes[1]["note"] != "exported 2 messages" {
		t.Errorf("notes are %s", r.stderr)
	}
	contains(t, c.ok("export", "--error-pattern", "none"), `{"later_export_end":2,"messages":0}`)
	contains(t, c.ok("export", "a", "--state", "ready"), `"state":"ready"`, `{"later_export_end":2,"messages":1}`)
	contains(t, c.fails(2, "export", "--state", "late"), `state is "late": give scheduled, ready, leased or dead`)
	if got := c.run("export", "none"); got.exit != 11 || got.stdout != "" {
		t.Errorf("exit %d: %s", got.exit, got.stdout)
	}
	if got := newDiskCLI(t).run("export"); got.exit != 11 || !strings.Contains(got.stderr, "there is no store in") {
		t.Errorf("exit %d: %s", got.exit, got.stderr)
	}
}

func TestExportToAFileIsResumed(t *testing.T) {
	c, path := newDiskCLI(t), filepath.Join(t.TempDir(), "x.ndjson")
	fillMany(t, c.store)
	c.ok("export", "--file", path, "--resume") // there is none yet
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, c.fails(2, "export", "--file", path), path+" exists", "resume")
	contains(t, c.fails(2, "export", "--resume"), "--resume needs --file")
	r := c.run("export", "--file", path, "--resume")
	if r.exit != 0 || !strings.Contains(r.stderr, path+" is complete, with ") {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	if err := os.WriteFile(path, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	c.ok("export", "--file", path, "--resume")
	resumed, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(resumed, whole) {
		t.Errorf("%d bytes, want %d; %v", len(resumed), len(whole), err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("id,queue\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(t, c.fails(2, "export", "--file", other, "--resume"), other, "line 1 is not the header of an export")
	contains(t, c.fails(1, "export", "--file", filepath.Join(other, "x")), "not a directory")
}

func TestExportSkipsADamagedQueue(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "good", "x")
	c.damage("bad")
	r := c.run("export")
	if r.exit != 20 || len(objects(t, r.stdout)) != 3 {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	contains(t, r.stderr, `queue "bad"`, "exported 1 message\n")
}

func TestImportThatEndsEarlySaysWhereToContinue(t *testing.T) {
	c := newDiskCLI(t)
	for range 4 {
		c.ok("send", "q", "x")
	}
	lines := strings.SplitAfter(c.ok("export"), "\n")
	for _, test := range []struct {
		input string
		exit  int
		want  []string
	}{
		{strings.Join(lines[:4], ""), 1,
			[]string{"with --from-line 5", "the export is incomplete: it ends after line 4"}},
		{strings.Join(lines[:4], "") + lines[4][:20], 1,
			[]string{"with --from-line 5", "line 5, the last one, is not whole"}},
		{strings.Join(lines[:3], "") + "{}\n" + lines[4], 2,
			[]string{"up to line 3", "use --from-line 4", `line 4: field "queue" is missing`}},
		{"a,b\n", 2, []string{"line 1 is not the header of an export"}},
		{"", 2, []string{"input is empty"}},
	} {
		to := newDiskCLI(t)
		r := to.importInto(test.input)
		if r.exit != test.exit {
			t.Errorf("%.30q: exit %d, want %d", test.input, r.exit, test.exit)
		}
		contains(t, r.stderr, test.want...)
		if made := !isNew(to.store); made != (test.exit == 1 || len(test.want) == 3) {
			t.Errorf("%.30q: created a store: %v", test.input, made)
		}
	}
	to := newDiskCLI(t)
	r := to.importInto(strings.Join(lines, ""), "--from-line", "4", "--json")
	if r.exit != 0 || object(t, r.stdout)["imported"] != 2.0 {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	contains(t, to.fails(2, "import", "--from-line", "0"), "--from-line is 0: must be 1 or more")
}

func TestImportIsStoppedWhileItWaitsForInput(t *testing.T) {
	c := newDiskCLI(t)
	c.ok("send", "q", "x", "--id", "a")
	export := c.ok("export")
	to := newDiskCLI(t)
	in, feed := pipe(t)
	p := to.startAs(os.Args[0], in, "import")
	in.Close()
	defer feed.Close()
	if _, err := io.WriteString(feed,
		export[:strings.LastIndex(strings.TrimSuffix(export, "\n"), "\n")+1]); err != nil {
		t.Fatal(err)
	}
	p.await(p.stderr, "created a store") // it is reading
	p.signal(syscall.SIGTERM)
	if exit := p.exit(); exit != 143 {
		t.Errorf("exit %d, want 143", exit)
	}
	if r := to.importInto(export); r.exit != 0 {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	sameMessages(t, "imported", messagesByID(t, to.store, "q"), messagesByID(t, c.store, "q"))
}

func TestExportToAClosedOutputEndsQuietly(t *testing.T) {
	c := newDiskCLI(t)
	fillMany(t, c.store)
	var stderr bytes.Buffer
	m := &Main{
		Stdin: strings.NewReader(""), Stdout: closedOutput{}, Stderr: &stderr,
		Env: append(os.Environ(), "LATER_STORE="+c.store),
	}
	if exit := m.Run(t.Context(), []string{"export"}); exit != 0 || stderr.Len() > 0 {
		t.Errorf("exit %d: %s", exit, &stderr)
	}
}

type closedOutput struct{}

func (closedOutput) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestImportShowsItsProgress(t *testing.T) {
	if got := progressLine("", 1000, 0, 2*time.Second); got != "1000 messages  500/s" {
		t.Errorf("got %q", got)
	}
	var out strings.Builder
	p := progress{to: &out, shown: true}
	p.report("", 1000, 0)
	p.clear()
	if got := out.String(); !strings.Contains(got, "1000 messages") || !strings.HasSuffix(got, "\r"+clearLine) {
		t.Errorf("wrote %q", got)
	}
}

func TestBackupIsAStore(t *testing.T) {
	c, dir := newDiskCLI(t), filepath.Join(t.TempDir(), "backup")
	fillWithEveryKind(t, c.store, "q")
	want := messagesByID(t, c.store, "q")
	contains(t, c.ok("backup", dir), "backed up "+c.store+" to "+dir+"\n")
	c.ok("delete", "q", "--yes")
	sameMessages(t, "backed up", messagesByID(t, fileURL(dir), "q"), want)
	if got := object(t, c.ok("backup", fileURL(dir)+"2", "--json")); got["dir"] != dir+"2" || got["store"] != c.store {
		t.Errorf("got %v", got)
	}
	contains(t, c.fails(2, "backup", dir), dir+" holds ")
	inside, _ := directoryOf(c.store)
	contains(t, c.fails(2, "backup", filepath.Join(inside, "x")), "in each other")
	contains(t, c.fails(2, "backup"), "usage: later backup DIR")
	contains(t, newDiskCLI(t).fails(11, "backup", dir+"3"), "there is no store in")
	contains(t, newCLI(t).fails(19, "backup", dir+"3"), "later export")
	if names, err := os.ReadDir(filepath.Dir(dir)); err != nil || slices.ContainsFunc(names, func(e os.DirEntry) bool {
		return e.Name() != "backup" && e.Name() != "backup2"
	}) {
		t.Errorf("left %v, %v", names, err)
	}
}

func TestBackupOfAStoreInUseSuggestsClientBackup(t *testing.T) {
	c := &cli{t, heldStore(t)}
	contains(t, c.fails(18, "backup", filepath.Join(t.TempDir(), "b")), "is in use by process", "Client.Backup")
}

func TestBackupDirectoriesAreRelativeToTheCurrentOne(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	m := &Main{Env: []string{"HOME=/home/ann"}}
	for text, want := range map[string]string{
		"b": filepath.Join(here, "b"), "./b": filepath.Join(here, "b"), "/b": "/b", "~/b": "/home/ann/b",
		"file:///b": "/b",
	} {
		if got, err := m.backupDirectory(text); err != nil || got != want {
			t.Errorf("%s is %s, %v, want %s", text, got, err, want)
		}
	}
	if _, err := m.backupDirectory("file://b"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}
