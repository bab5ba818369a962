package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/store"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	s := redisstore.New(rdb)
	cpu := func() float64 {
		t := 0.0
		for l := range strings.SplitSeq(rdb.Info(ctx, "cpu").Val(), "\r\n") {
			for _, f := range []string{"used_cpu_user:", "used_cpu_sys:"} {
				if v, ok := strings.CutPrefix(l, f); ok {
					x, _ := strconv.ParseFloat(v, 64)
					t += x
				}
			}
		}
		return t * 1e6
	}
	for _, batch := range []int{500, 100, 32} {
		for _, parts := range []int{1, 2, 4} {
			rdb.FlushAll(ctx)
			n := 200000 / batch * batch
			payload := []byte(strings.Repeat("x", 100))
			c0 := cpu()
			for i := 0; i < n; i += 500 {
				msgs := make([]store.Outgoing, min(500, n-i))
				for k := range msgs {
					msgs[k] = store.Outgoing{Message: store.Message{ID: store.NewID(), Payload: payload}}
				}
				if _, err := s.Send(ctx, "q", msgs); err != nil {
					panic(err)
				}
			}
			c1 := cpu()
			var claims []store.Claim
			for range n / batch {
				c, err := s.Claim(ctx, "q", store.ClaimRequest{Max: batch, Lease: time.Minute})
				if err != nil || len(c.Messages) != batch {
					panic(fmt.Sprint(err, len(c.Messages)))
				}
				claims = append(claims, c)
			}
			c2 := cpu()
			for _, c := range claims {
				for p := range parts {
					part := c.Messages[p*batch/parts : (p+1)*batch/parts]
					st := make([]store.Settlement, len(part))
					for i := range part {
						st[i] = store.Settlement{Receipt: part[i].Receipt, Action: store.Ack}
					}
					if _, err := s.Settle(ctx, "q", st); err != nil {
						panic(err)
					}
				}
			}
			c3 := cpu()
			fmt.Printf("batch %d parts %d: send %.2f claim %.2f ack %.2f us/msg\n", batch, parts, (c1-c0)/float64(n), (c2-c1)/float64(n), (c3-c2)/float64(n))
		}
	}
}
