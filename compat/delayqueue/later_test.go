package delayqueue_test

import (
	"bytes"
	"errors"
	"log"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/compat/delayqueue"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/redisstore"
)

// The tests in this file state where Later's behaviour holds instead of the original's.

// client returns a client of Later that sees the queues of the tests.
func client(t *testing.T, rdb redis.UniversalClient, opts ...redisstore.Option) *later.Client {
	t.Helper()
	s := redisstore.New(rdb, opts...)
	c, err := later.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return c
}

// dead returns the dead letters of the queue.
func dead(t *testing.T, rdb redis.UniversalClient) []*later.Info {
	t.Helper()
	page, err := client(t, rdb).Queue("q").List(t.Context(), later.ListOptions{State: later.StateDead})
	if err != nil {
		t.Fatal(err)
	}
	return page.Messages
}

func TestMessageOutOfRetriesIsADeadLetter(t *testing.T) {
	rdb := newRedis(t)
	q := newQueue(rdb, func(payload string) bool {
		if payload == "panic" {
			panic("told to")
		}
		if payload == "exit" {
			runtime.Goexit()
		}
		return false
	}).WithDefaultRetryCount(1)
	var e events
	q.ListenEvent(&e)
	for _, payload := range []string{"false", "panic", "exit"} {
		send(t, q, payload, 0)
	}
	consume(t, q)
	eventually(t, "the end", func() bool { return e.of(delayqueue.FinalFailedEvent) == 3 })
	letters := dead(t, rdb)
	if len(letters) != 3 {
		t.Fatalf("%d dead letters", len(letters))
	}
	for _, info := range letters {
		reason := map[string]string{
			"false": "callback returned false", "panic": "callback panicked: told to\n", "exit": "runtime.Goexit",
		}[string(info.Payload)]
		if info.Attempts != 2 || info.DeadReason != later.DeadFailed || !strings.Contains(info.LastError, reason) {
			t.Errorf("%s: %d attempts, %s: %s", info.Payload, info.Attempts, info.DeadReason, info.LastError)
		}
	}
}

