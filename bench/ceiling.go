package main

import (
	"context"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/laterq/later/internal/benchmark"
)

// The ceiling is the minimum that scripts of this layout must do, in batches of 500 from two connections, without a
// queue's other duties. No delay queue on a Redis sorted set and hash can be much faster.
var (
	bareSend  = bareScript("send")
	bareClaim = bareScript("claim")
	bareAck   = bareScript("ack")
	bareKeys  = []string{"{ceiling}due", "{ceiling}msg", "{ceiling}lease", "{ceiling}expiry"}
)

//go:embed lua
var bareTexts embed.FS

func bareScript(name string) *redis.Script {
	text, err := bareTexts.ReadFile("lua/bare_" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return redis.NewScript(string(text))
}

const (
	bareBatch       = 500
	bareConnections = 2
)

func ceilingSubject() *subject {
	const why = "the bare scripts wait for nothing: their client knows all due times"
	return &subject{
		subjectInfo: subjectInfo{
			Name: "ceiling", Title: "ceiling (bare scripts)",
			Settings: "the bare Lua scripts of Later's layout on a Redis without persistence, batches of 500 over 2 " +
				"connections: no fencing, attempts, retries, wake-ups or heartbeats",
			Cannot: map[string]string{"lateness": why, "herd": why},
		},
		workloads: []string{"send", "drain", "memory", "life"}, missing: redisInstalled, settled: true,
		start: overRedis(persistNone, connectCeiling),
	}
}

// ceiling is a queue of the bare scripts. One goroutine per connection batches the messages of all senders.
type ceiling struct {
	rdb      *redis.Client
	waiting  chan bareRequest
	flushers sync.WaitGroup
	made     atomic.Uint64
	leases   atomic.Uint64
	done     sync.Pool
	timed    atomic.Bool   // a worker waits: Send sets a timer for each message
	due      chan struct{} // has a value for each timer that has fired
}

type bareRequest struct {
	id, due string
	payload []byte
	done    chan error
}

func connectCeiling(ctx context.Context, addr string) (benchmark.Queue, func() error, error) {
	c := &ceiling{
		rdb:     redis.NewClient(&redis.Options{Addr: addr}),
		waiting: make(chan bareRequest, 8192),
		done:    sync.Pool{New: func() any { return make(chan error, 1) }},
		due:     make(chan struct{}, 1<<20),
	}
	for range bareConnections {
		c.flushers.Go(c.flush)
	}
	return c, func() error {
		close(c.waiting)
		c.flushers.Wait()
		return c.rdb.Close()
	}, nil
}

func (c *ceiling) newID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[8:], c.made.Add(1))
	return string(id[:])
}

func bareDue(due time.Time) string {
	if due.IsZero() {
		return "0"
	}
	return strconv.FormatInt(due.UnixMilli(), 10)
}

func (c *ceiling) Send(_ context.Context, payload []byte, due time.Time) (string, error) {
	r := bareRequest{c.newID(), bareDue(due), payload, c.done.Get().(chan error)}
	c.waiting <- r
	err := <-r.done
	c.done.Put(r.done)
	if c.timed.Load() {
		time.AfterFunc(time.Until(due), func() { c.due <- struct{}{} })
	}
	return r.id, err
}

// flush sends all pending messages, batch by batch.
func (c *ceiling) flush() {
	for first := range c.waiting {
		batch := []bareRequest{first}
	gather:
		for len(batch) < bareBatch {
			select {
			case r, ok := <-c.waiting:
				if !ok {
					break gather
				}
				batch = append(batch, r)
			default:
				break gather
			}
		}
		args := make([]any, 0, 3*len(batch))
		for i := range batch {
			args = append(args, &batch[i].due, &batch[i].id, batch[i].payload)
		}
		err := bareSend.Run(context.Background(), c.rdb, bareKeys, args...).Err()
		for _, r := range batch {
			r.done <- err
		}
	}
}

func (c *ceiling) SendBatch(ctx context.Context, msgs []benchmark.Outgoing) error {
	for len(msgs) > 0 {
		part := msgs[:min(len(msgs), bareBatch)]
		msgs = msgs[len(part):]
		var args []any
		for _, m := range part {
			args = append(args, bareDue(m.Due), c.newID(), m.Payload)
		}
		if err := bareSend.Run(ctx, c.rdb, bareKeys, args...).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (c *ceiling) Left(ctx context.Context) (int, error) {
	n, err := c.rdb.HLen(ctx, bareKeys[1]).Result()
	return int(n), err
}

// Work claims on its connections, passes each message to a handler, and acks each claim as a whole. When no message is
// ready, it waits until one is due: Send, which is called in the same process, knows when.
func (c *ceiling) Work(ctx context.Context, handlers int, handle func(payload []byte)) error {
	jobs := make(chan func(), 4096)
	var handling sync.WaitGroup
	for range handlers {
		handling.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}
	calls := context.WithoutCancel(ctx)
	c.timed.Store(true)
	defer c.timed.Store(false)
	var fetchers, acks errgroup.Group
	for range bareConnections {
		fetchers.Go(func() error {
			for ctx.Err() == nil {
				lease := fmt.Sprint("lease", c.leases.Add(1))
				reply, err := bareClaim.Run(calls, c.rdb, bareKeys, bareBatch, lease).Slice()
				if err != nil {
					return err
				}
				if len(reply) == 0 {
					select {
					case <-c.due:
					case <-time.After(time.Second): // for messages that were sent before there were timers
					case <-ctx.Done():
					}
					continue
				}
				ids, payloads := reply[0].([]any), reply[1].([]any)
				var left sync.WaitGroup
				left.Add(len(payloads))
				for _, p := range payloads {
					jobs <- func() {
						handle([]byte(p.(string)))
						left.Done()
					}
				}
				acks.Go(func() error {
					left.Wait()
					acked, err := bareAck.Run(calls, c.rdb, bareKeys, append([]any{lease}, ids...)...).Int()
					if err == nil && acked != len(ids) {
						err = fmt.Errorf("acked %d of %d", acked, len(ids))
					}
					return err
				})
			}
			return nil
		})
	}
	err := errors.Join(fetchers.Wait(), acks.Wait())
	close(jobs)
	handling.Wait()
	return err
}
