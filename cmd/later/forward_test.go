//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// newKey returns a key that no other test uses.
func (c *cli) newKey() string {
	_, prefix, _ := strings.Cut(c.store, "?prefix=")
	return "forward-" + strings.TrimSuffix(prefix, ":")
}

// startForward starts later forward and waits until it has logged this guarantee.
func (c *cli) startForward(guarantee string, args ...string) *process {
	c.t.Helper()
	p := c.start(append([]string{"forward"}, args...)...)
	p.await(p.stderr, fmt.Sprintf("guarantee=%q", guarantee))
	return p
}

// endForward stops later forward, which must drain.
func (p *process) endForward() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.await(p.stderr, "draining; repeat to kill")
	p.await(p.stderr, "drained")
	if exit := p.exit(); exit != 0 {
		p.t.Errorf("exit %d", exit)
	}
}

// pop takes n elements from the left end of a list. It waits for each one to arrive.
func pop(t *testing.T, rdb *redis.Client, key string, n int) (all []string) {
	t.Helper()
	for range n {
		element, err := rdb.BLPop(t.Context(), eventTimeout, key).Result()
		if err != nil {
			t.Fatalf("after %q: %v", all, err)
		}
		all = append(all, element[1])
	}
	return all
}

// awaitMoved waits until a queue has nothing ready or leased.
func (c *cli) awaitMoved(queue string) {
	c.t.Helper()
	c.awaitStats(queue, "moved", func(s later.Stats) bool { return s.Ready+s.Leased == 0 })
}

// awaitStats waits until the counts of a queue are as described.
func (c *cli) awaitStats(queue, what string, done func(later.Stats) bool) {
	c.t.Helper()
	q := c.client().Queue(queue)
	for end := time.Now().Add(eventTimeout); ; {
		stats, err := q.Stats(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		if done(stats) {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("not %s after %v: %+v", what, eventTimeout, stats)
		}
	}
}

func TestForwardMovesMessagesToAListInTheOrderTheyAreDue(t *testing.T) {
	c := newCLI(t)
	rdb, key := redistest.Shared(t).Client(t), c.newKey()
	soon := time.Now()
	for _, wait := range []time.Duration{30 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond} {
		c.ok("send", "q", wait.String(), "--at", soon.Add(wait).Format(time.RFC3339Nano))
	}
	p := c.startForward("exactly once", "q", "--to", "list:"+key)
	if got := pop(t, rdb, key, 3); !slices.Equal(got, []string{"10ms", "20ms", "30ms"}) {
		t.Errorf("got %q", got)
	}
	p.endForward()
	if got := object(t, c.ok("stats", "q", "--json")); got["ready"] != 0.0 || got["leased"] != 0.0 {
		t.Errorf("left: %v", got)
	}
}

func TestForwardToTheFrontOfAList(t *testing.T) {
	c := newCLI(t)
	rdb, key := redistest.Shared(t).Client(t), c.newKey()
	if err := rdb.RPush(t.Context(), key, "old").Err(); err != nil {
		t.Fatal(err)
	}
	c.ok("send", "q", "new")
	p := c.startForward("exactly once", "q", "--to", "list:"+key, "--front")
	c.awaitMoved("q")
	if got := pop(t, rdb, key, 2); !slices.Equal(got, []string{"new", "old"}) {
		t.Errorf("got %q", got)
	}
	p.endForward()
}

func TestForwardToAStreamKeepsIDsAndHeaders(t *testing.T) {
	c := newCLI(t)
	rdb, key := redistest.Shared(t).Client(t), c.newKey()
	c.ok("send", "q", "hello", "--id", "a", "--header", "k=v", "--at", "2020-01-02T03:04:05Z")
	p := c.startForward("exactly once", "q", "--to", "stream:"+key)
	c.awaitMoved("q")
	entries, err := rdb.XRange(t.Context(), key, "-", "+").Result()
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	due := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC).UnixMilli()
	for field, want := range map[string]any{
		"id": "a", "payload": "hello", "due": fmt.Sprint(due), "header:k": "v",
	} {
		if got := entries[0].Values[field]; got != want {
			t.Errorf("field %s is %v, want %v", field, got, want)
		}
	}
	p.endForward()
}

