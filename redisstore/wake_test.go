package redisstore

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// listener is a process that waits for a queue and does nothing else.
type listener struct {
	t       *testing.T
	sub     *redis.PubSub
	channel string
}

// newListener lists a process with a score: the time until which it promises to listen.
func newListener(t *testing.T, rdb *redis.Client, queue string, score float64) *listener {
	t.Helper()
	p := &listener{t: t, channel: "later:wake:" + newLease()}
	p.sub = rdb.Subscribe(t.Context(), p.channel)
	t.Cleanup(func() { p.sub.Close() })
	if _, err := p.sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := rdb.ZAdd(t.Context(), "later:{"+queue+"}:wake", redis.Z{Score: score, Member: p.channel}).Err()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// receive returns the next message to the process.
func (p *listener) receive() string {
	p.t.Helper()
	message, err := p.sub.ReceiveTimeout(p.t.Context(), 20*time.Second)
	if err != nil {
		p.t.Fatal(err)
	}
	return message.(*redis.Message).Payload
}

// waiting waits until n waiters of the queue sleep, and its process is in the queue's list.
func waiting(t *testing.T, s *Store, queue string, n int) {
	t.Helper()
	eventually(t, func() bool { return s.asleep(queue) == n })
}

// eventually waits for a condition that has no event.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("condition not met within 20 s")
		}
	}
}

func send(t testing.TB, s *Store, queue string, id string, due store.Due) {
	t.Helper()
	if _, err := s.Send(t.Context(), queue, []store.Outgoing{{Message: store.Message{ID: id}, Due: due}}); err != nil {
		t.Fatal(err)
	}
}

