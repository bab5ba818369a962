package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
)

// changes returns the text and the queue of each change that a request lists.
func (a *api) changes(query string) (text string) {
	a.t.Helper()
	for _, c := range list(a.do(http.MethodGet, "/v1/changes"+query, nil).is(http.StatusOK), "items") {
		text += fmt.Sprintf("%v %v %s %v %v\n", c["id"], c["who"], c["what"], c["queue"], c["attributes"])
	}
	return text
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
	a.server.Changed(t.Context(), "bulk change started", slog.String("queue", "mail"), slog.String("filter", "secret"))
	lines := []string{
		"1 ann queue paused mail map[]\n",
		"2 anyone message cancelled mail map[id:1]\n",
		"3 anyone queue subscribed mail map[topic:orders where:]\n",
		"4 anyone schedule created mail map[schedule:daily]\n",
		"5 anyone pause other map[for:1m0s]\n",
		"6 anyone messages imported <nil> map[count:7]\n",
		"7 anyone bulk change started mail map[filter:secret]\n",
	}
	for _, c := range []struct {
		queues []string // nil for no limit
		query  string
		shown  []int
	}{
		{nil, "", []int{7, 6, 5, 4, 3, 2, 1}},
		{nil, "?limit=2", []int{7, 6}},
		{nil, "?limit=2&cursor=6", []int{5, 4}},
		{nil, "?cursor=1", nil},
		{nil, "?cursor=700", []int{7, 6, 5, 4, 3, 2, 1}},
		{[]string{"mail"}, "", []int{7, 2, 1}},
		{[]string{"mail"}, "?limit=2", []int{7, 2}},
		{[]string{"mail", "topic:orders", "schedules:"}, "", []int{7, 4, 3, 2, 1}},
		{[]string{"none"}, "", nil},
	} {
		want := ""
		for _, i := range c.shown {
			want += lines[i-1]
		}
		who := access.Identity{Name: "x", Role: access.RoleRead, Queues: c.queues}
		if got := a.as(who).changes(c.query); got != want {
			t.Errorf("%q%s\n got %s\nwant %s", c.queues, c.query, got, want)
		}
	}
	hidden := a.as(access.Identity{Name: "x", Role: access.RoleRead, HidePayloads: true})
	if got := hidden.changes("?limit=1"); got != "7 anyone bulk change started mail map[]\n" {
		t.Error(got)
	}
	got := a.do(http.MethodGet, "/v1/changes", nil).is(http.StatusOK)
	if got["since"] != wire.FormatTime(a.server.started) {
		t.Error(got["since"])
	}
}

func TestLastChangesAreRemembered(t *testing.T) {
	a := newAPI(t)
	for i := range maxChanges + 7 {
		a.server.Changed(t.Context(), fmt.Sprint(i))
	}
	all := a.server.changes.before(0, 2*maxChanges, func(*Change) bool { return true })
	if len(all) != maxChanges || all[0].ID != maxChanges+7 || all[0].What != fmt.Sprint(maxChanges+6) ||
		all[maxChanges-1].ID != 8 {
		t.Errorf("%d: %+v to %+v", len(all), all[0], all[len(all)-1])
	}
}