func TestForwardLimitsTheLengthOfAStream(t *testing.T) {
	c := newCLI(t)
	rdb, key := redistest.Shared(t).Client(t), c.newKey()
	if r := c.runWith(t.Context(), strings.Repeat("x\n", 1000), "send", "q", "--batch"); r.exit != 0 {
		t.Fatal(r.stderr)
	}
	p := c.startForward("exactly once", "q", "--to", "stream:"+key, "--max-len", "100")
	c.awaitMoved("q")
	if n, err := rdb.XLen(t.Context(), key).Result(); err != nil || n < 100 || n > 300 { // Redis trims blocks of 100
		t.Errorf("%d entries, %v", n, err)
	}
	p.endForward()
}

func TestForwardPublishesToAChannel(t *testing.T) {
	c := newCLI(t)
	rdb, name := redistest.Shared(t).Client(t), c.newKey()
	listener := rdb.Subscribe(t.Context(), name)
	defer listener.Close()
	if _, err := listener.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.ok("send", "q", "hello")
	p := c.startForward("exactly once", "q", "--to", "channel:"+name)
	select {
	case got := <-listener.Channel():
		if got.Payload != "hello" {
			t.Errorf("got %q", got.Payload)
		}
	case <-time.After(eventTimeout):
		t.Fatal("nothing was published")
	}
	p.endForward()
}

func TestForwardToAQueueKeepsTheMessage(t *testing.T) {
	for name, c := range map[string]*cli{"Redis": newCLI(t), "embedded": newDiskCLI(t)} {
		t.Run(name, func(t *testing.T) {
			c.t = t
			c.ok("send", "q", "hello", "--id", "a", "--header", "k=v", "--at", "2020-01-02T03:04:05Z")
			c.ok("send", "q", "tomorrow", "--id", "b", "--in", "24h")
			p := c.startForward("exactly once", "q", "--to", "queue:next", "--exactly-once")
			c.awaitMoved("q")
			p.endForward()
			got := object(t, c.ok("work", "next", "--max", "1", "--json"))
			if got["id"] != "a" || got["due"] != "2020-01-02T03:04:05.000Z" || got["attempt"] != 1.0 {
				t.Errorf("got %v", got)
			}
			if got := object(t, c.ok("get", "q", "b", "--json")); got["state"] != "scheduled" ||
				got["attempts"] != 0.0 {
				t.Errorf("left: %v", got)
			}
		})
	}
}

func TestForwardToAnotherStore(t *testing.T) {
	other := redistest.Start(t)
	for name, c := range map[string]*cli{"from Redis": newCLI(t), "from an embedded store": newDiskCLI(t)} {
		t.Run(name, func(t *testing.T) {
			c.t = t
			rdb, list := other.Client(t), name
			c.ok("send", "q", "hello")
			p := c.start("forward", "q", "--to", "list:"+list, "--at", other.URL())
			line := p.await(p.stderr, `guarantee="at least once"`)
			contains(t, line, "forwarding ", "store=", strings.TrimSuffix(c.store, ":"), "at="+other.URL())
			if got := pop(t, rdb, list, 1); got[0] != "hello" {
				t.Errorf("got %q", got)
			}
			p.endForward()
			if got := object(t, c.ok("stats", "q", "--json")); got["ready"] != 0.0 || got["leased"] != 0.0 {
				t.Errorf("left: %v", got)
			}
		})
	}
}

func TestForwardToAQueueOfAnotherStore(t *testing.T) {
	c, other := newDiskCLI(t), newCLI(t)
	c.ok("send", "q", "hello", "--id", "a")
	p := c.startForward("at least once", "q", "--to", "queue:q", "--at", other.store)
	got := object(t, other.ok("work", "q", "--max", "1", "--json"))
	if got["id"] != "a" || got["payload_text"] != "hello" {
		t.Errorf("got %v", got)
	}
	p.endForward()
}

