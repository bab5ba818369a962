package delayqueue_test

import (
	"io"
	"log"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/compat/delayqueue"
)

// The tests in this file hold for the original, too. They use only its API, and pass with it after a change of the
// import line.

var quiet = log.New(io.Discard, "", 0)

// deliveries records calls of a callback.
type deliveries struct {
	mu    sync.Mutex
	count map[string]int
}

// add counts a delivery and returns how many there were of the payload.
func (d *deliveries) add(payload string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == nil {
		d.count = map[string]int{}
	}
	d.count[payload]++
	return d.count[payload]
}

func (d *deliveries) of(payload string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count[payload]
}

// newQueue returns a queue that is fast enough for a test.
func newQueue(rdb *redis.Client, callback delayqueue.CallbackFunc) *delayqueue.DelayQueue {
	return delayqueue.NewQueue("q", rdb, callback).WithFetchInterval(20 * time.Millisecond).WithLogger(quiet)
}

// consume starts q and stops it at the end of the test.
func consume(t *testing.T, q *delayqueue.DelayQueue) {
	t.Helper()
	done := q.StartConsume()
	t.Cleanup(func() {
		q.StopConsume()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("consuming did not end")
		}
	})
}

// counts are the counts of a Monitor.
type counts struct{ pending, ready, processing int64 }

