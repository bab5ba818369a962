package shard

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

var opened atomic.Int64

// open returns a harness of a store in memory in which the queues of rules have n shards.
func open(n int) func(t *testing.T) storetest.Harness {
	return func(t *testing.T) storetest.Harness {
		clock := memstore.NewManualClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
		engine := memstore.New(memstore.WithClock(clock))
		s := New(engine, slog.New(slog.DiscardHandler)).(forwarder)
		t.Cleanup(func() { s.Close() })
		var known sync.Map
		p := prefixed{s, fmt.Sprint("p", opened.Add(1)), func(call, queue string) {
			if call != "Send" {
				return
			}
			prefix, _ := reserved.Cut(queue)
			_, ok := known.LoadOrStore(queue, true)
			if ok || prefix != "" || store.CheckNewQueue(queue) != nil {
				return
			}
			err := s.SetShards(t.Context(), queue, n)
			if err != nil && !errors.Is(err, store.ErrUnsupported) { // it has a flow
				t.Error(err)
			}
			if r := s.known(queue); r != nil {
				if _, _, err := s.pass(t.Context(), r); err != nil && !errors.Is(err, store.ErrConflict) {
					t.Error(err)
				}
			}
		}}
		return storetest.Harness{Store: p, Peer: p, Exact: true, Sharded: n > 1,
			Advance: func(_ testing.TB, _ string, d time.Duration) { clock.Advance(d) }}
	}
}

func TestConformance(t *testing.T) {
	for _, n := range []int{1, 3, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { storetest.Run(t, open(n)) })
	}
}
