package redisstore

import (
	"slices"
	"testing"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// The salts of a queue spread its sub-queues over the primaries.
func TestSaltsAreSpreadOverServers(t *testing.T) {
	rdb := redistest.SharedCluster(t).Client(t)
	s, ctx := newStore(t, rdb), t.Context()
	nodes, err := s.nodes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"q", "orders", "~"} {
		first, err := s.Salts(ctx, queue, 4, nil)
		if err != nil {
			t.Fatal(err)
		}
		salts, err := s.Salts(ctx, queue, 7, first)
		if err != nil || !slices.Equal(salts[:4], first) || first[0] != "" {
			t.Errorf("salts are %v after %v, %v", salts, first, err)
		}
		on := map[string]int{}
		for _, salt := range salts {
			server, err := s.serverOfSalt(ctx, queue, salt)
			if err != nil {
				t.Fatal(err)
			}
			on[server]++
			if s.SameServer(ctx, queue, store.SubQueue(queue, "g", salt)) != (server == s.serverOf(ctx, queue).addr) {
				t.Errorf("the salt %q is on %s", salt, server)
			}
		}
		for _, node := range nodes {
			if n := on[node.Options().Addr]; n < 7/len(nodes) || n > 7/len(nodes)+1 {
				t.Errorf("%d of 7 sub-queues of %q are on %s", n, queue, node.Options().Addr)
			}
		}
		if less, err := s.Salts(ctx, queue, 2, salts); err != nil || !slices.Equal(less, salts[:2]) {
			t.Errorf("two salts are %v, %v", less, err)
		}
	}
	alone, err := newStore(t, redistest.Shared(t).Client(t)).Salts(ctx, "q", 3, []string{"", "2"})
	if err != nil || !slices.Equal(alone, []string{"", "2", "1"}) {
		t.Errorf("salts on one server are %v, %v", alone, err)
	}
}