func countsOf(t *testing.T, q interface {
	GetPendingCount() (int64, error)
	GetReadyCount() (int64, error)
	GetProcessingCount() (int64, error)
}) (c counts) {
	t.Helper()
	var errs [3]error
	c.pending, errs[0] = q.GetPendingCount()
	c.ready, errs[1] = q.GetReadyCount()
	c.processing, errs[2] = q.GetProcessingCount()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func send(
	t *testing.T, q *delayqueue.DelayQueue, payload string, d time.Duration, opts ...interface{},
) *delayqueue.MessageInfo {
	t.Helper()
	msg, err := q.SendDelayMsgV2(payload, d, opts...)
	if err != nil || msg.ID() == "" {
		t.Fatalf("sent %v: %v", msg, err)
	}
	return msg
}

func TestRetryCountIsTheNumberOfDeliveriesAfterTheFirst(t *testing.T) {
	var d deliveries
	q := newQueue(newRedis(t), func(payload string) bool {
		d.add(payload)
		return false
	}).WithDefaultRetryCount(2).WithConcurrent(4)
	var e events
	q.ListenEvent(&e)
	send(t, q, "default", 0)
	send(t, q, "none", 0, delayqueue.WithRetryCount(0))
	send(t, q, "one", 0, delayqueue.WithRetryCount(1))
	send(t, q, "negative", 0, delayqueue.WithRetryCount(-1))
	consume(t, q)
	eventually(t, "all fail for good", func() bool { return e.of(delayqueue.FinalFailedEvent) == 4 })
	for payload, want := range map[string]int{"default": 3, "none": 1, "one": 2, "negative": 1} {
		if got := d.of(payload); got != want {
			t.Errorf("%s was delivered %d times, want %d", payload, got, want)
		}
	}
	if c := countsOf(t, q); c != (counts{}) {
		t.Errorf("left: %+v", c)
	}
}

func TestInterceptOfAPendingMessageRemovesIt(t *testing.T) {
	q := newQueue(newRedis(t), func(string) bool { return true })
	msg := send(t, q, "x", time.Hour)
	result, err := q.TryIntercept(msg)
	if err != nil || *result != (delayqueue.InterceptResult{Intercepted: true, State: delayqueue.StatePending}) {
		t.Errorf("%+v, %v", result, err)
	}
	if c := countsOf(t, q); c != (counts{}) {
		t.Errorf("left: %+v", c)
	}
	again, err := q.TryIntercept(msg)
	if err != nil || *again != (delayqueue.InterceptResult{State: delayqueue.StateUnknown}) {
		t.Errorf("again: %+v, %v", again, err)
	}
}

func TestInterceptOfAReadyMessageRemovesItAndOneInProgressIsNotRetried(t *testing.T) {
	var d deliveries
	began, release := make(chan string), make(chan bool)
	q := newQueue(newRedis(t), func(payload string) bool {
		d.add(payload)
		if payload == "last" {
			return true
		}
		began <- payload
		return <-release
	}).WithFetchLimit(1).WithMaxConsumeDuration(time.Minute)
	running := send(t, q, "running", 0)
	consume(t, q)
	receive(t, "the first delivery", began)
	waiting := send(t, q, "waiting", 0)
	eventually(t, "a ready message", func() bool { return countsOf(t, q).ready == 1 })
	result, err := q.TryIntercept(waiting)
	if err != nil || *result != (delayqueue.InterceptResult{Intercepted: true, State: delayqueue.StateReady}) {
		t.Errorf("ready: %+v, %v", result, err)
	}
	result, err = q.TryIntercept(running)
	if err != nil || *result != (delayqueue.InterceptResult{State: delayqueue.StateUnknown}) {
		t.Errorf("running: %+v, %v", result, err)
	}
	release <- false
	send(t, q, "last", 0)
	eventually(t, "the last message", func() bool { return d.of("last") == 1 })
	eventually(t, "nothing is left", func() bool { return countsOf(t, q) == counts{} })
	if d.of("running") != 1 || d.of("waiting") != 0 {
		t.Errorf("delivered %v", d.count)
	}
}

func TestInterceptOfAMessageThatWaitsForARetryEndsIt(t *testing.T) {
	var d deliveries
	q := newQueue(newRedis(t), func(payload string) bool { return d.add(payload) < 1 }).
		WithNackRedeliveryDelay(time.Hour)
	var e events
	q.ListenEvent(&e)
	msg := send(t, q, "x", 0)
	consume(t, q)
	eventually(t, "a nack", func() bool { return e.of(delayqueue.NackEvent) == 1 })
	result, err := q.TryIntercept(msg)
	if err != nil || *result != (delayqueue.InterceptResult{State: delayqueue.StateUnknown}) {
		t.Errorf("%+v, %v", result, err)
	}
	if d.of("x") != 1 {
		t.Errorf("delivered %d times", d.of("x"))
	}
}

func TestInterceptOfAConsumedMessageChangesNothing(t *testing.T) {
	q := newQueue(newRedis(t), func(string) bool { return true })
	var e events
	q.ListenEvent(&e)
	msg := send(t, q, "x", 0)
	consume(t, q)
	eventually(t, "an ack", func() bool { return e.of(delayqueue.AckEvent) == 1 })
	result, err := q.TryIntercept(msg)
	if err != nil || *result != (delayqueue.InterceptResult{State: delayqueue.StateUnknown}) {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestCallbackThatExceedsItsTimeIsDeliveredAgain(t *testing.T) {
	var d deliveries
	release := make(chan bool)
	q := newQueue(newRedis(t), func(payload string) bool {
		if d.add(payload) == 1 {
			<-release
		}
		return true
	}).WithConcurrent(2).WithMaxConsumeDuration(time.Second)
	send(t, q, "x", 0)
	consume(t, q)
	eventually(t, "a second delivery", func() bool { return d.of("x") == 2 })
	close(release)
	eventually(t, "nothing is left", func() bool { return countsOf(t, q) == counts{} })
}

// events counts messages by the code of their events.
type events struct {
	mu    sync.Mutex
	count [delayqueue.FinalFailedEvent + 1]int
	times []int64
}

func (e *events) OnEvent(event *delayqueue.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count[event.Code] += event.MsgCount
	e.times = append(e.times, event.Timestamp)
}

func (e *events) of(code int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count[code]
}

func (e *events) are(want [delayqueue.FinalFailedEvent + 1]int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count == want
}

func TestEventsOfAQueueAndOfItsMonitor(t *testing.T) {
	rdb := newRedis(t)
	monitor := delayqueue.NewMonitor("q", rdb).WithLogger(quiet)
	run := func(t *testing.T, listen func(q *delayqueue.DelayQueue, e *events)) {
		q := newQueue(rdb, func(payload string) bool { return payload == "good" }).WithDefaultRetryCount(1)
		e := &events{}
		listen(q, e)
		for _, payload := range []string{"good", "bad", "good"} {
			send(t, q, payload, 0)
		}
		consume(t, q)
		want := [...]int{
			delayqueue.NewMessageEvent: 3, delayqueue.ReadyEvent: 3, delayqueue.DeliveredEvent: 3,
			delayqueue.AckEvent:  2,
			delayqueue.NackEvent: 2, delayqueue.RetryEvent: 1, delayqueue.FinalFailedEvent: 1,
		}
		eventually(t, "all events", func() bool { return e.are(want) })
		for _, at := range e.times {
			if time.Since(time.Unix(at, 0)).Abs() > time.Hour {
				t.Errorf("an event has the time %d", at)
			}
		}
		q.DisableReport()
		send(t, q, "good", 0)
		eventually(t, "nothing is left", func() bool { return countsOf(t, q) == counts{} })
		if !e.are(want) {
			t.Errorf("after DisableReport: %v", e.count)
		}
	}
	t.Run("listener", func(t *testing.T) {
		run(t, func(q *delayqueue.DelayQueue, e *events) { q.ListenEvent(e) })
	})
	t.Run("monitor", func(t *testing.T) {
		run(t, func(q *delayqueue.DelayQueue, e *events) {
			closer, err := monitor.ListenEvent(e)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(closer)
			eventually(t, "the subscription", func() bool {
				n, err := rdb.PubSubNumSub(t.Context(), "dq:q:reportEvents").Result()
				return err == nil && n["dq:q:reportEvents"] == 1
			})
			q.EnableReport()
		})
	})
}

func TestMonitorCountsPendingAndProcessingMessages(t *testing.T) {
	rdb := newRedis(t)
	began, release := make(chan string, 2), make(chan bool)
	q := newQueue(rdb, func(payload string) bool {
		began <- payload
		return <-release
	}).WithConcurrent(2).WithMaxConsumeDuration(time.Minute)
	publisher := delayqueue.NewPublisher("q", rdb).WithLogger(quiet)
	for range 3 {
		if err := publisher.SendScheduleMsg("later", time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := publisher.SendDelayMsg("now", 0); err != nil {
			t.Fatal(err)
		}
	}
	consume(t, q)
	receive(t, "a delivery", began)
	receive(t, "a delivery", began)
	if c := countsOf(t, delayqueue.NewMonitor("q", rdb)); c != (counts{pending: 3, processing: 2}) {
		t.Errorf("counts %+v", c)
	}
	release <- true
	release <- true
	eventually(t, "both are done", func() bool { return countsOf(t, q) == counts{pending: 3} })
}

func TestFetchLimitBoundsTheMessagesInProgress(t *testing.T) {
	rdb := newRedis(t)
	began, release := make(chan string, 9), make(chan bool)
	q := newQueue(rdb, func(payload string) bool {
		began <- payload
		return <-release
	}).WithConcurrent(4).WithFetchLimit(2).WithMaxConsumeDuration(time.Minute)
	for range 5 {
		send(t, q, "x", 0)
	}
	consume(t, q)
	receive(t, "a delivery", began)
	receive(t, "a delivery", began)
	eventually(t, "the rest is ready", func() bool { return countsOf(t, q).ready == 3 })
	if c := countsOf(t, q); c.processing != 2 {
		t.Errorf("in progress: %d", c.processing)
	}
	for range 3 {
		release <- true
		receive(t, "another delivery", began)
	}
	release <- true
	release <- true
	eventually(t, "all are done", func() bool { return countsOf(t, q) == counts{} })
}

func TestConsumingCanBeStoppedByACallbackAndStartedAgain(t *testing.T) {
	var d deliveries
	var q *delayqueue.DelayQueue
	q = newQueue(newRedis(t), func(payload string) bool {
		d.add(payload)
		q.StopConsume()
		return true
	})
	for round := 1; round <= 3; round++ {
		send(t, q, "x", 0)
		receive(t, "the end", q.StartConsume())
		eventually(t, "nothing is left", func() bool { return countsOf(t, q) == counts{} })
		if d.of("x") != round {
			t.Errorf("delivered %d times in %d rounds", d.of("x"), round)
		}
	}
}

func TestMistakesOfTheProgramPanic(t *testing.T) {
	rdb := newRedis(t)
	idle := delayqueue.NewQueue("q", rdb)
	q := newQueue(rdb, func(string) bool { return true })
	consume(t, q)
	for what, f := range map[string]func(){
		"name is required":                             func() { delayqueue.NewQueue("", rdb) },
		"cli is required":                              func() { delayqueue.NewQueue0("q", nil) },
		"concurrent cannot be 0":                       func() { idle.WithConcurrent(0) },
		"this instance has no callback":                func() { idle.StartConsume() },
		"operation cannot be performed during running": func() { q.WithConcurrent(2) },
	} {
		func() {
			defer func() {
				if p := recover(); p != what {
					t.Errorf("panic %v, want %q", p, what)
				}
			}()
			f()
		}()
	}
}