func TestForwardRecoversWhenAKeyOfAnotherTypeIsDeleted(t *testing.T) {
	c := newCLI(t)
	rdb, key := redistest.Shared(t).Client(t), c.newKey()
	if err := rdb.Set(t.Context(), key, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	c.ok("send", "q", "hello", "--id", "a")
	p := c.startForward("exactly once", "q", "--to", "list:"+key)
	line := p.await(p.stderr, "error: messages cannot be forwarded and stay in the queue; retrying")
	contains(t, line, "queue=q", "to=list:"+key, "is a string, not a list: delete it or choose another key")
	if got := object(t, c.ok("get", "q", "a", "--json")); got["state"] != "ready" || got["attempts"] != 0.0 {
		t.Errorf("meanwhile: %v", got)
	}
	if err := rdb.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	if got := pop(t, rdb, key, 1); got[0] != "hello" {
		t.Errorf("got %q", got)
	}
	p.await(p.stderr, "messages are forwarded again")
	p.endForward()
}

func TestForwardRefusesABadDestinationBeforeItConnects(t *testing.T) {
	const kinds = "give queue:NAME, topic:NAME, list:KEY, stream:KEY or channel:NAME"
	for _, test := range []struct {
		args string
		want string
	}{
		{"", "--to is missing: " + kinds},
		{"--to mail", `--to is "mail": ` + kinds},
		{"--to lst:k", `destination "lst:k" is unknown: ` + kinds},
		{"--to list:", `destination "list:" has no name: give list:NAME (from --to)`},
		{"--to queue:a{", "holds a brace"},
		{"--to queue:q", `--to is the queue "q" itself: must be another one`},
		{"--to stream:k --front", `"stream:k" has no front: only a list has`},
		{"--to list:k --max-len 9", `"list:k" has no maximum length: only a stream has`},
		{"--to stream:k --max-len -1", `maximum length of "stream:k" is -1: must be 1 to`},
		{"--to list:k --max-len many", `invalid argument "many" for "--max-len" flag`},
		{"--to list:k --at redis://nowhere --exactly-once", "--exactly-once and --at are both given"},
		{"--to list:k --at bogus", "neither a URL nor a directory: use one such as redis://localhost:6379/0 or ./dir " +
			"(from --at)"},
		{"--to list:k --at mem://", "the memory of this command itself: use another store"},
		{
			"--to list:k --at redis://u:secret@nowhere",
			"--at is the store of the queue itself, redis://u:xxxxx@nowhere: leave out",
		},
		{"--to list:k z", "usage: later forward QUEUE --to DESTINATION; see later forward --help"},
	} {
		args := append([]string{"forward", "q", "--store", "redis://u:secret@nowhere"}, strings.Fields(test.args)...)
		r := runMain(t.Context(), nil, "", args...)
		if r.exit != 2 || !strings.Contains(r.stderr, test.want) || strings.Contains(r.stderr, "secret") {
			t.Errorf("%q: exit %d, want 2 and %q: %s", test.args, r.exit, test.want, r.stderr)
		}
	}
	if got := runMain(t.Context(), nil, "", "forward", "q{", "--to", "list:k").stderr; !strings.Contains(got, "brace") {
		t.Errorf("got %s", got)
	}
}

func TestForwardFromAnEmbeddedStoreToAListNeedsAt(t *testing.T) {
	c := newDiskCLI(t)
	for _, args := range [][]string{
		{"--to", "list:k"}, {"--to", "stream:k"}, {"--to", "channel:k"},
		{"--to", "list:k", "--at", newDiskCLI(t).store}, {"--to", "list:k", "--store", "mem://"},
	} {
		got := c.fails(19, append([]string{"forward", "q"}, args...)...)
		contains(t, got, "has only queues: name a Redis", "--at redis://localhost:6379/0")
	}
	if !isNew(c.store) {
		t.Error("a refused command created the store")
	}
}

func TestForwardExactlyOnceInAClusterNeedsTheHashTag(t *testing.T) {
	c := &cli{t, redistest.SharedCluster(t).URL()}
	rdb := redistest.SharedCluster(t).Client(t)
	got := c.fails(19, "forward", "mail", "--to", "list:k", "--exactly-once")
	contains(t, got, "exactly once", "give the destination the hash tag {mail}")
	c.ok("send", "mail", "hello")
	p := c.startForward("exactly once", "mail", "--to", "list:{mail}:due", "--exactly-once")
	if got, err := rdb.BLPop(t.Context(), eventTimeout, "{mail}:due").Result(); err != nil || got[1] != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	p.endForward()
}

func TestForwardLeavesTheRestInTheQueueAtASignal(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		c := newCLI(t)
		rdb, key := redistest.Shared(t).Client(t), c.newKey()
		c.ok("send", "q", "now")
		c.ok("send", "q", "later", "--id", "a", "--in", "1h")
		p := c.startForward("exactly once", "q", "--to", "list:"+key)
		pop(t, rdb, key, 1)
		p.signal(signal)
		p.await(p.stderr, "drained")
		if exit := p.exit(); exit != 0 {
			t.Errorf("%v: exit %d", signal, exit)
		}
		c.ok("run-now", "q", "a")
		if got := object(t, c.ok("get", "q", "a", "--json")); got["state"] != "ready" || got["attempts"] != 0.0 {
			t.Errorf("%v: left %v", signal, got)
		}
	}
}