func TestMessagePastItsTTLIsADeadLetterAndOthersHaveNone(t *testing.T) {
	rdb := newRedis(t)
	var d deliveries
	q := newQueue(rdb, func(payload string) bool {
		d.add(payload)
		return true
	})
	var e events
	q.ListenEvent(&e)
	past := time.Now().Add(-24 * time.Hour)
	if _, err := q.SendScheduleMsgV2("with", past, delayqueue.WithMsgTTL(time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := q.SendScheduleMsgV2("without", past); err != nil { // the original gives it an hour, and the TTL above
		t.Fatal(err)
	}
	consume(t, q)
	eventually(t, "both ends", func() bool {
		return e.of(delayqueue.FinalFailedEvent) == 1 && e.of(delayqueue.AckEvent) == 1
	})
	letters := dead(t, rdb)
	if len(letters) != 1 || string(letters[0].Payload) != "with" || letters[0].DeadReason != later.DeadExpired {
		t.Errorf("dead letters %v", letters)
	}
	if d.of("with") != 0 || d.of("without") != 1 {
		t.Errorf("delivered %v", d.count)
	}
}

func TestNackRedeliveryDelayIsNeverShort(t *testing.T) {
	rdb := newRedis(t)
	var called time.Time
	q := newQueue(rdb, func(string) bool {
		called = time.Now()
		return false
	}).WithNackRedeliveryDelay(90 * time.Minute)
	var e events
	q.ListenEvent(&e)
	msg := send(t, q, "x", 0)
	consume(t, q)
	eventually(t, "a nack", func() bool { return e.of(delayqueue.NackEvent) == 1 })
	info, err := client(t, rdb).Queue("q").Get(t.Context(), msg.ID())
	if err != nil {
		t.Fatal(err)
	}
	wait := info.Due.Sub(called.Truncate(time.Millisecond))
	if info.State != later.StateScheduled || wait < 90*time.Minute {
		t.Errorf("%s, due %v after the callback", info.State, wait)
	}
}

func TestMessagesThatWaitForAConsumerUseNoRetries(t *testing.T) {
	rdb := newRedis(t)
	var d deliveries
	hold := make(chan bool)
	q := newQueue(rdb, func(payload string) bool {
		if d.add(payload) <= 3 && payload == "slow" {
			<-hold // for longer than WithMaxConsumeDuration, three times
		}
		return true
	}).WithMaxConsumeDuration(50 * time.Millisecond).WithDefaultRetryCount(3)
	var e events
	q.ListenEvent(&e)
	send(t, q, "slow", 0)
	for range 50 {
		send(t, q, "quick", 0)
	}
	consume(t, q)
	eventually(t, "every message is handled", func() bool { return e.of(delayqueue.AckEvent) == 51 })
	close(hold)
	if letters := dead(t, rdb); len(letters) > 0 || d.of("quick") != 50 {
		t.Errorf("%d dead letters; quick ones delivered %d times", len(letters), d.of("quick"))
	}
}

func TestCallbackThatSucceedsAfterItsTimeEndsItsMessage(t *testing.T) {
	var d deliveries
	first, second := make(chan bool), make(chan bool)
	q := newQueue(newRedis(t), func(payload string) bool {
		switch d.add(payload) {
		case 1:
			return <-first
		case 2:
			return <-second
		}
		return true
	}).WithMaxConsumeDuration(time.Second).WithDefaultRetryCount(1)
	var e events
	q.ListenEvent(&e)
	send(t, q, "x", 0)
	consume(t, q)
	eventually(t, "a second delivery", func() bool { return d.of("x") == 2 })
	first <- true
	eventually(t, "nothing is left", func() bool { return countsOf(t, q) == counts{} })
	second <- false
	if e.of(delayqueue.FinalFailedEvent) != 0 {
		t.Error("the message died")
	}
}

func TestQueueIsAQueueOfLater(t *testing.T) {
	rdb := newRedis(t)
	got := make(chan string, 1)
	custom := delayqueue.NewQueue("q", rdb, delayqueue.UseCustomPrefix("mine"), delayqueue.UseHashTagKey())
	msg, err := custom.SendDelayMsgV2("custom", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, rdb, redisstore.Prefix("mine:")).Queue("q").Get(t.Context(), msg.ID()); err != nil {
		t.Error(err)
	}
	q := newQueue(rdb, func(payload string) bool {
		got <- payload
		return true
	})
	if c := countsOf(t, q); c != (counts{}) {
		t.Errorf("prefixes are not apart: %+v", c)
	}
	if _, err := client(t, rdb).Queue("q").Send(t.Context(), []byte("from Later")); err != nil {
		t.Fatal(err)
	}
	consume(t, q)
	if payload := receive(t, "a message", got); payload != "from Later" {
		t.Errorf("got %q", payload)
	}
}

func TestWhatIsNotAllowedIsAnErrorOfEveryCall(t *testing.T) {
	rdb := newRedis(t)
	q := delayqueue.NewQueue("{q}", rdb, func(string) bool { return true }).WithLogger(quiet)
	_, countErr := q.GetReadyCount()
	_, interceptErr := q.TryIntercept(nil)
	prefix := delayqueue.NewPublisher("q", rdb, delayqueue.UseCustomPrefix("{"))
	for what, err := range map[string]error{
		"send": q.SendDelayMsg("x", 0), "count": countErr, "intercept": interceptErr,
		"prefix": prefix.SendDelayMsg("x", 0), "TTL": newQueue(rdb, nil).SendDelayMsg("x", 0, delayqueue.WithMsgTTL(0)),
		"time": newQueue(rdb, nil).SendScheduleMsg("x", time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)),
	} {
		if !errors.Is(err, later.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	receive(t, "the end of a queue that cannot be consumed", q.StartConsume())
	if err := newQueue(rdb, nil).SendScheduleMsg("x", time.Time{}); err != nil {
		t.Errorf("a time before 1970: %v", err)
	}
}

// lines is a Logger.
type lines struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *lines) Printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log.New(&l.out, "", 0).Printf(format, args...)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func TestLoggerHearsWhatHasNoEffectAndWhatFails(t *testing.T) {
	server := redistest.Start(t, redistest.Args("--maxmemory-policy", "allkeys-lru"))
	var l lines
	q := delayqueue.NewQueue("q", server.Client(t), func(string) bool { return true }).WithLogger(&l)
	if err := q.SendDelayMsg("x", 0, "no option"); !errors.Is(err, later.ErrUnsupported) {
		t.Errorf("a server that evicts keys: %v", err)
	}
	consume(t, q)
	for _, want := range []string{"an option of type string", "maxmemory-policy is allkeys-lru"} {
		eventually(t, want+" in the log", func() bool { return strings.Contains(l.String(), want) })
	}
}

func TestQueueAndAMonitorOnACluster(t *testing.T) {
	rdb := redistest.SharedCluster(t).Client(t)
	got := make(chan string, 1)
	q := delayqueue.NewQueueOnCluster("q", rdb, func(payload string) bool {
		got <- payload
		return true
	}).WithLogger(quiet)
	monitor := delayqueue.NewMonitorOnCluster("q", rdb)
	e := &events{}
	closer, err := monitor.ListenEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closer)
	q.EnableReport()
	msg := send(t, q, "intercepted", time.Hour)
	if c := countsOf(t, monitor); c != (counts{pending: 1}) {
		t.Errorf("counts %+v", c)
	}
	if r, err := q.TryIntercept(msg); err != nil || !r.Intercepted {
		t.Errorf("%+v, %v", r, err)
	}
	send(t, q, "x", 0)
	consume(t, q)
	receive(t, "a message", got)
	eventually(t, "events", func() bool {
		return e.of(delayqueue.NewMessageEvent) == 2 && e.of(delayqueue.AckEvent) == 1
	})
}
