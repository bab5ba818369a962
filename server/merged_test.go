package server

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/server/access"
)

// listAll returns the messages of a merged list, as queue/id, from as many pages as it has. Between pages it calls a
// function, unless that is nil.
func (a *api) listAll(query string, between func(page int)) (all []string) {
	a.t.Helper()
	cursor := ""
	for page := 0; ; page++ {
		var got struct {
			Items []struct{ ID, Queue string }
			Next  string
		}
		from := query
		if cursor != "" {
			from += "&cursor=" + url.QueryEscape(cursor)
		}
		reply := a.do(http.MethodGet, "/v1/messages?"+from, nil)
		if err := json.Unmarshal([]byte(reply.body), &got); err != nil || reply.status != http.StatusOK || page > 1000 {
			a.t.Fatalf("%s: page %d: %d %s", query, page, reply.status, reply.body)
		}
		for _, m := range got.Items {
			all = append(all, m.Queue+"/"+m.ID)
		}
		if cursor = got.Next; cursor == "" {
			return all
		}
		if between != nil {
			between(page)
		}
	}
}

// listed is a message of a list, with its time there.
type listed struct {
	at   int64
	name string
}

// sendListed sends messages to queues, many of them with the same due time. It returns the ones to find, in order.
func (a *api) sendListed(random *rand.Rand, want func(n int) bool) []string {
	a.t.Helper()
	begin := time.Now().Add(time.Hour).Truncate(time.Second)
	var all []listed
	for n := range 150 {
		queue, id := fmt.Sprintf("q%d", random.IntN(9)), fmt.Sprintf("m%03d", n)
		due := begin.Add(time.Duration(random.IntN(40)) * 10 * time.Millisecond)
		if _, err := a.client.Queue(queue).Send(a.t.Context(), []byte(fmt.Sprint(n%3)), later.At(due),
			later.WithID(id)); err != nil {
			a.t.Fatal(err)
		}
		if want(n) {
			all = append(all, listed{due.UnixMilli(), queue + "/" + id})
		}
	}
	slices.SortFunc(all, func(a, b listed) int {
		return strings.Compare(fmt.Sprint(a.at, a.name), fmt.Sprint(b.at, b.name))
	})
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = one.name
	}
	return names
}

func TestMergedListHasTheMessagesOfAllQueuesInOrder(t *testing.T) {
	redis := redistest.Start(t)
	for seed := range uint64(9) {
		random := rand.New(rand.NewPCG(seed, 0))
		store := "mem://"
		if seed%3 == 0 { // with a prefix of its own
			store = fmt.Sprintf("%s?prefix=p%d:", redis.URL(), seed)
		}
		a := newAPIWith(t, store, Config{})
		want := a.sendListed(random, func(int) bool { return true })
		limit := 1 + random.IntN(40)
		if got := a.listAll(fmt.Sprintf("limit=%d", limit), nil); !slices.Equal(got, want) {
			t.Fatalf("seed %d, limit %d:\n%v, want\n%v", seed, limit, got, want)
		}
	}
}

// Queue by queue, a page ends after as many messages as it may look at.
func TestMergedListOfContentGoesQueueByQueue(t *testing.T) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		a := newAPI(t)
		want := a.sendListed(random, func(n int) bool { return n%3 == 2 })
		slices.SortStableFunc(want, func(a, b string) int { return strings.Compare(a[:2], b[:2]) })
		query := fmt.Sprintf("q=payload:2&limit=%d&look=%d", 1+random.IntN(20), 1+random.IntN(20))
		if got := a.listAll(query, nil); !slices.Equal(got, want) {
			t.Fatalf("seed %d, %s:\n%v, want\n%v", seed, query, got, want)
		}
	}
}

// A message that stays is listed whatever is removed between two pages, and its cursor is of the message before it.
func TestMergedListMissesNothingWhileMessagesGo(t *testing.T) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 2))
		a := newAPI(t)
		left := a.sendListed(random, func(int) bool { return true })
		got := a.listAll(fmt.Sprintf("limit=%d", 1+random.IntN(20)), func(int) {
			for range random.IntN(6) {
				i := random.IntN(len(left))
				queue, id, _ := strings.Cut(left[i], "/")
				if _, err := a.client.Queue(queue).Cancel(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				if left = slices.Delete(left, i, i+1); len(left) == 0 {
					return
				}
			}
		})
		for _, name := range left {
			if !slices.Contains(got, name) {
				t.Fatalf("seed %d: %s is missing in %v", seed, name, got)
			}
		}
	}
}

