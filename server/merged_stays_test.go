package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// onListedStores runs a test on stores with lists of their own.
func onListedStores(t *testing.T, test func(t *testing.T, a *api, queue func(n int) *later.Queue)) {
	for _, name := range []string{"memory", "redis", "sharded"} {
		t.Run(name, func(t *testing.T) {
			url := "mem://"
			if name != "memory" {
				url = redistest.Start(t).URL()
			}
			a := newAPIWith(t, url, Config{})
			test(t, a, func(n int) *later.Queue {
				q := a.client.Queue(fmt.Sprintf("q%d", n))
				if name == "sharded" && n%2 == 0 {
					if err := q.SetShards(t.Context(), 3); err != nil {
						t.Fatal(err)
					}
				}
				return q
			})
		})
	}
}

// A message that stays is listed once, in order, while others come, go and move, also before the ones listed last.
func TestMergedListHasEachMessageThatStaysOnce(t *testing.T) {
	onListedStores(t, func(t *testing.T, a *api, queue func(n int) *later.Queue) {
		var queues []*later.Queue
		for n := range 4 {
			queues = append(queues, queue(n))
		}
		for seed := range uint64(6) {
			random := rand.New(rand.NewPCG(seed, 3))
			begin := time.Now().Add(time.Hour).Truncate(time.Second)
			due := func() time.Time { return begin.Add(time.Duration(random.IntN(9)) * time.Millisecond) }
			send := func(id string, at time.Time) *later.Queue {
				q := queues[random.IntN(len(queues))]
				if _, err := q.Send(t.Context(), nil, later.At(at), later.WithID(id)); err != nil {
					t.Fatal(err)
				}
				return q
			}
			var stay []listed
			var others []func() error
			for n := range 160 {
				id, at := fmt.Sprintf("%d-%03d", seed, random.IntN(900)*1000+n), due()
				q := send(id, at)
				if n%2 == 0 {
					stay = append(stay, listed{at.UnixMilli(), q.Name() + "/" + id})
					continue
				}
				others = append(others, func() error {
					if random.IntN(2) == 0 {
						return q.Reschedule(t.Context(), id, later.At(due()))
					}
					_, err := q.Cancel(t.Context(), id)
					return err
				})
			}
			slices.SortFunc(stay, func(a, b listed) int {
				return strings.Compare(fmt.Sprint(a.at, a.name), fmt.Sprint(b.at, b.name))
			})
			got := a.listAll(fmt.Sprintf("limit=%d", 1+random.IntN(30)), func(page int) {
				for n := range 30 {
					if random.IntN(3) == 0 {
						send(fmt.Sprintf("%d-%03d-%d", seed, page, n), due())
					}
				}
				for range min(5, len(others)) {
					if err := others[0](); err != nil {
						t.Fatal(err)
					}
					others = others[1:]
				}
			})
			var want []string
			for _, one := range stay {
				want = append(want, one.name)
			}
			got = slices.DeleteFunc(got, func(name string) bool { return !slices.Contains(want, name) })
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: %d messages\n%v, want %d\n%v", seed, len(got), got, len(want), want)
			}
			for _, q := range queues {
				if _, err := q.Purge(t.Context(), later.StateScheduled); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// Leased messages are in no order of time, so that none may be left out for its time.
func TestMergedListHasAllLeasedMessages(t *testing.T) {
	onListedStores(t, func(t *testing.T, a *api, queue func(n int) *later.Queue) {
		random := rand.New(rand.NewPCG(0, 4))
		want := map[string]bool{}
		for n := range 4 {
			q := queue(n)
			for i := range 60 {
				id := fmt.Sprintf("m%d", i)
				at := time.Now().Add(-time.Duration(1+random.IntN(1e6)) * time.Millisecond)
				if _, err := q.Send(t.Context(), nil, later.At(at), later.WithID(id)); err != nil {
					t.Fatal(err)
				}
				want[q.Name()+"/"+id] = true
			}
			for left := 60; left > 0; {
				got, err := q.Receive(t.Context(), 1+random.IntN(7), later.NoWait(), later.Lease(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				left -= len(got)
			}
		}
		for _, limit := range []int{1, 7, 40, 500} {
			missed := map[string]bool{}
			for name := range want {
				missed[name] = true
			}
			for _, name := range a.listAll(fmt.Sprintf("state=leased&limit=%d", limit), nil) {
				delete(missed, name)
			}
			if len(missed) > 0 {
				t.Errorf("limit %d: %d of %d are missing", limit, len(missed), len(want))
			}
		}
	})
}

// tornList is a store with a queue that has damaged lists.
type tornList struct{ *memstore.Store }

func (s tornList) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	if queue == "bad" {
		return store.Page{}, store.Errorf(store.ErrCorrupt, "its messages are torn")
	}
	return s.Store.List(ctx, queue, req)
}

// A damaged queue is left out of a list of several, also if no other one has messages, and fails a list of its own.
func TestMergedListLeavesOutDamagedQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, tornList{memstore.New()})
		a.sendDue("bad", time.Now().Add(time.Hour))
		a.sendDue("good", time.Now().Add(time.Hour))
		const both = "/v1/messages?states=ready&states=scheduled"
		for path, status := range map[string]int{both: http.StatusOK, "/v1/messages": http.StatusOK,
			"/v1/messages?state=dead": http.StatusOK, both + "&queue=bad": http.StatusInternalServerError,
			"/v1/messages?queue=bad": http.StatusInternalServerError} {
			if got := a.get(t.Context(), path); got.status != status {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
	})
}

// A cursor that a client made up reads other messages at most.
func TestMergedListTakesAnyCursor(t *testing.T) {
	a := newAPI(t)
	a.order42()
	for _, c := range []mergeCursor{
		{Queue: "mail"}, {Queue: "none", State: "dead", Time: 1 << 62, From: -1 << 62},
		{Queue: "mail", State: "scheduled", Time: -1 << 62}, {Queue: "mail", State: "scheduled", From: 1 << 62},
		{Queue: "mail", State: "scheduled", Cursor: "x"}, {Queue: "a", Time: -1 << 63}, {Queue: "z", Time: 1<<63 - 1},
	} {
		text, _ := json.Marshal(c)
		got := a.do(http.MethodGet, "/v1/messages?cursor="+base64.RawURLEncoding.EncodeToString(text), nil)
		if got.status >= http.StatusInternalServerError || got.status != http.StatusOK && c.Cursor == "" {
			t.Errorf("%s: %d %s", text, got.status, got.body)
		}
	}
}

// Messages that are read ahead take little memory: the last ones are forgotten, and read again later.
func TestMergedListForgetsWhatIsLargeAndLate(t *testing.T) {
	m := &merge{}
	for n := range 3 {
		s := &mergeSource{queue: fmt.Sprint(n), state: later.StateScheduled, cursor: "here", done: true}
		for i := range 2 {
			s.read = append(s.read, &later.Info{ID: fmt.Sprint(i), State: s.state, Due: time.UnixMilli(int64(9 - n + i)),
				Payload: make([]byte, mergedMemory/4)})
		}
		m.sources = append(m.sources, s)
	}
	m.release()
	for n, s := range m.sources {
		if kept := n == 2; (s.head() != nil) != kept || s.done != kept || !kept && (s.next != "here" ||
			s.bound != time.UnixMilli(int64(9-n))) {
			t.Errorf("source %d is %+v", n, s)
		}
	}
}
