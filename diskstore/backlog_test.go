package diskstore

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func take(b *backlog, limit int) string {
	var names []string
	for range limit {
		r := b.next()
		if r == nil {
			break
		}
		names = append(names, r.queue)
	}
	return strings.Join(names, " ")
}

func TestBacklogTakesUrgentRequestsFirstAndQueuesInTurn(t *testing.T) {
	b := newBacklog()
	for _, queue := range []string{"a", "a", "a", "b", "a", "c"} {
		b.add(&request{queue: queue})
	}
	b.add(&request{queue: "u", urgent: true})
	if got := take(b, 4); got != "u a b c" {
		t.Errorf("first %q", got)
	}
	b.add(&request{queue: "b"})
	b.add(&request{queue: "v", urgent: true})
	if got := take(b, 100); got != "v a b a a" {
		t.Errorf("then %q", got)
	}
	if got := take(b, 100); got != "" {
		t.Errorf("at the end %q", got)
	}
}

func TestBacklogKeepsTheOrderOfAQueue(t *testing.T) {
	b := newBacklog()
	var all, got []*request
	for i := range 10 {
		r := &request{queue: "a"}
		all = append(all, r)
		if b.add(r); i%3 == 0 {
			got = append(got, b.next())
		}
	}
	for r := b.next(); r != nil; r = b.next() {
		got = append(got, r)
	}
	if !slices.Equal(got, all) {
		t.Error("the order has changed")
	}
}

func TestBacklogTakesLargeRequestsLast(t *testing.T) {
	b := newBacklog()
	for _, queue := range []string{"A", "A", "b", "C", "d", "b"} {
		b.add(&request{queue: queue, large: queue < "a"})
	}
	if got := take(b, 2); got != "b d" {
		t.Errorf("the first group has %q", got)
	}
	b.endGroup(false)
	if got := take(b, 3); got != "A b C" { // one large one, since the group before had none
		t.Errorf("after a group without a large one: %q", got)
	}
	b.endGroup(true)
	b.add(&request{queue: "b"})
	if got := take(b, 100); got != "b A" {
		t.Errorf("after a group with a large one: %q", got)
	}
	b.endGroup(false)
	b.add(&request{queue: "b"})
	b.add(&request{queue: "A", large: true})
	if got := take(b, 100); got != "b A" {
		t.Errorf("after a group that no large one has waited for: %q", got)
	}
}

// A flood of large messages delays neither a heartbeat nor a small message, to any queue, by more than two groups.
func TestFloodDelaysOtherCallsByTwoGroupsAtMost(t *testing.T) {
	disk := newHanging()
	s := openOn(t, disk, newManualClock())
	defer s.Close()
	send(t, s, "m")
	lease := claimed(t, s, 1, time.Hour)[0].Receipt.Lease
	disk.on.Store(true)
	first := make(chan error, 1)
	go func() {
		_, err := s.Send(context.Background(), "q", []store.Outgoing{{Message: store.Message{ID: "first"}}})
		first <- err
	}()
	<-disk.hangs
	const flood = 64
	var sends sync.WaitGroup
	var mu sync.Mutex
	var order []string
	done := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	for i := range flood {
		sends.Go(func() {
			m := store.Outgoing{Message: store.Message{ID: fmt.Sprint("large", i), Payload: noise[:store.MaxPayload]}}
			if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
				t.Error(err)
			}
			done("large")
		})
	}
	waiting := func(n int) {
		for got := 0; got < n; runtime.Gosched() {
			s.backlog.mu.Lock()
			got = len(s.backlog.urgent)
			for _, lane := range []lane{s.backlog.small, s.backlog.large} {
				for _, l := range lane.queues {
					got += len(l.requests)
				}
			}
			s.backlog.mu.Unlock()
		}
	}
	waiting(flood - 3*maxGroupBytes/store.MaxPayload) // all but the groups that hang with the disk
	sends.Go(func() {
		if _, err := s.Send(t.Context(), "other", []store.Outgoing{{Message: store.Message{ID: "small"}}}); err != nil {
			t.Error(err)
		}
		done("small")
	})
	sends.Go(func() {
		if _, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: "small"}}}); err != nil {
			t.Error(err)
		}
		done("small to the same queue")
	})
	sends.Go(func() {
		if r, err := s.Extend(t.Context(), "q", []store.Extension{{Lease: lease, For: time.Hour}}); err != nil ||
			r[0].Err != nil {
			t.Error(err, r)
		}
		done("heartbeat")
	})
	waiting(flood - 3*maxGroupBytes/store.MaxPayload + 3)
	disk.on.Store(false)
	close(disk.free)
	sends.Wait()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	const most = 6 * maxGroupBytes / store.MaxPayload // two groups, and the messages that were under way before
	for _, what := range []string{"small", "small to the same queue", "heartbeat"} {
		if at := slices.Index(order, what); at > most {
			t.Errorf("%s was done after %d large messages, want %d at most", what, at, most)
		}
	}
	if got := len(live(t, s, "other")); got != 1 {
		t.Errorf("the other queue has %d messages", got)
	}
}