func TestMergedListOfAGroupAndOfTwoStates(t *testing.T) {
	a := newAPI(t)
	for i, queue := range []string{"b", "a", "c"} {
		for n := range 3 {
			id := fmt.Sprint(queue, n)
			due := later.At(time.Now().Add(time.Duration(n-1)*time.Duration(i+1)*time.Hour - time.Duration(i+1)*time.Minute))
			if _, err := a.client.Queue(queue).Send(t.Context(), nil, due, later.WithID(id),
				later.Group("g")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for query, want := range map[string]string{
		"q=group:g":                             "a/a0 a/a1 a/a2 b/b0 b/b1 b/b2 c/c0 c/c1 c/c2",
		"q=group:g&queue=c&queue=a":             "a/a0 a/a1 a/a2 c/c0 c/c1 c/c2",
		"states=ready&states=scheduled":         "c/c0 a/a0 b/b0 c/c1 a/a1 b/b1 b/b2 a/a2 c/c2",
		"state=ready":                           "c/c0 a/a0 b/b0 c/c1 a/a1 b/b1",
		"states=scheduled&states=ready&queue=b": "b/b0 b/b1 b/b2",
		"queue=a":                               "a/a2",
		"state=dead":                            "",
		"state=ready&due_after=2020-01-01T00:00:00Z&due_before=2020-01-02T00:00:00Z": "",
	} {
		for _, limit := range []string{"1", "2", "100"} {
			if got := strings.Join(a.listAll(query+"&limit="+limit, nil), " "); got != want {
				t.Errorf("%s, limit %s: %s, want %s", query, limit, got, want)
			}
		}
	}
}

func TestMergedListRefusesWhatIsWrong(t *testing.T) {
	a := newAPI(t)
	for query, want := range map[string]string{
		"queue=none":               `"not_found"`,
		"queue=a%00b":              "query.queue",
		"states=dead&states=ready": "give ready and scheduled",
		"states=ready":             "give ready and scheduled",
		"states=ready&state=ready": "give one of them",
		"cursor=x":                 "query.cursor",
		"cursor=e30":               "query.cursor",
		"limit=501":                "query.limit",
		"json=x":                   "field",
		"preview=0":                "query.preview",
	} {
		if got := a.do(http.MethodGet, "/v1/messages?"+query, nil); got.status < 400 || got.status > 499 ||
			!strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s; want %s", query, got.status, got.body, want)
		}
	}
}

// A caller sees the messages of allowed queues, and no payloads if they are hidden.
func TestMergedListShowsAllowedQueues(t *testing.T) {
	a := newAPI(t)
	a.order42()
	for who, want := range map[*access.Identity]string{
		{Name: "all", Role: access.RoleRead}:                             "mail/bill mail/reminder orders/cancel-order-42",
		{Name: "one", Role: access.RoleRead, Queues: []string{"orders"}}: "orders/cancel-order-42",
		{Name: "blind", Role: access.RoleRead, HidePayloads: true}:       "mail/bill mail/reminder orders/cancel-order-42",
	} {
		r := a.as(*who).do(http.MethodGet, "/v1/messages", nil)
		var page struct {
			Items []struct {
				ID, Queue string
				Payload   json.RawMessage
				Text      string `json:"payload_text"`
			}
		}
		if err := json.Unmarshal([]byte(r.body), &page); err != nil {
			t.Fatal(r.body)
		}
		var got []string
		for _, m := range page.Items {
			got = append(got, m.Queue+"/"+m.ID)
			if hidden := m.Payload == nil && m.Text == ""; hidden != who.HidePayloads {
				t.Errorf("%s sees %+v", who.Name, m)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s sees %v, want %s", who.Name, got, want)
		}
	}
}
