//go:build unix

package main

import (
	"errors"
	"fmt"
	"log/slog"
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

// openStore opens the store at a URL, without a client.
func openStore(t *testing.T, url string) store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, store.OpenConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// messagesByID returns all messages of a queue by id, each as one line. A leased message looks as if it were released.
func messagesByID(t *testing.T, url, queue string) map[string]string {
	t.Helper()
	s := openStore(t, url)
	defer s.Close()
	all := map[string]string{}
	for _, state := range []store.State{store.StateLeased, store.StateScheduled, store.StateReady, store.StateDead} {
		req := store.ListRequest{State: state, Limit: store.MaxBatch}
		for {
			p, err := s.List(t.Context(), queue, req)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range p.Messages {
				all[i.ID] = fmt.Sprintf("%v %q %q due %d, %d of %d, %v %q, %q at %d, %v %v %d %d %v, raw %v %q",
					i.State == store.StateDead, i.Payload, i.Headers, i.Due.UnixMilli(), i.Attempts, i.MaxAttempts,
					i.Delivered, i.LastError, i.DeadReason, i.DiedAt.UnixMilli(), i.Timeout, i.ExpireAfter,
					i.ExpireAt.UnixMilli(), i.SentAt.UnixMilli(), i.DedupWindow, i.Raw != nil, i.Raw)
			}
			if req.Cursor = p.Next; req.Cursor == "" {
				break
			}
		}
	}
	return all
}

func sameMessages(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for id := range want {
		if got[id] != want[id] {
			t.Errorf("%s: message %q\n got  %s\n want %s", what, id, got[id], want[id])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d messages, want %d", what, len(got), len(want))
	}
}

// fillWithEveryKind adds messages of every kind to a queue; one of them is leased.
func fillWithEveryKind(t *testing.T, url, queue string) {
	t.Helper()
	s := openStore(t, url)
	defer s.Close()
	now := time.Now()
	past, future := now.Add(-time.Hour), now.Add(time.Hour)
	message := func(id string, state store.State, due time.Time, change func(i *store.Info)) store.Info {
		i := store.Info{Message: store.Message{ID: id, Payload: []byte("payload of " + id)}, State: state, Due: due}
		if change != nil {
			change(&i)
		}
		return i
	}
	raw := func(text string) func(i *store.Info) {
		return func(i *store.Info) { i.Message, i.Raw = store.Message{ID: i.ID}, []byte(text) }
	}
	all := []store.Info{
		message("leased", store.StateReady, past.Add(-time.Hour), func(i *store.Info) {
			i.Attempts, i.LastError, i.Delivered = 2, "no", true
		}),
		message("ready", store.StateReady, past, nil),
		message(store.NewID(), store.StateScheduled, future, nil),
		message("full", store.StateScheduled, future, func(i *store.Info) {
			i.Headers, i.SentAt = map[string]string{"k": "v", "größe": "\n"}, past
			i.MaxAttempts, i.Timeout, i.DedupWindow, i.ExpireAfter = 7, time.Minute, time.Hour, time.Second
		}),
		message("expires", store.StateScheduled, future, func(i *store.Info) { i.ExpireAt = future.Add(time.Hour) }),
		message("no longer expires", store.StateReady, past, func(i *store.Info) {
			i.ExpireAfter, i.Delivered = time.Second, true
		}),
		message("failed once", store.StateScheduled, future, func(i *store.Info) {
			i.Attempts, i.LastError, i.Delivered = 1, "tab\tand\nline", true
		}),
		message("bytes", store.StateReady, past, func(i *store.Info) { i.Payload = []byte("\x00\xff") }),
		message("unreadable", store.StateScheduled, future, raw("\xffof a later version")),
		message("dead and unreadable", store.StateDead, past, raw("")),
	}
	reasons := []store.DeadReason{store.DeadFailed, store.DeadLeaseExpired, store.DeadBuried, store.DeadExpired}
	for n, reason := range reasons {
		all = append(all, message("dead: "+string(reason), store.StateDead, past, func(i *store.Info) {
			i.DeadReason, i.DiedAt, i.LastError, i.Attempts = reason, now.Add(-time.Duration(n+1)*time.Minute), "text",
				n
		}))
	}
	all[9].DeadReason, all[9].DiedAt, all[9].LastError = store.DeadUnreadable, past, store.UnreadableText
	for i := range all {
		if err := all[i].Check(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Restore(t.Context(), queue, all); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), queue, store.ClaimRequest{Max: 1, Lease: time.Hour})
	if err != nil || len(c.Messages) != 1 || c.Messages[0].ID != "leased" {
		t.Fatalf("claimed %+v, %v", c.Messages, err)
	}
}

func directory(t *testing.T) (url string) { return fileURL(filepath.Join(t.TempDir(), "later")) }

func TestCopyFromDiskToRedisAndBackLosesNothing(t *testing.T) {
	c, disk, back := newCLI(t), directory(t), directory(t)
	for _, queue := range []string{"a", "b"} {
		fillWithEveryKind(t, disk, queue)
	}
	want := messagesByID(t, disk, "a")
	got := objects(t, c.ok("copy", "--from", disk, "--to", c.store, "--json"))
	for i, queue := range []string{"a", "b"} {
		if q := got[i]; q["queue"] != queue || q["copied"] != 14.0 || q["leased"] != 1.0 || q["moved"] != nil ||
			q["duplicates"] != 0.0 {
			t.Errorf("got %v", q)
		}
	}
	sameMessages(t, "the source", messagesByID(t, disk, "a"), want)
	sameMessages(t, "Redis", messagesByID(t, c.store, "a"), want)

	r := c.run("copy", "--from", c.store, "--to", back, "--queue", "a")
	fields := strings.Fields(r.stdout)
	if r.exit != 0 || !slices.Equal(fields[len(fields)-5:], []string{"a", "14", "0", "0", "0"}) {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	contains(t, r.stderr, "created a store in "+strings.TrimPrefix(back, "file://"))
	sameMessages(t, "the way back", messagesByID(t, back, "a"), want)
	if names := c.ok("queues", "--store", back); names != "a\n" {
		t.Errorf("queues %s", names)
	}
	c.ok("pause", "a")
	r = c.run("copy", "--from", c.store, "--to", back, "--queue", "a")
	contains(t, r.stderr, `queue "a" is paused in the source, but not in the target`)
	contains(t, r.stdout, "QUEUE  COPIED  EXISTING  LEASED  REFUSED\n", "a           0        14       0        0\n")
}

func TestMoveLeavesLeasedMessages(t *testing.T) {
	c, disk := newCLI(t), directory(t)
	fillWithEveryKind(t, disk, "q")
	want := messagesByID(t, disk, "q")
	r := c.run("copy", "--from", disk, "--to", c.store, "--move", "--json")
	if q := object(t, r.stdout); r.exit != 13 || q["moved"] != 13.0 || q["leased"] != 1.0 || q["copied"] != nil {
		t.Errorf("exit %d: %v", r.exit, q)
	}
	contains(t, r.stderr, "1 left in the source, because workers hold them", `"leased"`)
	left := messagesByID(t, disk, "q")
	sameMessages(t, "the source", left, map[string]string{"leased": want["leased"]})
	delete(want, "leased")
	sameMessages(t, "the target", messagesByID(t, c.store, "q"), want)
	if got := object(t, c.ok("stats", "q", "--store", disk, "--json")); got["paused"] != true || got["leased"] != 1.0 {
		t.Errorf("the source has %v", got)
	}
	c.ok("cancel", "q", "ready")
	c.ok("send", "q", "another", "--id", "taken", "--in", "1h")
	c.ok("send", "q", "x", "--id", "taken", "--in", "1h", "--store", disk)
	r = c.run("copy", "--from", disk, "--to", c.store, "--move")
	contains(t, r.stderr, "1 left in the source, because the target has other messages of their ids",
		"paused in the source")
	contains(t, r.stdout, "LEFT: CONFLICTS", "q          0         0             1                1              0\n")
	if r.exit != 12 {
		t.Errorf("exit %d with a conflict and a leased message; want 12, for the conflict", r.exit)
	}
}

func TestCopyErrorsNameTheStore(t *testing.T) {
	c, disk := newCLI(t), directory(t)
	c.ok("send", "q", "x", "--store", disk)
	c.ok("send", "q", "x")
	missing := filepath.Join(t.TempDir(), "none")
	for _, test := range []struct {
		exit int
		args string
		want []string
	}{
		{2, "--to " + disk, []string{"--from is missing", "redis://localhost:6379/0", "embedded store"}},
		{2, "--from " + disk, []string{"--to is missing"}},
		{2, "--from " + disk + " --to " + disk, []string{"--from and --to are the same store"}},
		{
			2, "--from " + strings.TrimPrefix(disk, "file://") + " --to " + disk,
			[]string{"--from and --to are the same store"},
		},
		{2, "--from " + disk + " --to " + c.store + " --store " + disk, []string{"--store is set", "--from and --to"}},
		{2, "--from mem:// --to " + disk, []string{"--from is mem://"}},
		{2, "--from " + disk + " --to mem://x", []string{"--to is mem://x"}},
		{2, "--from redis:/x --to " + disk, []string{"(from --from)"}},
		{2, "--from " + disk + " --to gopher://x", []string{"gopher", "(from --to)"}},
		{11, "--from " + missing + " --to " + disk, []string{"no store in " + missing, "--from"}},
		{18, "--from " + disk + " --to redis://127.0.0.1:1", []string{"does not answer", "from --to"}},
		{18, "--from redis://127.0.0.1:1 --to " + disk, []string{"does not answer", "from --from"}},
		{11, "--from " + disk + " --to " + c.store + " --queue none", []string{`source: queue "none"`}},
		{2, "--from " + disk + " --to " + c.store + " --queue {}", []string{"brace"}},
		{
			2, "--move --from " + c.store + " --to " + strings.Replace(c.store, "127.0.0.1", "localhost", 1),
			[]string{"the same store"},
		},
		{2, "--from " + disk + " --to " + c.store + " extra", []string{"usage: later copy"}},
	} {
		contains(t, c.fails(test.exit, append([]string{"copy"}, strings.Fields(test.args)...)...), test.want...)
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a store was created: %v", err)
	}
	if got := c.ok("queues"); got != "q\n" {
		t.Errorf("queues of the target are %q", got)
	}
	r := c.run("copy", "--from", "redis://127.0.0.1:1", "--to", disk)
	if r.stdout != "" {
		t.Errorf("printed %s", r.stdout)
	}
}

// copied is the number of messages in the tests of interrupted copies: five pages. With the race detector, Pebble takes
// half a millisecond for each message that it reads from a file.
const copied = 5 * store.MaxBatch

// fillMany sends many messages, scheduled, ready and a few dead, and returns their ids.
func fillMany(t *testing.T, url string) map[string]bool {
	t.Helper()
	s := openStore(t, url)
	defer s.Close()
	ids := map[string]bool{}
	now := time.Now()
	for len(ids) < copied {
		var part []store.Info
		for range store.MaxBatch {
			n := len(ids)
			i := store.Info{
				Message: store.Message{ID: store.NewID(), Payload: []byte(fmt.Sprint(n))},
				State:   store.StateReady,
				Due:     now.Add(-time.Hour),
			}
			switch {
			case n%3 == 0:
				i.Due = now.Add(time.Duration(n) * time.Second)
			case n%100 == 1:
				i.State, i.DeadReason, i.DiedAt, i.Attempts = store.StateDead, store.DeadFailed, now.Add(-time.Minute),
					20
			}
			ids[i.ID] = true
			part = append(part, i)
		}
		if _, err := s.Restore(t.Context(), "q", part); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// interruptCopies runs copies and calls end in the middle of each, rounds times. Redis notifies it of each page that is
// written or removed.
func interruptCopies(t *testing.T, rounds int, end func(t *testing.T, p *process)) {
	for _, test := range []struct {
		name            string
		move, fromRedis bool
	}{{"copy to Redis", false, false}, {"move to Redis", true, false}, {"move from Redis", true, true}} {
		t.Run(test.name, func(t *testing.T) {
			server := redistest.Start(t)
			rdb := server.Client(t)
			if err := rdb.ConfigSet(t.Context(), "notify-keyspace-events", "Kh").Err(); err != nil {
				t.Fatal(err)
			}
			c, from := &cli{t, server.URL()}, directory(t)
			to := c.store
			if test.fromRedis {
				from, to = to, from
			}
			ids := fillMany(t, from)
			args := []string{"copy", "--from", from, "--to", to}
			if test.move {
				args = append(args, "--move")
			}
			for round := range rounds {
				changes := rdb.Subscribe(t.Context(), "__keyspace@0__:later:{q}:messages")
				if _, err := changes.Receive(t.Context()); err != nil { // subscribed
					t.Fatal(err)
				}
				p := c.start(args...)
				for range 1 + round {
					select {
					case <-changes.Channel():
					case code := <-p.exited:
						p.exited <- code
					}
				}
				end(t, p)
				changes.Close()
			}
			c.ok(args...)
			got := messagesByID(t, to, "q")
			for id := range ids {
				if got[id] == "" {
					t.Fatalf("message %s is lost", id)
				}
			}
			if len(got) != len(ids) {
				t.Errorf("%d messages, want %d", len(got), len(ids))
			}
			if left := messagesByID(t, from, "q"); test.move && len(left) > 0 || !test.move && len(left) != copied {
				t.Errorf("%d messages are left in the source", len(left))
			}
		})
	}
}

func TestCopyThatIsKilledAndRepeatedNeitherLosesNorDuplicates(t *testing.T) {
	killed := 0
	interruptCopies(t, 2, func(_ *testing.T, p *process) {
		p.cmd.Process.Kill()
		if p.exit() == exitBy(syscall.SIGKILL) {
			killed++
		}
	})
	if killed < 2 {
		t.Errorf("%d copies were killed before their end, want 2 or more", killed)
	}
}

func TestCopyIsStoppedByCtrlCBetweenPagesAndSaysHowToContinue(t *testing.T) {
	stopped := 0
	interruptCopies(t, 1, func(t *testing.T, p *process) {
		p.cmd.Process.Signal(syscall.SIGINT) // fails if the process has ended
		if exit := p.exit(); exit == 130 {
			stopped++
			p.await(p.stderr, "stopped; repeat the command to continue")
		} else if exit != 0 {
			t.Errorf("exit %d", exit)
		}
	})
	if stopped < 2 {
		t.Errorf("%d copies were stopped before their end, want 2 or more", stopped)
	}
}

func TestCopyShowsItsProgress(t *testing.T) {
	if got := progressLine("orders", 1000, 4000, 2*time.Second); got != "orders  1000 of 4000  25 %  500/s" {
		t.Errorf("got %q", got)
	}
	if got := progressLine("a\x1bb", 5, 3, 0); got != `a\x1bb  5 of 5  100 %` {
		t.Errorf("got %q", got)
	}
	var out strings.Builder
	p := progress{to: &out, shown: true, last: time.Now()}
	p.report("orders", 1000, 4000)
	p.report("orders", 1000, 4000) // too soon
	p.clear()
	if got := out.String(); strings.Count(got, "orders") != 1 || !strings.HasSuffix(got, "\r"+clearLine) {
		t.Errorf("wrote %q", got)
	}
	out.Reset()
	p = progress{to: &out}
	p.report("orders", 1000, 4000)
	p.clear()
	if out.Len() > 0 {
		t.Errorf("wrote %q without a terminal", out.String())
	}
}
