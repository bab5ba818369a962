package main

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later"
)

// newEmbedded returns a cli on an embedded store with three messages in queue q and one in queue other.
func newEmbedded(t *testing.T) (c *cli, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	c = &cli{t, fileURL(dir)}
	for _, id := range []string{"a", "b", "c"} {
		c.ok("send", "q", "payload of "+id, "--id", id)
	}
	c.ok("send", "other", "x", "--id", "o")
	return c, dir
}

// change calls f with the database of a store that is not open.
func change(t *testing.T, dir string, f func(db *pebble.DB)) {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatTableFormatV6, Logger: silent{},
		Merger: &pebble.Merger{Name: "later", Merge: merge}})
	if err != nil {
		t.Fatal(err)
	}
	f(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// merge merges values as package diskstore does: it adds up counts by due time, and appends to other values.
func merge(key, value []byte) (pebble.ValueMerger, error) {
	if len(key) < 5 || key[4] != 'c' {
		return pebble.DefaultMerger.Merge(key, value)
	}
	n := new(count)
	return n, n.MergeNewer(value)
}

type count int64

func (n *count) MergeNewer(value []byte) error {
	more, _ := binary.Varint(value)
	*n += count(more)
	return nil
}

func (n *count) MergeOlder(value []byte) error { return n.MergeNewer(value) }

func (n *count) Finish(bool) ([]byte, io.Closer, error) {
	return binary.AppendVarint(nil, int64(*n)), nil, nil
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}

func TestDoctorFindsNoIssuesInAnIntactStore(t *testing.T) {
	c, dir := newEmbedded(t)
	out := c.ok("doctor")
	contains(t, out, "ok        ", "queue q: messages: 3 (3 scheduled or ready", "queue other: messages: 1 (",
		"match their checksums")
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "ok  ") {
			t.Errorf("line %q", line)
		}
	}
	for _, f := range objects(t, c.ok("doctor", "--json")) {
		if f["severity"] != "ok" || f["check"] == "" || f["text"] == "" || f["repaired"] != false {
			t.Errorf("result %v", f)
		}
	}
	if got := c.ok("stats"); !strings.Contains(got, "q") {
		t.Errorf("stats afterwards: %q", got)
	}
	contains(t, c.fails(11, "doctor", "--store", filepath.Join(dir, "none")),
		"there is no store in "+filepath.Join(dir, "none"))
	contains(t, c.fails(2, "doctor", "extra"), "usage: later doctor")
}

func TestDoctorReportsInconsistenciesAndRecoversWithoutThem(t *testing.T) {
	c, dir := newEmbedded(t)
	change(t, dir, func(db *pebble.DB) {
		// A due entry at 5 ms after 1970 without a message, which the counters do not include: see diskstore/keys.go.
		if err := db.Set([]byte("\x00\x00\x00\x01d\x00\x00\x00\x00\x00\x05nobody"), nil, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	})
	r := c.run("doctor")
	if r.exit != 20 || r.stderr != "later: store corrupt: 1 error remains\n" {
		t.Errorf("exit %d: %s", r.exit, r.stderr)
	}
	contains(t, r.stdout,
		"error     queue q: an index does not match the messages: by due time has 4 entries for 3 messages\n"+
			"            stop the program and recover all readable messages: later doctor --store "+c.store+
			" --recover NEWDIR\n")
	if r := c.run("doctor", "--repair"); r.exit != 20 { // nothing is repaired in place
		t.Errorf("with --repair: exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	target := filepath.Join(t.TempDir(), "new")
	c.ok("doctor", "--recover", target)
	c = &cli{t, fileURL(target)}
	c.ok("doctor")
	if got := c.ok("work", "q", "--max", "3"); len(strings.Split(strings.TrimSpace(got), "\n")) != 3 {
		t.Errorf("work printed %q", got)
	}
}

func TestDoctorRecoversADamagedStore(t *testing.T) {
	c, dir := newEmbedded(t)
	manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatal(manifests, err)
	}
	for _, path := range manifests {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[20] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	contains(t, c.fails(20, "stats"), "MANIFEST-", "later doctor --store "+c.store, "--recover")
	r := c.run("doctor", "--json")
	if r.exit != 20 || !strings.Contains(r.stdout, `"check":"files"`) || !strings.Contains(r.stdout, "--recover") {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	target := filepath.Join(t.TempDir(), "new")
	r = c.run("doctor", "--recover", target)
	if r.exit != 20 || !strings.Contains(r.stderr, "recovered the readable messages to "+target) ||
		!strings.Contains(r.stdout, "queue q: messages: 3 (") {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	recovered := &cli{t, fileURL(target)}
	recovered.ok("doctor")
	if got := object(t, recovered.ok("stats", "q", "--json")); got["ready"] != 3.0 {
		t.Errorf("the new store has %v", got)
	}
	contains(t, c.fails(2, "doctor", "--recover", target), "holds", "give an empty one")
	contains(t, c.fails(2, "doctor", "--recover", target, "--repair"), "both given")
}

func TestDoctorOfAStoreWithNothingToCheck(t *testing.T) {
	c := &cli{t, "mem://"}
	r := c.run("doctor")
	if r.exit != 0 || r.stdout != "" || !strings.Contains(r.stderr, "nothing to check in mem://") {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	contains(t, c.fails(2, "doctor", "--recover", t.TempDir()), "--recover needs an embedded store", "mem://")
}

func TestDoctorNamesWhoHasTheStore(t *testing.T) {
	c, dir := newEmbedded(t)
	client, err := later.Open(t.Context(), unshared(c.store))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	contains(t, c.fails(18, "doctor"), dir, "is in use by process")
	contains(t, c.fails(18, "doctor", "--recover", filepath.Join(t.TempDir(), "new")), dir, "is in use by process")
}
