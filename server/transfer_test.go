package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/server/access"
)

func (a *api) export(queue string) string {
	a.t.Helper()
	got := a.do(http.MethodGet, "/v1/queues/"+queue+"/export", nil)
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/x-ndjson" {
		a.t.Fatalf("%d %s", got.status, got.body)
	}
	return got.body
}

func TestExportIsImportedElsewhere(t *testing.T) {
	a, b := newAPI(t), newAPI(t)
	for i := range 1200 {
		a.send("mail", fmt.Sprint(i))
	}
	a.send("orders", "other")
	text := a.export("mail")
	if n := strings.Count(text, "\n"); n != 1202 ||
		!strings.HasSuffix(text, `{"later_export_end":2,"messages":1200}`+"\n") {
		t.Fatalf("%d lines", n)
	}
	got := b.do(http.MethodPost, "/v1/import", text, "Content-Type", "application/x-ndjson").is(http.StatusOK)
	queues := list(got, "queues")
	if got["imported"] != 1200.0 || got["duplicates"] != 0.0 || len(queues) != 1 || queues[0]["queue"] != "mail" {
		t.Errorf("%v", got)
	}
	if stats := b.do(http.MethodGet, "/v1/queues/mail", nil).is(http.StatusOK); stats["ready"] != 1200.0 {
		t.Errorf("%v", stats)
	}
	if again := b.do(http.MethodPost, "/v1/import", text).is(http.StatusOK); again["duplicates"] != 1200.0 {
		t.Errorf("%v", again)
	}
	if rest := b.do(http.MethodPost, "/v1/import?from_line=1200", text).is(http.StatusOK); rest["duplicates"] != 2.0 {
		t.Errorf("%v", rest)
	}
}

func TestExportsHaveLimits(t *testing.T) {
	a, b := newAPI(t), newAPI(t)
	a.send("mail", "1")
	flow := `{"rate":{"n":10,"per":"1s"},"fair":true}`
	a.do(http.MethodPut, "/v1/queues/mail/flow", flow).is(http.StatusOK)
	text := a.export("mail")
	for _, want := range []string{"set", "kept"} {
		got := b.do(http.MethodPost, "/v1/import", text).is(http.StatusOK)
		if q := list(got, "queues")[0]; q["limits"] != want {
			t.Errorf("limits are %v, want %s", q["limits"], want)
		}
		b.do(http.MethodPut, "/v1/queues/mail/flow", `{"concurrency":1}`).is(http.StatusOK)
	}
}

func TestExportTakesTheFilterOfAList(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "a1", "a2", "b1")
	if err := a.client.Queue("mail").Reschedule(t.Context(), "a2", later.In(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"?state=ready": `"messages":2}`, "?id=a": `"messages":1}`, "?state=ready&id=b&min_attempts=0": `"messages":1}`,
		"": `"messages":3}`, "?group=none": `"messages":0}`,
	} {
		got := a.do(http.MethodGet, "/v1/queues/mail/export"+query, nil)
		if got.status != http.StatusOK || !strings.HasSuffix(got.body, want+"\n") {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
	a.do(http.MethodGet, "/v1/queues/mail/export?json=x", nil).fails(http.StatusBadRequest, "invalid", "json")
}

func TestImportsThatAreWrongNameTheLine(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "1", "2", "3")
	text := a.export("mail")
	lines := strings.SplitAfter(text, "\n")
	target := newAPI(t)
	target.do(http.MethodPost, "/v1/import", "").fails(http.StatusBadRequest, "invalid", "body", "empty")
	target.do(http.MethodPost, "/v1/import", `{"queue": "mail"}`).
		fails(http.StatusBadRequest, "invalid", "body", "header")
	target.do(http.MethodPost, "/v1/import?from_line=0", text).fails(http.StatusBadRequest, "invalid", "query.from_line")
	target.do(http.MethodPost, "/v1/import", lines[0]+lines[1]+"nonsense\n").
		fails(http.StatusBadRequest, "invalid", "body", "line 3", "1 messages were imported, go on with from_line=3")
	target.do(http.MethodPost, "/v1/import", lines[0]+lines[1]+lines[2]).
		fails(http.StatusBadRequest, "invalid", "body", "incomplete")
	a.do(http.MethodGet, "/v1/queues/none/export", nil).fails(http.StatusNotFound, "not_found", "")
	a.do(http.MethodGet, "/v1/queues/a%7B/export", nil).fails(http.StatusBadRequest, "invalid", "path.queue")
}

func TestImportAndExportNeedTheirRights(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "1")
	text := a.export("mail")
	reader := access.Identity{Name: "page", Role: access.RoleRead, Queues: []string{"mail"}}
	if got := a.as(reader).export("mail"); len(got) != len(text) {
		t.Errorf("%s", got)
	}
	a.as(reader).do(http.MethodGet, "/v1/queues/orders/export", nil).fails(http.StatusForbidden, "forbidden", "")
	reader.HidePayloads = true
	a.as(reader).do(http.MethodGet, "/v1/queues/mail/export", nil).fails(http.StatusForbidden, "forbidden", "")
	a.as(operator()).do(http.MethodPost, "/v1/import", text).fails(http.StatusForbidden, "forbidden", "")
	admin := access.Identity{Name: "admin", Role: access.RoleAdmin, Queues: []string{"mail"}}
	a.as(admin).do(http.MethodPost, "/v1/import", text).fails(http.StatusForbidden, "forbidden", "")
}

// cutWriter is a client that goes away after some bytes.
type cutWriter struct {
	bytes.Buffer
	header http.Header
}

func (w *cutWriter) Header() http.Header { return w.header }
func (w *cutWriter) WriteHeader(int)     {}
func (w *cutWriter) Write(text []byte) (int, error) {
	if w.Len()+len(text) > 100_000 {
		return 0, errors.New("gone")
	}
	return w.Buffer.Write(text)
}

func TestExportThatEndsEarlyAbortsTheReply(t *testing.T) {
	a := newAPI(t)
	for i := range 1200 {
		a.send("mail", fmt.Sprint(i))
	}
	defer func() {
		if failed := recover(); failed != http.ErrAbortHandler {
			t.Errorf("%v", failed)
		}
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/queues/mail/export", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	a.server.ServeHTTP(&cutWriter{header: http.Header{}}, r)
	t.Error("the reply looks complete")
}

func TestCloseEndsAnImport(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "1")
	lines := strings.SplitAfter(a.export("mail"), "\n")
	body, to := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/v1/import", body)
	if err != nil {
		t.Fatal(err)
	}
	status := make(chan int, 1)
	go func() {
		answer, err := a.http.Do(r)
		if err != nil {
			status <- 0
			return
		}
		defer answer.Body.Close()
		status <- answer.StatusCode
	}()
	if _, err := io.WriteString(to, lines[0]); err != nil { // the client took it, so the request is under way
		t.Fatal(err)
	}
	for a.server.transfers.Taken() == 0 { // and the server has it soon
		runtime.Gosched()
	}
	a.server.Close()
	if got := <-status; got != http.StatusServiceUnavailable && got != 0 {
		t.Errorf("%d", got)
	}
	to.Close()
}
