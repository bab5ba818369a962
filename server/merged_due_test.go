package server

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// vagueStore takes a time for each page of a list, and tells bounds of the earliest messages.
type vagueStore struct {
	store.Store
	takes func(state store.State) time.Duration
	bound func(from, first time.Time) time.Time // zero if the store cannot tell
	ahead time.Duration                         // of the clock of the server with the queue of schedules
}

func (s *vagueStore) Stats(ctx context.Context, queue string) (store.Stats, error) {
	stats, err := s.Store.Stats(ctx, queue)
	if queue == reserved.Schedules {
		stats.Now = stats.Now.Add(s.ahead)
	}
	return stats, err
}

func (s *vagueStore) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	time.Sleep(s.takes(req.State))
	return s.Store.List(ctx, queue, req)
}

func (s *vagueStore) Probe(_ context.Context, queues, _, _ []string) ([]bool, error) {
	return slices.Repeat([]bool{true}, len(queues)), nil
}

func (s *vagueStore) CountDue(_ context.Context, queues []string, _, _ time.Time) ([]int64, error) {
	return slices.Repeat([]int64{-1}, len(queues)), nil
}

func (s *vagueStore) Earliest(
	ctx context.Context, queues []string, from []time.Time, _ bool,
) (all []store.Earliest, err error) {
	for i, queue := range queues {
		e := store.Earliest{Known: true}
		for _, state := range []store.State{store.StateReady, store.StateScheduled} {
			page, err := s.Store.List(ctx, queue, store.ListRequest{State: state, From: from[i], Limit: 1})
			if err != nil {
				return nil, err
			}
			for _, m := range page.Messages {
				if !e.Any || m.Due.Before(e.Time) {
					e.Any, e.Time = true, m.Due
				}
			}
		}
		if e.Any {
			if e.Time = s.bound(from[i], e.Time); e.Time.IsZero() {
				e = store.Earliest{}
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// listPending returns the scheduled and ready messages of all queues, as queue/id.
func (a *api) listPending(limit int, between func()) (all []string) {
	a.t.Helper()
	for cursor := ""; ; between() {
		var page struct {
			Items []struct{ ID, Queue string }
			Next  string
		}
		r := a.get(a.t.Context(), fmt.Sprintf("/v1/messages?states=ready&states=scheduled&limit=%d%s", limit, cursor))
		if err := json.Unmarshal([]byte(r.body), &page); err != nil || r.status != http.StatusOK {
			a.t.Fatal(r.status, r.body)
		}
		for _, m := range page.Items {
			all = append(all, m.Queue+"/"+m.ID)
		}
		if page.Next == "" {
			return all
		}
		cursor = "&cursor=" + page.Next
	}
}

// Messages that fall due between two pages, and while a page is read, are in the list of both states, each once.
func TestMergedListOfTwoStatesHasMessagesThatFallDue(t *testing.T) {
	for seed := range uint64(14) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 5))
			var mu sync.Mutex // pages are read at the same time
			some := func(most time.Duration) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(random.Int64N(int64(most)))
			}
			slow, exact := some(10*time.Millisecond)+1, random.IntN(3)
			s := &vagueStore{Store: memstore.New()}
			a := newBubbleAPI(t, s)
			now, queues := time.Now(), 1+random.IntN(6)
			var want []listed
			for n := range 120 {
				queue, id := fmt.Sprintf("q%d", random.IntN(queues)), fmt.Sprintf("m%03d", n)
				due := now.Add(time.Duration(random.IntN(60)-20) * 10 * time.Millisecond)
				if _, err := a.client.Queue(queue).Send(t.Context(), nil, later.At(due), later.WithID(id)); err != nil {
					t.Fatal(err)
				}
				want = append(want, listed{due.UnixMilli(), queue + "/" + id})
			}
			slices.SortFunc(want, func(a, b listed) int {
				return strings.Compare(fmt.Sprint(a.at, a.name), fmt.Sprint(b.at, b.name))
			})
			var all []string
			for _, one := range want {
				all = append(all, one.name)
			}
			s.bound = func(from, first time.Time) time.Time {
				switch {
				case random.IntN(3) > exact:
					return time.Time{}
				case from.IsZero() || !first.After(from) || random.IntN(2) == 0:
					return first
				}
				return from.Add(some(first.Sub(from)).Truncate(time.Millisecond))
			}
			s.takes = func(store.State) time.Duration { return some(slow) }
			got := a.listPending(1+random.IntN(120), func() {
				time.Sleep(time.Duration(random.IntN(5)) * 10 * time.Millisecond)
			})
			if !slices.Equal(got, all) {
				t.Errorf("seed %d: %d messages\n%v, want %d\n%v", seed, len(got), got, len(all), all)
			}
		})
	}
}

// A message that falls due after the page of the ready ones was read, and before that of the scheduled ones, is listed,
// whichever of the two the store knows to begin earlier.
func TestMergedListReadsReadyMessagesAfterScheduledOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		s := &vagueStore{Store: memstore.New(), bound: func(_, first time.Time) time.Time {
			if told++; told > 2 { // of the ready messages of both queues
				return time.Time{}
			}
			return first
		}, takes: func(state store.State) time.Duration {
			if state == store.StateScheduled {
				return 20 * time.Millisecond
			}
			return 0
		}}
		a := newBubbleAPI(t, s)
		want := []string{"a/old", "b/old", "a/new", "b/new"}
		for id, in := range map[string]time.Duration{"old": -time.Second, "new": 10 * time.Millisecond} {
			for _, queue := range []string{"a", "b"} {
				at := later.At(time.Now().Add(in))
				if _, err := a.client.Queue(queue).Send(t.Context(), nil, at, later.WithID(id)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := a.listPending(100, nil); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// A queue on a server of a Cluster with a slow clock has scheduled messages that would be ready on another one.
func TestMergedListKnowsThatClocksDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &vagueStore{Store: memstore.New(), ahead: mergedSkew, bound: func(_, first time.Time) time.Time { return first },
			takes: func(store.State) time.Duration { return 0 }}
		a := newBubbleAPI(t, s)
		for n := range 3 {
			a.sendDue(fmt.Sprint(n), time.Now().Add(mergedSkew/2))
		}
		if got := a.listPending(100, nil); len(got) != 3 {
			t.Errorf("%v, want 3 messages", got)
		}
	})
}
