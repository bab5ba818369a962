package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const duePath = "/v1/overview/queues"

// due returns the queues with messages that are due in a range.
func (a *api) due(ctx context.Context, query string) (due DueQueues) {
	a.t.Helper()
	got := a.get(ctx, duePath+query)
	got.is(http.StatusOK)
	if err := json.Unmarshal([]byte(got.body), &due); err != nil {
		a.t.Fatal(err)
	}
	return due
}

func TestDueQueuesAreThoseWithTheMostInTheRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		now := time.Now()
		in := func(d time.Duration) string { return wire.FormatTime(now.Add(d)) }
		a.sendDue("mail", now.Add(-time.Minute), now.Add(time.Hour), now.Add(2*time.Hour-time.Millisecond))
		a.sendDue("orders", now.Add(time.Hour), now.Add(time.Hour), now.Add(90*time.Minute), now.Add(2*time.Hour))
		a.sendDue("news", now.Add(time.Hour), now.Add(100*24*time.Hour))
		a.sendDue("other", now.Add(time.Hour-time.Millisecond))
		hour := "?from=" + in(time.Hour) + "&to=" + in(2*time.Hour)
		for query, want := range map[string]DueQueues{
			hour: {Count: 6, QueueCount: 3, Items: []DueQueue{{"orders", 3}, {"mail", 2}, {"news", 1}}},
			hour + "&limit=1": {Count: 6, QueueCount: 3,
				Items: []DueQueue{{"orders", 3}}},
			hour + "&queue=news&queue=mail&queue=none": {Count: 3, QueueCount: 2,
				Items: []DueQueue{{"mail", 2}, {"news", 1}}},
			"?to=" + in(0):             {Count: 1, QueueCount: 1, Items: []DueQueue{{"mail", 1}}},
			"?from=" + in(time.Hour*9): {Count: 1, QueueCount: 1, Items: []DueQueue{{"news", 1}}},
			"?to=" + in(-time.Hour):    {Items: []DueQueue{}},
		} {
			if got := a.due(t.Context(), query); got.Count != want.Count || got.QueueCount != want.QueueCount ||
				got.LeftOut != 0 || !slices.Equal(got.Items, want.Items) {
				t.Errorf("%s: got %+v, want %+v", query, got, want)
			}
		}
	})
}

func TestDueQueuesAreThoseThatTheSenderMaySee(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "1")
	a.send("orders", "1", "2")
	limited := access.Identity{Name: "x", Role: access.RoleRead, Queues: []string{"mail"}}
	ctx := access.NewContext(t.Context(), limited)
	const past = "?to=2199-01-01T00:00:00Z"
	if got := a.due(ctx, past); got.Count != 1 || !slices.Equal(got.Items, []DueQueue{{"mail", 1}}) {
		t.Errorf("a token for mail sees %+v", got)
	}
	a.as(limited).do(http.MethodGet, duePath+past+"&queue=orders", nil).
		fails(http.StatusForbidden, "forbidden", "query.queue")
	if got := a.due(t.Context(), past+"&queue="+reserved.Schedules); got.Count != 0 {
		t.Errorf("schedules: %+v", got)
	}
}

func TestDueQueuesNeedARange(t *testing.T) {
	a := newAPI(t)
	for query, where := range map[string]string{
		"": "query.from",
		"?from=2030-01-01T00:00:00Z&to=2029-01-01T00:00:00Z": "query.from",
		"?to=1969-01-01T00:00:00Z":                           "query.to",
		"?from=2200-01-01T00:00:00Z":                         "query.from",
		"?to=2030-01-01T00:00:00Z&queue=%00":                 "query.queue",
	} {
		a.do(http.MethodGet, duePath+query, nil).fails(http.StatusBadRequest, "invalid", where)
	}
	a.do(http.MethodGet, duePath+"?to=2030-01-01T00:00:00Z&limit=201", nil).
		fails(http.StatusBadRequest, "invalid", "query.limit")
}

// tornStore is a store with a queue that is damaged.
type tornStore struct{ store.Store }

func (s tornStore) Histogram(ctx context.Context, queue string, times []time.Time) ([]int64, error) {
	if queue == "bad" {
		return nil, store.Errorf(store.ErrCorrupt, "counts are negative")
	}
	return s.Store.Histogram(ctx, queue, times)
}

func TestDueQueuesLeaveOutDamagedQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, tornStore{memstore.New()})
		a.sendDue("bad", time.Now())
		a.sendDue("good", time.Now())
		if got := a.due(t.Context(), "?to=2199-01-01T00:00:00Z"); got.LeftOut != 1 || got.Count != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestDueQueuesReadABoundedNumberOfQueues(t *testing.T) {
	a := newAPI(t)
	for i := range maxOverviewQueues + 7 {
		a.send(fmt.Sprintf("q%03d", i), "1")
	}
	got := a.due(t.Context(), "?to=2199-01-01T00:00:00Z")
	if got.LeftOut != 7 || got.QueueCount != maxOverviewQueues || got.Count != maxOverviewQueues || len(got.Items) != 20 ||
		got.Items[0].Queue != "q000" {
		t.Errorf("%d queues, %d left out, %d listed", got.QueueCount, got.LeftOut, len(got.Items))
	}
}
