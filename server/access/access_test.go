package access

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

var allRights = []Right{Look, Get, Send, Work, Operate, Administer}

func TestEveryRoleHasItsRightsAndNoOthers(t *testing.T) {
	// The columns are Look, Get, Send, Work, Operate and Administer: on a queue, on the queue of a topic, on the other
	// queues that Later keeps for itself, and on the queue of ended logins.
	table := map[Role][4]string{
		RoleRead:    {"xx....", "xx....", "xx....", "xx...."},
		RoleSend:    {".xx...", ".xx...", "......", "......"},
		RoleWork:    {".xxx..", ".xx...", "......", "......"},
		RoleOperate: {"xxx.x.", "xxxxx.", "xxxxx.", "xx...."},
		RoleAdmin:   {"xxxxxx", "xxxxxx", "xxxxxx", "xxxxxx"},
	}
	var tokens strings.Builder
	for _, role := range roles {
		fmt.Fprintf(&tokens, "  - {name: %s, sha256: %s, role: %s}\n", role, hashOf("token of "+role), role)
		fmt.Fprintf(&tokens, "  - {name: mail-%s, sha256: %s, role: %s, queues: [mail, mail.*]}\n", role,
			hashOf("mail token of "+role), role)
	}
	c, _ := control(t, "tokens:\n"+tokens.String())
	mux := http.NewServeMux()
	for i, right := range allRights {
		path := fmt.Sprintf("/%d/", i)
		mux.Handle(path, Require(right, whoami)) // the whole server
		mux.HandleFunc(path+"{queue}", func(w http.ResponseWriter, r *http.Request) {
			if err := Check(r.Context(), right, r.PathValue("queue")); err != nil {
				c.refuse(w, r, err)
				return
			}
			whoami(w, r)
		})
	}
	s := serve(t, c.Handler(mux))
	if len(table) != len(rights) {
		t.Fatalf("%d roles in the table, want %d", len(table), len(rights))
	}
	for role, columns := range table {
		for i, right := range allRights {
			allowed, topic, kept := columns[0][i] == 'x', columns[1][i] == 'x', columns[2][i] == 'x'
			for _, cell := range []struct {
				token, queue string
				want         bool
			}{
				{"token", "", allowed}, {"token", "mail", allowed}, {"token", "topic:news", topic},
				{"token", "topic-history:news", kept}, {"token", "schedules:", kept}, {"token", "worker:", kept},
				{"token", "topic:", kept}, {"token", "logouts:", columns[3][i] == 'x'},
				{"mail token", "topic:mail", false}, {"mail token", "schedules:", false},
				{"mail token", "mail", allowed}, {"mail token", "mail.urgent", allowed},
				{"mail token", "mails", false}, {"mail token", "orders", false}, {"mail token", "", false},
			} {
				status, h, body := s.get(fmt.Sprintf("/%d/%s", i, cell.queue), bearer(cell.token+" of "+string(role)))
				if cell.want != (status == http.StatusOK) || !cell.want && status != http.StatusForbidden {
					t.Errorf("%s of %s, %v %q: %d %s, want %v", cell.token, role, right, cell.queue, status,
						body, cell.want)
				}
				if status == http.StatusForbidden && !strings.Contains(detail(t, status, h, body), right.String()) {
					t.Errorf("%s does not name what is not allowed", body)
				}
			}
		}
	}
}

func TestPatternsOfQueues(t *testing.T) {
	for _, c := range []struct {
		pattern, queue string
		want           bool
	}{
		{"mail", "mail", true}, {"mail", "mail.x", false}, {"mail", "", false}, {"mail*", "mail", true},
		{"mail*", "mail.x", true}, {"mail*", "Mail", false}, {"mail*", "", false}, {"*", "", true}, {"*", "mail", true},
		{"*", "topic:news", true}, {"*", "schedules:", true}, {"t*", "topic:news", false}, {"t*", "t2", true},
		{"t*", "topic-history:news", false}, {"topic*", "topic-history:news", false},
		{"topic:*", "topic-history:news", true},
		{"topic:news", "topic-history:news", true}, {"topic:news", "topic-history:old", false},
		{"w*", "worker:", false},
		{"topic-history:news", "topic-history:news", false}, {"worker:", "worker:", false},
		{"topic:*", "topic:", false},
		{"topic*", "topic:news", false}, {"topic:*", "topic:news", true}, {"topic:n*", "topic:news", true},
		{"topic:news", "topic:news", true}, {"topic:n*", "topic:other", false}, {"s*", "schedules:", false},
		{"schedules:", "schedules:", false}, {"schedules:*", "schedules:", false}, {"news", "topic:news", false},
	} {
		if got := (Identity{Role: RoleAdmin, Queues: []string{"none", c.pattern}}).May(Look, c.queue); got != c.want {
			t.Errorf("%q for queue %q: %v, want %v", c.pattern, c.queue, got, c.want)
		}
	}
	for pattern, want := range map[string]bool{"schedules:": true, "schedules:*": true, "*": true, "s*": false} {
		if got := (Identity{Role: RoleRead, Queues: []string{pattern}}).MaySchedules(Look); got != want {
			t.Errorf("%q for schedules: %v, want %v", pattern, got, want)
		}
	}
	if !(Identity{Role: RoleSend}).May(Send, "any") || (Identity{}).May(Look, "any") {
		t.Error("no list of queues means all, and no role means nothing")
	}
	if (Identity{Role: RoleAdmin, Queues: []string{}}).May(Look, "any") {
		t.Error("an empty list of queues allows one")
	}
}

func TestWithoutAccessControlEverythingIsAllowed(t *testing.T) {
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, c.Handler(Require(Administer, whoami)))
	if status, _, body := s.get("/"); status != http.StatusOK || body != "nobody was asked " {
		t.Errorf("%d %s", status, body)
	}
	if c.Authenticates() || c.TLS() != nil || c.Reload() != nil {
		t.Error("a Control without a file authenticates, has TLS or cannot be read again")
	}
}

func TestChangesAreLoggedWithWhoAndWhat(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(
		slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	ctx := NewContext(t.Context(), Identity{Name: "ann", Role: RoleOperate})
	Log(ctx, log, "purge", slog.String("queue", "mail"), slog.Int("count", 7))
	Log(t.Context(), log, "pause", slog.String("queue", "mail"))
	want := "level=INFO msg=changed who=ann what=purge queue=mail count=7\n" +
		"level=INFO msg=changed who=anyone what=pause queue=mail\n"
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
}

// A user does not share limits and keys of requests with a token of the same name: a proxy may let users choose their
// names.
func TestUserWithTheNameOfATokenIsSomebodyElse(t *testing.T) {
	c, _ := control(t, "tokens:\n  - {name: shop, sha256: "+hashOf("t0ken")+", role: send}\n"+
		"users: [{name: ann, role: read}]\ngroups: [{name: staff, role: send}]\ntrusted_proxies: [127.0.0.1]\n")
	s := serve(t, c.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := FromContext(r.Context())
		fmt.Fprint(w, who.Key(), SenderOf(r))
	})))
	seen := map[string]bool{}
	for range 2 {
		for _, as := range [][]func(*http.Request){
			{bearer("t0ken")}, {header("X-Forwarded-User", "ann")},
			{header("X-Forwarded-User", "shop"), header("X-Forwarded-Groups", "staff")},
		} {
			_, _, body := s.get("/", as...)
			seen[body] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("%v, want three senders", seen)
	}
}