func claim(t testing.TB, s *Store, queue string, max int, lease time.Duration) store.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), queue, store.ClaimRequest{Max: max, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newStore(t testing.TB, rdb redis.UniversalClient, opts ...Option) *Store {
	s := New(rdb, opts...)
	t.Cleanup(func() { s.Close() })
	return s
}

// commandsOf returns the commands that a server receives while f runs, without the calls of scripts.
func commandsOf(t *testing.T, srv *redistest.Server, f func()) []string {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	lines.Scan() // OK
	rdb := srv.Client(t)
	f()
	if err := rdb.Echo(t.Context(), "the end").Err(); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"the end"`) {
			return seen
		}
		if !strings.Contains(lines.Text(), " lua]") {
			seen = append(seen, lines.Text())
		}
	}
	t.Fatalf("MONITOR ended: %v", lines.Err())
	return nil
}

// A message wakes one of ten waiting processes, and the others send no command.
func TestMessageWakesOneOfManyWaiters(t *testing.T) {
	srv := redistest.Start(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	woken := make(chan *Store, 10)
	var all sync.WaitGroup
	for range 10 {
		s := newStore(t, srv.Client(t))
		claim(t, s, "q", 1, time.Minute)
		all.Go(func() {
			if s.Wait(ctx, "q") == nil {
				woken <- s
			}
		})
		waiting(t, s, "q", 1)
	}
	producer := newStore(t, srv.Client(t))
	commands := commandsOf(t, srv, func() {
		send(t, producer, "q", "m", store.Due{})
		s := <-woken
		if c := claim(t, s, "q", 1, time.Minute); len(c.Messages) != 1 {
			t.Errorf("the woken process claimed %d messages, want 1", len(c.Messages))
		}
	})
	if n := len(commands); n > 15 { // send and claim on new connections, and the next wait of the woken process
		t.Errorf("a message took %d commands with ten waiting processes:\n%s", n, strings.Join(commands, "\n"))
	}
	stop()
	all.Wait()
	if len(woken) > 0 {
		t.Errorf("%d more processes woke", len(woken))
	}
}

func TestWaitSurvivesServerRestart(t *testing.T) {
	srv := redistest.Start(t)
	s := newStore(t, srv.Client(t))
	claim(t, s, "q", 1, time.Minute)
	got := make(chan error, 1)
	go func() {
		for {
			if err := s.Wait(t.Context(), "q"); err != nil {
				got <- err
				return
			}
			c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
			if err != nil || len(c.Messages) > 0 {
				got <- err
				return
			}
		}
	}()
	waiting(t, s, "q", 1)
	srv.Kill()
	srv.Restart(t)
	send(t, newStore(t, srv.Client(t)), "q", "m", store.Due{})
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// A message is claimed on time when the call is sent so early that a fast one arrives at its due time.
func TestServerClockPredictsWhatAFastCallFinds(t *testing.T) {
	const ms = time.Millisecond
	var c serverClock
	if _, known := c.arrival(); known {
		t.Error("the clock is known without a reading")
	}
	begin := time.Now()
	for _, test := range []struct {
		name              string
		at, outward, back time.Duration // of the call
		ahead             time.Duration // of the server's clock
		want              time.Duration // lead of the prediction
	}{
		{"the first call", 0, ms, ms, time.Hour, time.Hour},
		{"a slower one", ms, 15 * ms, 5 * ms, time.Hour, time.Hour + ms/2},
		{"a faster one", time.Second, ms / 2, 3 * ms / 2, time.Hour, time.Hour + ms/2 - ms/3},
		{"the clock went forward", 2 * time.Second, 5 * ms, ms, 2 * time.Hour, 2*time.Hour + 2*ms},
		{"the clock went back", 3 * time.Second, 9 * ms, 3 * ms, -time.Hour, -time.Hour + 9*ms - 3*ms/2},
		{"a fourth call", 8 * time.Second, 2 * ms, 4 * ms, -time.Hour + 8*ms, -time.Hour + 8*ms},
		{"the first two are forgotten", 13 * time.Second, 4 * ms, 4 * ms, -time.Hour + 8*ms, -time.Hour + 17*ms/2},
		{"after a pause, the clocks having drifted", time.Hour, ms, ms, -time.Hour + 9*ms, -time.Hour + 9*ms},
	} {
		sent := begin.Add(test.at)
		c.read(sent, sent.Add(test.outward+test.back), sent.Add(test.outward+test.ahead))
		before := time.Now()
		arrival, known := c.arrival()
		lead, most := time.Until(arrival), arrival.Sub(before)
		if !known || lead > test.want || most < test.want {
			t.Errorf("%s: a call is predicted to find a clock that is %v ahead; want %v", test.name, most, test.want)
		}
	}
}

// The server reads its clock at an unknown moment of a call, so a reply that was held up looks like a step.
func TestServerClockStepIsWhatRoundTripsDoNotExplain(t *testing.T) {
	const slow = 5 * time.Second
	for name, test := range map[string]struct {
		trips [2]time.Duration
		step  time.Duration // as it looks
		want  time.Duration
	}{
		"none":                {},
		"late first reply":    {trips: [2]time.Duration{slow, 0}, step: slow},
		"late second reply":   {trips: [2]time.Duration{0, slow}, step: -slow},
		"forward":             {step: time.Hour, want: time.Hour},
		"back":                {step: -time.Hour, want: -time.Hour},
		"forward, late first": {trips: [2]time.Duration{slow, 0}, step: time.Hour, want: time.Hour - slow},
		"back, late second":   {trips: [2]time.Duration{0, slow}, step: -time.Hour, want: slow - time.Hour},
	} {
		var c serverClock
		first := time.Now()
		c.read(first.Add(-test.trips[0]), first, first)
		second := first.Add(time.Minute)
		if got := c.read(second.Add(-test.trips[1]), second, second.Add(test.step)); got != test.want {
			t.Errorf("%s: step is %v, want %v", name, got, test.want)
		}
	}
}

// A process that was woken but does not claim, for example because its handlers are busy with other queues, passes the
// notification on.
func TestUnusedNotificationIsPassedOn(t *testing.T) {
	srv := redistest.Start(t)
	busy, free := newStore(t, srv.Client(t)), newStore(t, srv.Client(t))
	claim(t, busy, "q", 1, time.Minute)
	claim(t, free, "q", 1, time.Minute)
	woken := make(chan error, 2)
	go func() { woken <- busy.Wait(t.Context(), "q") }()
	waiting(t, busy, "q", 1)
	send(t, busy, "q", "m", store.Due{})
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	go func() { woken <- free.Wait(t.Context(), "q") }()
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	if c := claim(t, free, "q", 1, time.Minute); len(c.Messages) != 1 {
		t.Errorf("the other process was woken after %v but claimed nothing", time.Since(began))
	}
}

func TestWakePatientWaitersClaimOnceAMinuteAndOthersEveryFewSeconds(t *testing.T) {
	w := &waker{}
	for _, test := range []struct {
		q    queueWake
		deaf bool
		want time.Duration
	}{
		{queueWake{}, false, safetyInterval}, {queueWake{patient: true}, false, patientInterval},
		{queueWake{}, true, deafInterval}, {queueWake{patient: true}, true, safetyInterval},
	} {
		w.servers = map[string]*wakeServer{"server": {running: true, listening: true, muted: test.deaf}}
		for range 100 {
			if got := w.safetyAfter(&test.q); got < test.want*4/5 || got > test.want*6/5 {
				t.Fatalf("patient %v, deaf %v: the next claim is after %v; want about %v", test.q.patient,
					test.deaf, got, test.want)
			}
		}
	}
}
