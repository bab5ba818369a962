package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The ceiling: the least that scripts of this layout have to do, in batches of 500 from two connections, with
// none of a queue's duties. No delay queue on Redis with a sorted set and a hash can be faster.
var (
	bareSend = redis.NewScript(`
local z, h, k = {}, {}, 0
for i = 1, #ARGV, 3 do
  k = k + 2
  z[k-1], z[k] = ARGV[i], ARGV[i+1]
  h[k-1], h[k] = ARGV[i+1], ARGV[i+2]
end
redis.call('HSET', KEYS[2], unpack(h))
redis.call('ZADD', KEYS[1], unpack(z))`)
	bareClaim = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ids = redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[1])
if #ids == 0 then return {} end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #ids - 1)
redis.call('HSET', KEYS[3], ARGV[2], table.concat(ids))
redis.call('ZADD', KEYS[4], now + 30000, ARGV[2])
return {ids, redis.call('HMGET', KEYS[2], unpack(ids))}`)
	bareAck = redis.NewScript(`
if redis.call('HDEL', KEYS[3], ARGV[1]) == 0 then return 0 end
redis.call('ZREM', KEYS[4], ARGV[1])
return redis.call('HDEL', KEYS[2], unpack(ARGV, 2))`)
	bareKeys = []string{"{ceiling}due", "{ceiling}msg", "{ceiling}lease", "{ceiling}expiry"}
)

const bareBatch = 500

// ceilingSend has goroutines send one message at a time through two connections that gather what waits.
func ceilingSend(ctx context.Context, rdb *redis.Client, n, goroutines int, payload []byte) float64 {
	type request struct {
		id   string
		done chan struct{}
	}
	waiting := make(chan request, 8192)
	var flushers sync.WaitGroup
	for range 2 {
		flushers.Go(func() {
			for first := range waiting {
				batch := []request{first}
			gather:
				for len(batch) < bareBatch {
					select {
					case r, ok := <-waiting:
						if !ok {
							break gather
						}
						batch = append(batch, r)
					default:
						break gather
					}
				}
				due := strconv.FormatInt(time.Now().UnixMilli()-1000, 10)
				args := make([]any, 0, 3*len(batch))
				for i := range batch {
					args = append(args, due, &batch[i].id, payload)
				}
				if err := bareSend.Run(ctx, rdb, bareKeys, args...).Err(); err != redis.Nil {
					check(err)
				}
				for _, r := range batch {
					r.done <- struct{}{}
				}
			}
		})
	}
	var made atomic.Uint64
	done := sync.Pool{New: func() any { return make(chan struct{}, 1) }}
	rate := share(n, goroutines, func() {
		var id [16]byte
		binary.BigEndian.PutUint64(id[8:], made.Add(1))
		r := request{string(id[:]), done.Get().(chan struct{})}
		waiting <- r
		<-r.done
		done.Put(r.done)
	})
	close(waiting)
	flushers.Wait()
	return rate
}

// ceilingDrain claims on two connections, hands each message to one of 32 goroutines, and acks each claim whole.
func ceilingDrain(ctx context.Context, rdb *redis.Client, n int) float64 {
	work := make(chan func(), 4096)
	for range 32 {
		go func() {
			for job := range work {
				job()
			}
		}()
	}
	defer close(work)
	var acked, leases atomic.Int64
	var fetchers, acks sync.WaitGroup
	start := time.Now()
	for range 2 {
		fetchers.Go(func() {
			for {
				lease := fmt.Sprint("lease", leases.Add(1))
				reply, err := bareClaim.Run(ctx, rdb, bareKeys, bareBatch, lease).Slice()
				check(err)
				if len(reply) == 0 {
					return
				}
				ids, payloads := reply[0].([]any), reply[1].([]any)
				var left sync.WaitGroup
				for _, p := range payloads {
					left.Add(1)
					work <- func() {
						_ = len(p.(string))
						left.Done()
					}
				}
				acks.Go(func() {
					left.Wait()
					removed, err := bareAck.Run(ctx, rdb, bareKeys, append([]any{lease}, ids...)...).Int64()
					check(err)
					acked.Add(removed)
				})
			}
		})
	}
	fetchers.Wait()
	acks.Wait()
	rate := float64(n) / time.Since(start).Seconds()
	if acked.Load() != int64(n) {
		check(fmt.Errorf("the ceiling acked %d of %d", acked.Load(), n))
	}
	return rate
}
