package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/server/access"
)

// changes returns the text and the queue of each change that a request lists, and the cursor of the next page.
func (a *api) changes(query string) (text, next string) {
	a.t.Helper()
	page := a.do(http.MethodGet, "/v1/changes"+query, nil).is(http.StatusOK)
	for _, c := range list(page, "items") {
		text += fmt.Sprintf("%v %s %v %v\n", c["who"], c["what"], c["queue"], c["attributes"])
	}
	next, _ = page["next"].(string)
	return text, next
}

func TestChangesAreListedForThoseWhoMaySeeThem(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "1")
	a.as(access.Identity{Name: "ann", Role: access.RoleOperate}).
		do(http.MethodPost, "/v1/queues/mail/pause", nil).is(http.StatusOK)
	a.do(http.MethodDelete, mail+"/1", nil).is(http.StatusOK)
	a.do(http.MethodPut, "/v1/topics/orders/subscriptions/mail", `{}`).is(http.StatusOK)
	a.do(http.MethodPut, "/v1/schedules/daily", `{"queue": "mail", "every": "24h"}`).is(http.StatusOK)
	a.server.Changed(t.Context(), "pause", slog.String("queue", "other"), slog.Duration("for", time.Minute))
	a.server.Changed(t.Context(), "messages imported", slog.Int("count", 7))
	a.server.Changed(t.Context(), "bulk change", slog.String("queue", "mail"), slog.String("filter", "secret"))
	lines := []string{
		"ann queue paused mail map[]\n",
		"anyone message cancelled mail map[id:1]\n",
		"anyone queue subscribed mail map[topic:orders where:]\n",
		"anyone schedule created mail map[schedule:daily]\n",
		"anyone pause other map[for:1m0s]\n",
		"anyone messages imported <nil> map[count:7]\n",
		"anyone bulk change mail map[filter:secret]\n",
	}
	for _, c := range []struct {
		queues []string // nil for no limit
		query  string
		shown  []int
	}{
		{nil, "", []int{7, 6, 5, 4, 3, 2, 1}},
		{nil, "?limit=2", []int{7, 6}},
		{[]string{"mail"}, "", []int{7, 2, 1}},
		{[]string{"mail"}, "?limit=2", []int{7, 2}},
		{[]string{"mail"}, "?limit=1", []int{7}},
		{[]string{"mail", "topic:orders", "schedules:"}, "", []int{7, 4, 3, 2, 1}},
		{[]string{"none"}, "", nil},
	} {
		want := ""
		for _, i := range c.shown {
			want += lines[i-1]
		}
		who := access.Identity{Name: "x", Role: access.RoleRead, Queues: c.queues}
		if got, _ := a.as(who).changes(c.query); got != want {
			t.Errorf("%q%s\n got %s\nwant %s", c.queues, c.query, got, want)
		}
	}
	hidden := a.as(access.Identity{Name: "x", Role: access.RoleRead, HidePayloads: true})
	if got, _ := hidden.changes("?limit=1"); got != "anyone bulk change mail map[]\n" {
		t.Error(got)
	}
	paged, next := a.changes("?limit=3")
	for next != "" {
		var more string
		more, next = a.changes("?limit=3&cursor=" + next)
		paged += more
	}
	if all, _ := a.changes(""); paged != all || strings.Count(all, "\n") != 7 {
		t.Errorf("pages have\n%s\nand the list\n%s", paged, all)
	}
	for _, cursor := range []string{"1", "x.1", "-5.a", "5."} {
		a.do(http.MethodGet, "/v1/changes?cursor="+cursor, nil).fails(http.StatusBadRequest, "invalid", "query.cursor")
	}
}
