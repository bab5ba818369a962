package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// addArrived counts the payloads in a list or stream.
func addArrived(t *testing.T, rdb redis.UniversalClient, to string, found map[string]int) {
	t.Helper()
	kind, name, _ := strings.Cut(to, ":")
	switch kind {
	case "list":
		payloads, err := rdb.LRange(bounded(t), name, 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, payload := range payloads {
			found[payload]++
		}
	case "stream":
		entries, err := rdb.XRange(bounded(t), name, "-", "+").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			found[e.Values[store.StreamPayload].(string)]++
		}
	}
}

// addConsumed handles the ready messages of a queue and counts their payloads.
func addConsumed(t *testing.T, c *later.Client, queue string, found map[string]int) {
	t.Helper()
	left := stats(t, c.Queue(queue)).Ready
	if left == 0 {
		return
	}
	var mu sync.Mutex
	all := make(chan struct{})
	w := later.NewWorker(c, later.WorkerConfig{Concurrency: 100})
	w.Handle(queue, func(_ context.Context, m *later.Message) error {
		mu.Lock()
		defer mu.Unlock()
		found[string(m.Payload)]++
		if left--; left == 0 {
			close(all)
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	select {
	case <-all:
	case <-time.After(patience):
		t.Errorf("not all messages of %q were handled", queue)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func stats(t *testing.T, q *later.Queue) later.Stats {
	t.Helper()
	s, err := q.Stats(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantArrived checks that each payload from 0 to n-1 arrived, and if exactly is set, that each arrived once.
func wantArrived(t *testing.T, found map[string]int, n int, exactly bool) {
	t.Helper()
	lost, doubled := 0, 0
	for i := range n {
		switch times := found[fmt.Sprint(i)]; {
		case times == 0:
			lost++
		case times > 1:
			doubled += times - 1
		}
	}
	if lost > 0 || len(found) > n || exactly && doubled > 0 {
		t.Errorf("of %d messages %d were lost; %d arrived too often, and %d different ones arrived", n, lost, doubled,
			len(found))
	}
}

// TestForwarderKilledAtAnyPoint kills forwarders again and again. A message that is moved in one step arrives exactly
// once; one for another store arrives at least once, and in a queue once while its id is remembered.
func TestForwarderKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		embedded bool
		to       string // a kind of destination
		other    bool   // the destination is in another store
		exactly  bool
	}{
		{name: "list", to: "list:", exactly: true},
		{name: "stream", to: "stream:", exactly: true},
		{name: "queue", to: "queue:", exactly: true},
		{name: "list of another Redis", to: "list:", other: true},
		{name: "queue of another Redis", to: "queue:", other: true, exactly: true},
		{name: "embedded queue", embedded: true, to: "queue:", exactly: true},
		{name: "from embedded to a queue of Redis", embedded: true, to: "queue:", other: true, exactly: true},
		{name: "from embedded to a list of Redis", embedded: true, to: "list:", other: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			k := &forwarderKills{t: t, random: rand.New(rand.NewPCG(seed, 0)), j: newJournal()}
			shared := redistest.Shared(t)
			k.role = forwarder{URL: shared.URL(), Queue: newQueueName(t), To: test.to + newQueueName(t),
				Lease: time.Second}
			if test.embedded {
				k.role.URL = "file://" + filepath.ToSlash(t.TempDir()) + "/store"
			}
			rdb, there := shared.Client(t), k.role.URL
			if test.other {
				if k.role.At = shared.URL(); !test.embedded {
					srv := redistest.Start(t)
					k.role.At, rdb = srv.URL(), srv.Client(t)
				}
				there = k.role.At
			}
			found := map[string]int{}
			// Messages are consumed between the kills, so that only ids that are remembered are refused.
			consume := func() {
				if queue, ok := strings.CutPrefix(k.role.To, "queue:"); ok {
					inClient(t, there, func(c *later.Client) { addConsumed(t, c, queue, found) })
				}
			}
			rounds, kill := 20, k.killWhileSending
			if test.embedded {
				rounds, kill = 15, k.killOnBacklog
			}
			for range rounds {
				kill()
				if consume(); t.Failed() {
					return
				}
			}
			k.finish()
			consume()
			for _, url := range []string{k.role.URL, there} {
				inClient(t, url, func(c *later.Client) {
					for _, queue := range []string{k.role.Queue, strings.TrimPrefix(k.role.To, "queue:")} {
						if s := stats(t, c.Queue(queue)); s.Scheduled+s.Ready+s.Leased+s.Dead != 0 {
							t.Errorf("queue %q has %+v", queue, s)
						}
					}
				})
			}
			if !test.embedded {
				locations(t, shared.Client(t), k.role.Queue)
			}
			addArrived(t, rdb, k.role.To, found)
			wantArrived(t, found, k.sent, test.exactly)
		})
	}
}

// forwarderKills starts and kills forwarders of one queue.
type forwarderKills struct {
	t      *testing.T
	random *rand.Rand
	j      *journal
	role   forwarder
	round  int
	sent   int // messages so far; their payloads count from 0
}

// start starts a forwarder that reports every n-th event.
func (k *forwarderKills) start(every int) (name string, c *child) {
	k.round++
	name = fmt.Sprint("victim", k.round)
	role := k.role
	role.Every = every
	c = start(k.t, k.j, name, role)
	k.j.await(k.t, 1, event{From: name, Kind: ready})
	return name, c
}

// batch returns the next n messages.
func (k *forwarderKills) batch(n int) []later.Outgoing {
	msgs := make([]later.Outgoing, n)
	for i := range msgs {
		msgs[i].Payload = fmt.Append(nil, k.sent)
		k.sent++
	}
	return msgs
}

// killOnBacklog kills a forwarder on its way through many messages.
func (k *forwarderKills) killOnBacklog() {
	k.t.Helper()
	inClient(k.t, k.role.URL, func(c *later.Client) { sendBatch(k.t, c.Queue(k.role.Queue), k.batch(1200)) })
	name, victim := k.start(50)
	k.j.await(k.t, 1+k.random.IntN(20), event{From: name, Kind: later.EventForwarded})
	victim.kill()
}

// killWhileSending kills a forwarder while messages arrive in its queue.
func (k *forwarderKills) killWhileSending() {
	k.t.Helper()
	_, victim := k.start(0)
	inClient(k.t, k.role.URL, func(c *later.Client) {
		for range 1 + k.random.IntN(50) {
			sendBatch(k.t, c.Queue(k.role.Queue), k.batch(1+k.random.IntN(50)))
		}
	})
	victim.kill()
}

// finish moves the rest of the messages.
func (k *forwarderKills) finish() {
	k.t.Helper()
	left := 0
	inClient(k.t, k.role.URL, func(c *later.Client) {
		s := stats(k.t, c.Queue(k.role.Queue))
		left = int(s.Scheduled + s.Ready + s.Leased)
	})
	name, last := k.start(1)
	k.j.await(k.t, left, event{From: name, Kind: later.EventForwarded})
	last.drain()
}

// otherStore returns a destination in a store of another Redis.
func otherStore(t *testing.T, srv *redistest.Server, to later.Destination) later.Destination {
	return to.At(open(t, srv.URL()))
}

func TestForwardRecoversFromAKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	for _, other := range []bool{false, true} {
		t.Run(fmt.Sprintf("other Redis %v", other), func(t *testing.T) {
			t.Parallel()
			srv, j := redistest.Start(t), newJournal()
			q, rdb := open(t, srv.URL()).Queue("q"), srv.Client(t)
			to := later.ToList("list")
			if other {
				there := redistest.Start(t)
				to, rdb = otherStore(t, there, to), there.Client(t)
			}
			const messages = 1200
			if err := rdb.Set(bounded(t), "list", "taken", 0).Err(); err != nil {
				t.Fatal(err)
			}
			sendNumbered(t, q, 0, messages)
			stop := forward(t, j, srv.URL(), "q", to)
			text := j.await(t, 1, event{Kind: outage})[0].Err
			if !strings.Contains(text, "list") || !strings.Contains(text, "delete it") {
				t.Errorf("the log does not say what to do: %s", text)
			}
			stop()
			if s := stats(t, q); s.Ready != messages {
				t.Errorf("queue has %+v, want %d ready", s, messages)
			}
			forward(t, j, srv.URL(), "q", to)
			j.await(t, 2, event{Kind: outage})
			if err := rdb.Del(bounded(t), "list").Err(); err != nil {
				t.Fatal(err)
			}
			for _, e := range j.await(t, messages, event{Kind: later.EventForwarded}) {
				if e.Attempt > 1 {
					t.Errorf("an attempt was counted: %v", e)
				}
			}
			j.await(t, 1, event{Kind: recovery})
			found := map[string]int{}
			addArrived(t, rdb, "list:list", found)
			wantArrived(t, found, messages, true)
			wantEmpty(t, q, srv.Client(t), 0)
			if n := len(j.find(event{Kind: outage})); n != 2 {
				t.Errorf("two outages were logged %d times", n)
			}
		})
	}
}

// sendNumbered sends messages with the numbers from first on as payloads.
func sendNumbered(t *testing.T, q *later.Queue, first, n int) {
	t.Helper()
	msgs := make([]later.Outgoing, n)
	for i := range msgs {
		msgs[i].Payload = fmt.Append(nil, first+i)
	}
	sendBatch(t, q, msgs)
}

func TestForwardRecoversFromAFrozenOrDeadDestination(t *testing.T) {
	t.Parallel()
	for _, frozen := range []bool{false, true} {
		t.Run(fmt.Sprintf("frozen %v", frozen), func(t *testing.T) {
			t.Parallel()
			srv, j := redistest.Shared(t), newJournal()
			there := redistest.Start(t, redistest.Args("--appendonly", "yes", "--appendfsync", "always"))
			q := open(t, srv.URL()).Queue(newQueueName(t))
			const messages = 600
			forward(t, j, srv.URL(), q.Name(), otherStore(t, there, later.ToList("list")))
			sendNumbered(t, q, 0, messages)
			j.await(t, messages, event{Kind: later.EventForwarded})
			down, up := there.Kill, func() { there.Restart(t) }
			if frozen {
				down, up = func() { there.Freeze(t) }, func() { there.Thaw(t) }
			}
			down()
			sendNumbered(t, q, messages, messages)
			j.await(t, 1, event{Kind: outage})
			if s := stats(t, q); s.Ready+s.Leased != messages {
				t.Errorf("queue has %+v during an outage, want %d messages", s, messages)
			}
			up()
			j.await(t, 2*messages, event{Kind: later.EventForwarded})
			j.await(t, 1, event{Kind: recovery})
			if n := len(j.find(event{Kind: outage})); n != 1 {
				t.Errorf("one outage was logged %d times", n)
			}
			found := map[string]int{}
			addArrived(t, there.Client(t), "list:list", found)
			wantArrived(t, found, 2*messages, false)
			wantEmpty(t, q, srv.Client(t), 0)
		})
	}
}
