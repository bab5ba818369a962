package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// openLeases opens n leases of one message each, m0 to m<n-1>, due a second ago.
func openLeases(t testing.TB, s *Store, queue string, n int) {
	t.Helper()
	for from := 0; from < n; from += store.MaxBatch {
		msgs := make([]store.Outgoing, min(store.MaxBatch, n-from))
		for i := range msgs {
			msgs[i] = store.Outgoing{Message: store.Message{ID: fmt.Sprint("m", from+i)}}
		}
		if _, err := s.Send(t.Context(), queue, msgs); err != nil {
			t.Fatal(err)
		}
		for range msgs {
			claim(t, s, queue, 1, time.Hour)
		}
	}
}

// A get of a leased message makes few calls. Each of them reads a bounded part of the leases.
func TestGetOfLeasedMessageSearchesManyLeasesPerCall(t *testing.T) {
	srv := redistest.Start(t)
	s := newStore(t, srv.Client(t))
	openLeases(t, s, "leased", 3000)
	send(t, s, "leased", "m1", store.Due{}) // a duplicate
	if _, err := s.Cancel(t.Context(), "leased", store.CancelRequest{IDs: []string{"m2"}}); err != nil {
		t.Fatal(err)
	}
	send(t, s, "leased", "m2", store.Due{}) // two leases list it, with different epochs
	again := claim(t, s, "leased", 1, time.Minute)
	// Leases are read in the order of Redis' hash table. With this many ids, one is in the last part of them.
	ids := []string{"m1", "m2", "m2999", "m5", "unknown"}
	for i := range 50 {
		ids = append(ids, fmt.Sprint("m", 100+50*i))
	}
	var infos []*store.Info
	commands := commandsOf(t, srv, func() {
		var err error
		if infos, err = s.Get(t.Context(), "leased", ids); err != nil {
			t.Fatal(err)
		}
	})
	calls := 0
	for _, command := range commands {
		if strings.Contains(strings.ToLower(command), "evalsha") {
			calls++
		}
	}
	if calls < 3 || calls > 6 { // one to read the messages, one for each 1,000 leases
		t.Errorf("%d calls were made for 3,000 leases, want 3 to 6:\n%.1000s", calls, strings.Join(commands, "\n"))
	}
	if infos[4] != nil || !infos[1].LeaseDeadline.Equal(again.Deadline) {
		t.Errorf("Get = %+v; want m2 in its second lease, until %v", infos, again.Deadline)
	}
	for _, i := range []int{0, 2, 3} {
		if left := time.Until(infos[i].LeaseDeadline); left < 50*time.Minute || infos[i].Due.IsZero() {
			t.Errorf("Get(%s) = %+v", infos[i].ID, infos[i])
		}
	}
}

// BenchmarkGetLeased gets one of 20,000 leased messages, each under its own lease.
func BenchmarkGetLeased(b *testing.B) {
	s := newStore(b, redistest.Start(b).Client(b))
	openLeases(b, s, "leased", 20_000)
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		infos, err := s.Get(b.Context(), "leased", []string{fmt.Sprint("m", i*7919%20_000)})
		if err != nil || infos[0].LeaseDeadline.IsZero() {
			b.Fatal(infos[0], err)
		}
	}
}
