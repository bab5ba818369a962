package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// largestCall notes the most keys and bytes of a script call.
type largestCall struct {
	redis.UniversalClient
	calls, keys, bytes int
}

func (l *largestCall) Process(ctx context.Context, cmd redis.Cmder) error {
	if args := cmd.Args(); args[0] == "evalsha" {
		size := 0
		for _, arg := range args {
			switch arg := arg.(type) {
			case string:
				size += len(arg)
			case *string:
				size += len(*arg)
			case []byte:
				size += len(arg)
			}
		}
		l.calls, l.keys, l.bytes = l.calls+1, max(l.keys, args[2].(int)), max(l.bytes, size)
	}
	return l.UniversalClient.Process(ctx, cmd)
}

// A settle of many messages with follow-ups makes as many calls as keep each of them short.
func TestFollowUpsAreWrittenInBoundedCalls(t *testing.T) {
	for name, c := range map[string]struct{ msgs, queues, size, calls int }{
		"each in a queue of its own": {store.MaxBatch, store.MaxBatch, 10, 8},
		"many bytes":                 {400, 1, 10_000, 4},
		"each in many queues":        {7, store.MaxFollowUpQueues, 10, 1},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := &largestCall{UniversalClient: redistest.Start(t).Client(t)}
			s := newStore(t, rdb)
			var msgs []store.Outgoing
			for i := range c.msgs {
				msgs = append(msgs, store.Outgoing{Message: store.Message{ID: fmt.Sprintf("m%03d", i)}})
			}
			if _, err := s.Send(t.Context(), "q", msgs); err != nil {
				t.Fatal(err)
			}
			claim, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: store.MaxBatch, Lease: time.Minute})
			if err != nil || len(claim.Messages) != c.msgs {
				t.Fatal(len(claim.Messages), err)
			}
			var held []store.Receipt
			for _, m := range claim.Messages {
				held = append(held, m.Receipt)
			}
			all, added := settlements(held, store.Ack), 0
			for i := range all {
				for k := range max(1, c.queues/c.msgs) {
					m := store.Message{ID: msgs[i].ID, Payload: make([]byte, c.size)}
					all[i].Then = append(all[i].Then,
						store.FollowUp{Queue: fmt.Sprint("to", (i+k)%c.queues), Message: store.Outgoing{Message: m}})
					added++
				}
			}
			rdb.calls, rdb.keys, rdb.bytes = 0, 0, 0
			results, err := s.Settle(t.Context(), "q", all)
			for _, r := range results {
				if r.Err != nil {
					err = r.Err
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if rdb.calls != c.calls || rdb.keys > len(keyNames)*(1+store.MaxFollowUpQueues) ||
				rdb.bytes > maxSendWork<<9+200_000 {
				t.Errorf("%d calls with up to %d keys and %d bytes, want %d calls", rdb.calls, rdb.keys,
					rdb.bytes, c.calls)
			}
			there := int64(0)
			for i := range c.queues {
				stats, err := s.Stats(t.Context(), fmt.Sprint("to", i))
				if err != nil {
					t.Fatal(err)
				}
				there += stats.Ready
			}
			if there != int64(added) {
				t.Errorf("%d follow-ups were written, want %d", there, added)
			}
		})
	}
}
