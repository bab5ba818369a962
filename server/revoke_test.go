package server

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/server/access"
)

// lastingRoutes are all routes with requests that can last, and the beginnings of their replies when they end early:
// because the token is revoked, and because the server is closed. There are two beginnings for a stream that may not
// have begun by then.
var lastingRoutes = map[string]struct{ method, path, ctype, body, revoked, closed string }{
	"receive":   {"POST", receivePath, jsonType, `{"wait": "5m"}`, "401 ", "200 {"},
	"events":    {"GET", "/v1/events", "", "", "200 :|401 ", "200 :|503 "},
	"overview":  {"GET", "/v1/overview/watch", "", "", "200 :|401 ", "200 :|503 "},
	"lines":     {"POST", mail + "/batch", linesType, "\n…", `200 {"error":`, `200 {"error":`},
	"import":    {"POST", "/v1/import", linesType, " …", "401 ", "503 "},
	"operation": {"GET", "/v1/operations/{operation}?wait=5m", "", "", "401 ", "200 {"},
	"published": {"POST", "/v1/topics/news/messages/batch", linesType, "{}\n…", `200 {"id":|200 {"error":`,
		`200 {"id":|200 {"error":`},
}

// TestLastingRequestsEndWithTheirTokenAndTheServer opens a request of each route that can last. A body that ends in …
// is sent so far only.
func TestLastingRequestsEndWithTheirTokenAndTheServer(t *testing.T) {
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint("closes: ", closes), func(t *testing.T) { testLasting(t, closes) })
	}
}

func testLasting(t *testing.T, closes bool) {
	a := newAPI(t)
	file := filepath.Join(t.TempDir(), "web.yml")
	configure := func(token string) {
		t.Helper()
		text := fmt.Appendf(nil, "tokens: [{name: app, role: admin, sha256: %x}]", sha256.Sum256([]byte(token)))
		if err := os.WriteFile(file+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	configure("first")
	control, err := access.New(access.Config{File: file, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		_, err := a.client.Queue("slow").Send(t.Context(), nil, later.WithID(fmt.Sprint(i)), later.In(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
	}
	operation := a.do("POST", "/v1/queues/slow/bulk", `{"filter": {"state": "scheduled"}, "action": "shift", "by": "1h",
		"per_second": 1}`).is(http.StatusAccepted)["id"].(string)
	h := httptest.NewServer(control.Handler(a.server))
	defer h.Close()
	replies := map[string]chan string{}
	for name, route := range lastingRoutes {
		var body io.Reader
		if begin, open := strings.CutSuffix(route.body, "…"); open {
			from, to := io.Pipe()
			defer to.Close()
			body = io.MultiReader(strings.NewReader(begin), from)
		} else {
			body = strings.NewReader(route.body)
		}
		path := strings.Replace(route.path, "{operation}", operation, 1)
		r, err := http.NewRequestWithContext(t.Context(), route.method, h.URL+path, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer first")
		r.Header.Set("Content-Type", route.ctype)
		replies[name] = make(chan string, 1)
		go func() {
			reply, err := h.Client().Do(r)
			if err != nil {
				replies[name] <- err.Error()
				return
			}
			defer reply.Body.Close()
			text, err := io.ReadAll(reply.Body)
			if err != nil {
				text = fmt.Append(text, err)
			}
			replies[name] <- fmt.Sprint(reply.StatusCode, " ", string(text))
		}()
	}
	s := a.server
	for s.waits.Taken()+s.streams.Taken()+s.transfers.Taken() < int64(len(lastingRoutes)) {
		runtime.Gosched()
	}
	if closes {
		s.Close()
	} else {
		configure("second")
	}
	for name, route := range lastingRoutes {
		want := route.revoked
		if closes {
			want = route.closed
		}
		got := <-replies[name]
		if !slices.ContainsFunc(strings.Split(want, "|"), func(w string) bool { return strings.HasPrefix(got, w) }) {
			t.Errorf("%s was answered with %s", name, got)
		}
	}
}
