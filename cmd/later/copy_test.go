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

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// openStore opens a store by its URL, without a client.
func openStore(t *testing.T, url string) store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, store.OpenConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// told gives all messages of a queue, a leased one as it is when it is given back, each in a line by its id.
func told(t *testing.T, url, queue string) map[string]string {
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
				all[i.ID] = fmt.Sprintf("%v %q %q due %d, %d of %d, %v %q, %q at %d, %v %v %d %d %v, raw %v %q", i.State == store.StateDead, i.Payload, i.Headers,
					i.Due.UnixMilli(), i.Attempts, i.MaxAttempts, i.Delivered, i.LastError, i.DeadReason, i.DiedAt.UnixMilli(),
					i.Timeout, i.ExpireAfter, i.ExpireAt.UnixMilli(), i.SentAt.UnixMilli(), i.Remember, i.Raw != nil, i.Raw)
			}
			if req.Cursor = p.Next; req.Cursor == "" {
				break
			}
		}
	}
	return all
}

func sameTold(t *testing.T, what string, got, want map[string]string) {
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

// fillWithAll puts messages of every kind into a queue, of which a worker holds one.
func fillWithAll(t *testing.T, url, queue string) {
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
		message("leased", store.StateReady, past.Add(-time.Hour), func(i *store.Info) { i.Attempts, i.LastError, i.Delivered = 2, "no", true }),
		message("ready", store.StateReady, past, nil),
		message(store.NewID(), store.StateScheduled, future, nil),
		message("full", store.StateScheduled, future, func(i *store.Info) {
			i.Headers, i.SentAt = map[string]string{"k": "v", "größe": "\n"}, past
			i.MaxAttempts, i.Timeout, i.Remember, i.ExpireAfter = 7, time.Minute, time.Hour, time.Second
		}),
		message("expires", store.StateScheduled, future, func(i *store.Info) { i.ExpireAt = future.Add(time.Hour) }),
		message("no longer expires", store.StateReady, past, func(i *store.Info) { i.ExpireAfter, i.Delivered = time.Second, true }),
		message("failed once", store.StateScheduled, future, func(i *store.Info) { i.Attempts, i.LastError, i.Delivered = 1, "tab\tand\nline", true }),
		message("bytes", store.StateReady, past, func(i *store.Info) { i.Payload = []byte("\x00\xff") }),
		message("unreadable", store.StateScheduled, future, raw("\xffof a later version")),
		message("dead and unreadable", store.StateDead, past, raw("")),
	}
	for n, reason := range []store.DeadReason{store.DeadFailed, store.DeadLeaseExpired, store.DeadBuried, store.DeadExpired} {
		all = append(all, message("dead: "+string(reason), store.StateDead, past, func(i *store.Info) {
			i.DeadReason, i.DiedAt, i.LastError, i.Attempts = reason, now.Add(-time.Duration(n+1)*time.Minute), "text", n
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
		fillWithAll(t, disk, queue)
	}
	want := told(t, disk, "a")
	got := objects(t, c.ok("copy", "--from", disk, "--to", c.store, "--json"))
	for i, queue := range []string{"a", "b"} {
		if q := got[i]; q["queue"] != queue || q["copied"] != 14.0 || q["leased"] != 1.0 || q["moved"] != nil || q["duplicates"] != 0.0 {
			t.Errorf("got %v", q)
		}
	}
	sameTold(t, "the source", told(t, disk, "a"), want)
	sameTold(t, "Redis", told(t, c.store, "a"), want)

	r := c.run("copy", "--from", c.store, "--to", back, "--queue", "a")
	if fields := strings.Fields(r.stdout); r.exit != 0 || !slices.Equal(fields[len(fields)-5:], []string{"a", "14", "0", "0", "0"}) {
		t.Errorf("exit %d: %s%s", r.exit, r.stdout, r.stderr)
	}
	contains(t, r.stderr, "made a new store in "+strings.TrimPrefix(back, "file://"))
	sameTold(t, "the way back", told(t, back, "a"), want)
	if names := c.ok("queues", "--store", back); names != "a\n" {
		t.Errorf("queues %s", names)
	}
	c.ok("pause", "a")
	r = c.run("copy", "--from", c.store, "--to", back, "--queue", "a")
	contains(t, r.stderr, `queue "a" was paused in the source; it is not paused in the target`)
	contains(t, r.stdout, "QUEUE  COPIED  THERE ALREADY  LEASED  REFUSED\n", "a           0             14       0        0\n")
}

func TestMoveLeavesWhatWorkersHold(t *testing.T) {
	c, disk := newCLI(t), directory(t)
	fillWithAll(t, disk, "q")
	want := told(t, disk, "q")
	r := c.run("copy", "--from", disk, "--to", c.store, "--move", "--json")
	if q := object(t, r.stdout); r.exit != 13 || q["moved"] != 13.0 || q["leased"] != 1.0 || q["copied"] != nil {
		t.Errorf("exit %d: %v", r.exit, q)
	}
	contains(t, r.stderr, "1 left in the source, because workers hold them", `"leased"`)
	left := told(t, disk, "q")
	sameTold(t, "the source", left, map[string]string{"leased": want["leased"]})
	delete(want, "leased")
	sameTold(t, "the target", told(t, c.store, "q"), want)
	if got := object(t, c.ok("stats", "q", "--store", disk, "--json")); got["paused"] != true || got["leased"] != 1.0 {
		t.Errorf("the source has %v", got)
	}
	c.ok("cancel", "q", "ready")
	c.ok("send", "q", "another", "--id", "taken", "--in", "1h")
	c.ok("send", "q", "x", "--id", "taken", "--in", "1h", "--store", disk)
	r = c.run("copy", "--from", disk, "--to", c.store, "--move")
	contains(t, r.stderr, "1 left in the source, because the target has other messages of their ids", "paused in the source")
	contains(t, r.stdout, "LEFT: CONFLICTS", "q          0              0             1                1              0\n")
	if r.exit != 13 && r.exit != 12 {
		t.Errorf("exit %d", r.exit)
	}
}

func TestCopySaysWhatIsWrongWithItsStores(t *testing.T) {
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
		{2, "--from " + strings.TrimPrefix(disk, "file://") + " --to " + disk, []string{"--from and --to are the same store"}},
		{2, "--from " + disk + " --to " + c.store + " --store " + disk, []string{"--store is given", "--from and --to"}},
		{2, "--from mem:// --to " + disk, []string{"--from is mem://"}},
		{2, "--from " + disk + " --to mem://x", []string{"--to is mem://x"}},
		{2, "--from redis:/x --to " + disk, []string{"(from --from)"}},
		{2, "--from " + disk + " --to gopher://x", []string{"gopher", "(from --to)"}},
		{11, "--from " + missing + " --to " + disk, []string{"no store in " + missing, "--from"}},
		{18, "--from " + disk + " --to redis://127.0.0.1:1", []string{"does not answer", "from --to"}},
		{18, "--from redis://127.0.0.1:1 --to " + disk, []string{"does not answer", "from --from"}},
		{11, "--from " + disk + " --to " + c.store + " --queue none", []string{`queue "none" of the source`}},
		{2, "--from " + disk + " --to " + c.store + " --queue {}", []string{"brace"}},
		{2, "--move --from " + c.store + " --to " + strings.Replace(c.store, "127.0.0.1", "localhost", 1), []string{"the same store"}},
		{2, "--from " + disk + " --to " + c.store + " extra", []string{"usage: later copy"}},
	} {
		contains(t, c.fails(test.exit, append([]string{"copy"}, strings.Fields(test.args)...)...), test.want...)
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a store was made: %v", err)
	}
	if got := c.ok("queues"); got != "q\n" {
		t.Errorf("queues of the target are %q", got)
	}
	r := c.run("copy", "--from", "redis://127.0.0.1:1", "--to", disk)
	if r.stdout != "" {
		t.Errorf("printed %s", r.stdout)
	}
}

// copied is how many messages the tests of interrupted copies have: enough for many pages.
const copied = 6_000

// fillMany sends many messages, scheduled and ready ones and a few dead, and gives the ids.
func fillMany(t *testing.T, url string) map[string]bool {
	t.Helper()
	s := openStore(t, url)
	defer s.Close()
	ids := map[string]bool{}
	now := time.Now()
	for len(ids) < copied {
		var part []store.Info
		for range store.MaxBatch {
			i := store.Info{Message: store.Message{ID: store.NewID(), Payload: []byte(fmt.Sprint(len(ids)))}, State: store.StateReady, Due: now.Add(-time.Hour)}
			switch n := len(ids); {
			case n%3 == 0:
				i.Due = now.Add(time.Duration(n) * time.Second)
			case n%100 == 1:
				i.State, i.DeadReason, i.DiedAt, i.Attempts = store.StateDead, store.DeadFailed, now.Add(-time.Minute), 20
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

// interruptions are copies that are ended in the midst, so many times each. Redis tells of each page that is written
// to it or removed from it.
func interruptions(t *testing.T, rounds int, end func(t *testing.T, p *process)) {
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
				changes := rdb.Subscribe(t.Context(), "__keyspace@0__:later:{q}:msg")
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
			got := told(t, to, "q")
			for id := range ids {
				if got[id] == "" {
					t.Fatalf("message %s is lost", id)
				}
			}
			if len(got) != len(ids) {
				t.Errorf("%d messages, want %d", len(got), len(ids))
			}
			if left := told(t, from, "q"); test.move && len(left) > 0 || !test.move && len(left) != copied {
				t.Errorf("%d messages are left in the source", len(left))
			}
		})
	}
}

func TestACopyThatIsKilledAndMadeAgainLosesAndDoublesNothing(t *testing.T) {
	killed := 0
	interruptions(t, 3, func(_ *testing.T, p *process) {
		p.cmd.Process.Kill()
		if p.exit() == exitBy(syscall.SIGKILL) {
			killed++
		}
	})
	if killed < 3 {
		t.Errorf("only %d copies were killed before their end", killed)
	}
}

func TestCtrlCStopsACopyBetweenPagesAndSaysHowToGoOn(t *testing.T) {
	stopped := 0
	interruptions(t, 1, func(t *testing.T, p *process) {
		p.cmd.Process.Signal(syscall.SIGINT) // unless it has ended
		if exit := p.exit(); exit == 130 {
			stopped++
			p.await(p.stderr, "stopped; what was done stays, and the same command goes on")
		} else if exit != 0 {
			t.Errorf("exit %d", exit)
		}
	})
	if stopped < 2 {
		t.Errorf("only %d copies were stopped before their end", stopped)
	}
}

func TestProgressTellsHowFarACopyIs(t *testing.T) {
	q := later.QueueCopy{Queue: "orders", Total: 4000, Copied: 900, Duplicates: 100}
	if got := progressLine(q, 2*time.Second); got != "orders  1000 of 4000  25 %  500/s" {
		t.Errorf("got %q", got)
	}
	if got := progressLine(later.QueueCopy{Queue: "a\x1bb", Copied: 5, Total: 3}, 0); got != `a\x1bb  5 of 5  100 %` {
		t.Errorf("got %q", got)
	}
	var out strings.Builder
	p := copyProgress{to: &out, shown: true, last: time.Now()}
	p.report(q)
	p.report(q) // too soon
	p.clear()
	if got := out.String(); strings.Count(got, "orders") != 1 || !strings.HasSuffix(got, "\r"+clearLine) {
		t.Errorf("wrote %q", got)
	}
	out.Reset()
	p = copyProgress{to: &out}
	p.report(q)
	p.clear()
	if out.Len() > 0 {
		t.Errorf("wrote %q where there is no terminal", out.String())
	}
}
