package delayqueue_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/compat/delayqueue"
	"github.com/laterq/later/internal/redistest"
)

// ownCli is a RedisCli as a program with another client would write it.
type ownCli struct {
	delayqueue.RedisCli // methods that are not used; nil
	rdb                 *redis.Client
	evals               atomic.Int64
	subscribed          chan struct{} // has a value for each subscription
}

func wrap(value any, err error) (any, error) {
	if errors.Is(err, redis.Nil) {
		return nil, delayqueue.NilErr
	}
	return value, err
}

func (c *ownCli) Eval(script string, keys []string, args []any) (any, error) {
	return wrap(c.rdb.Eval(context.Background(), script, keys, args...).Result())
}

func (c *ownCli) EvalSha(sha string, keys []string, args []any) (any, error) {
	c.evals.Add(1)
	return wrap(c.rdb.EvalSha(context.Background(), sha, keys, args...).Result())
}

func (c *ownCli) ScriptLoad(script string) (string, error) {
	return c.rdb.ScriptLoad(context.Background(), script).Result()
}

func (c *ownCli) Publish(channel, payload string) error {
	return c.rdb.Publish(context.Background(), channel, payload).Err()
}

func (c *ownCli) Subscribe(channel string) (<-chan string, func(), error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sub := c.rdb.Subscribe(ctx, channel)
	if _, err := sub.Receive(ctx); err != nil {
		return nil, nil, err
	}
	select {
	case c.subscribed <- struct{}{}:
	default:
	}
	payloads := make(chan string)
	ended, end := context.WithCancel(context.Background())
	go func() {
		defer close(payloads)
		for msg := range sub.Channel() {
			select {
			case payloads <- msg.Payload:
			case <-ended.Done():
				return
			}
		}
	}()
	return payloads, func() {
		end()
		sub.Close()
	}, nil
}

func TestQueueWorksThroughARedisCli(t *testing.T) {
	cli := &ownCli{rdb: redistest.Start(t).Client(t), subscribed: make(chan struct{}, 1)}
	got := make(chan string, 9)
	payload := "any bytes: \x00\xff\r\n" + strings.Repeat("long", 10_000)
	q := delayqueue.NewQueue0("q", cli, func(p string) bool {
		got <- p
		return p == payload
	}).WithLogger(quiet).WithDefaultRetryCount(1).WithFetchInterval(20 * time.Millisecond)
	monitor := delayqueue.NewMonitor0("q", cli)
	e := &events{}
	closer, err := monitor.ListenEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	defer closer()
	q.EnableReport()
	msg := send(t, q, "intercepted", time.Hour)
	if c := countsOf(t, monitor); c != (counts{pending: 1}) {
		t.Errorf("counts %+v", c)
	}
	if r, err := q.TryIntercept(msg); err != nil || !r.Intercepted {
		t.Errorf("%+v, %v", r, err)
	}
	<-cli.subscribed // the monitor's
	consume(t, q)
	receive(t, "the subscription of an idle consumer", cli.subscribed)
	if err := delayqueue.NewPublisher0("q", cli).SendDelayMsg(payload, 0); err != nil {
		t.Fatal(err)
	}
	if p := receive(t, "a message", got); p != payload {
		t.Errorf("got %d bytes %.30q", len(p), p)
	}
	send(t, q, "bad", 0)
	eventually(t, "events", func() bool {
		return e.of(delayqueue.AckEvent) == 1 && e.of(delayqueue.RetryEvent) == 1 &&
			e.of(delayqueue.FinalFailedEvent) == 1
	})
	if cli.evals.Load() == 0 {
		t.Error("EvalSha was never called")
	}
}

// failingCli is a RedisCli without connection to its server.
type failingCli struct{ delayqueue.RedisCli }

var errDown = errors.New("ERR down for a test")

func (failingCli) Eval(string, []string, []any) (any, error)       { return nil, errDown }
func (failingCli) EvalSha(string, []string, []any) (any, error)    { return nil, errDown }
func (failingCli) ScriptLoad(string) (string, error)               { return "", errDown }
func (failingCli) Publish(string, string) error                    { return errDown }
func (failingCli) Subscribe(string) (<-chan string, func(), error) { return nil, nil, errDown }

func TestErrorsOfARedisCliAreReturned(t *testing.T) {
	q := delayqueue.NewQueue0("q", failingCli{})
	err := q.SendDelayMsg("x", 0)
	if !errors.Is(err, later.ErrUnavailable) || !strings.Contains(err.Error(), errDown.Error()) {
		t.Errorf("send: %v", err)
	}
	if _, err := delayqueue.NewMonitor0("q", failingCli{}).ListenEvent(&events{}); err == nil ||
		!strings.Contains(err.Error(), errDown.Error()) {
		t.Errorf("listen: %v", err)
	}
}