func TestForwardThatHangsIsKilledByASecondSignal(t *testing.T) {
	c, other := newCLI(t), redistest.Start(t)
	c.ok("send", "q", "before")
	p := c.startForward("at least once", "q", "--to", "list:k", "--at", other.URL())
	c.awaitMoved("q")
	other.Freeze(t)
	defer other.Thaw(t)
	c.ok("send", "q", "hangs")
	c.awaitStats("q", "leased", func(s later.Stats) bool { return s.Ready == 0 && s.Leased == 1 })
	p.signal(syscall.SIGINT)
	p.await(p.stderr, "draining; repeat to kill")
	p.signal(syscall.SIGINT)
	if exit := p.exit(); exit != 130 {
		t.Errorf("exit %d", exit)
	}
}

func TestSIGTSTPStopsAForwardUntilSIGCONT(t *testing.T) {
	c := newCLI(t)
	rdb, key := redistest.Shared(t).Client(t), c.newKey()
	p := c.startForward("exactly once", "q", "--to", "list:"+key)
	p.signal(syscall.SIGTSTP)
	p.await(p.stderr, "paused, claiming no more messages; kill -CONT")
	left := c.sendWhilePaused("q")
	p.signal(syscall.SIGCONT)
	for got := ""; got != left; { // the elements before it were taken before the pause
		got = pop(t, rdb, key, 1)[0]
	}
	p.endForward()
}

func TestForwardLogsJSONWithJSON(t *testing.T) {
	c := newCLI(t)
	key := c.newKey()
	p := c.start("forward", "q", "--to", "list:"+key, "--json")
	got := object(t, p.await(p.stderr, "guarantee"))
	for name, want := range map[string]any{
		"level": "INFO", "queue": "q", "to": "list:" + key, "guarantee": "exactly once", "store": c.store,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	p.signal(syscall.SIGTERM)
	for line := range p.rest(p.stdout) {
		t.Errorf("printed %q", line)
	}
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestSIGUSR2RestartsAForward(t *testing.T) {
	c := newCLI(t)
	rdb, key := redistest.Shared(t).Client(t), c.newKey()
	p := c.startForward("exactly once", "q", "--to", "list:"+key)
	p.signal(syscall.SIGUSR2)
	p.await(p.stderr, "draining to restart")
	p.await(p.stderr, "drained")
	p.await(p.stderr, `guarantee="exactly once"`)
	c.ok("send", "q", "after")
	if got := pop(t, rdb, key, 1); got[0] != "after" {
		t.Errorf("got %q", got)
	}
	p.endForward()
}
