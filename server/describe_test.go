package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later/internal/problem"
)

// timedReply notes the time limits for reading, and whether the one for writing was set just before the reply.
type timedReply struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
	limited   bool
}

func (w *timedReply) SetWriteDeadline(time.Time) error {
	w.limited = true
	return nil
}

func (w *timedReply) SetReadDeadline(t time.Time) error {
	w.deadlines = append(w.deadlines, t)
	return nil
}

func (w *timedReply) Write(p []byte) (int, error) {
	if !w.limited {
		return 0, errors.New("no time limit for the reply")
	}
	return w.ResponseRecorder.Write(p)
}

func TestTimeLimitForABodyEndsWithIt(t *testing.T) {
	a := newAPI(t)
	for path, body := range map[string]string{"/v1/queues/mail/receive": `{"max": 1}`, mail: `{"payload": "x"}`} {
		w := &timedReply{ResponseRecorder: httptest.NewRecorder()}
		a.server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
		n := len(w.deadlines)
		if w.Body.Len() == 0 || n < 2 || w.deadlines[0].IsZero() || !w.deadlines[n-1].IsZero() {
			t.Errorf("%d %s: %v", w.Code, w.Body, w.deadlines)
		}
	}
}

// TestTimeLimitForAReplyBeginsWithIt shows that a request may wait for longer than its reply may take.
func TestTimeLimitForAReplyBeginsWithIt(t *testing.T) {
	a := newAPI(t)
	w := &timedReply{ResponseRecorder: httptest.NewRecorder()}
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		a.server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/queues/mail/receive",
			strings.NewReader(`{"wait": "5m"}`)))
	}()
	for a.server.waits.Taken() == 0 {
		runtime.Gosched()
	}
	if w.limited {
		t.Error("the limit began before the reply")
	}
	if _, err := a.client.Queue("mail").Send(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	<-waiting
	if w.Code != http.StatusOK || w.Body.Len() == 0 || !w.limited {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// operationsOf calls f with each operation of the description.
func operationsOf(api *huma.OpenAPI, f func(*huma.Operation)) {
	for _, item := range api.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op != nil {
				f(op)
			}
		}
	}
}

// operationID matches names such as sendMessage, from which generators make function names.
var operationID = regexp.MustCompile(`^[a-z]+([A-Z][a-z]+)+$`)

func TestEveryOperationIsDescribed(t *testing.T) {
	a := newAPI(t)
	ids := map[string]bool{}
	operationsOf(a.server.api.OpenAPI(), func(op *huma.Operation) {
		right, _ := op.Extensions["x-right"].(string)
		known := slices.Contains([]string{"none", "look", "get", "send", "work", "operate", "administer"}, right)
		if !operationID.MatchString(op.OperationID) || ids[op.OperationID] || op.Summary == "" || len(op.Tags) != 1 ||
			!known {
			t.Errorf("%s %s: id %q, summary %q, tags %q, right %q", op.Method, op.Path, op.OperationID, op.Summary, op.Tags,
				right)
		}
		ids[op.OperationID] = true
		if len(op.Tags) == 1 && !slices.ContainsFunc(tags, func(t *huma.Tag) bool { return t.Name == op.Tags[0] }) {
			t.Errorf("%s: the tag %s is not described", op.OperationID, op.Tags[0])
		}
		for status, response := range op.Responses {
			if status != "204" && len(response.Content) == 0 && response.Ref == "" {
				t.Errorf("%s %s: the reply %s is not described", op.Method, op.Path, status)
			}
		}
	})
	if len(ids) < 50 {
		t.Errorf("%d operations", len(ids))
	}
	if text := a.do("GET", "/v1/openapi.json", nil).body; !strings.Contains(text, `"x-right":"look"`) {
		t.Error("the description lacks rights")
	}
}

func TestDocsHaveEveryOperation(t *testing.T) {
	a := newAPI(t)
	text, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, want []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "| `/") {
			documented = append(documented, strings.TrimSuffix(line, "\n"))
		}
	}
	operationsOf(a.server.api.OpenAPI(), func(op *huma.Operation) {
		want = append(want, fmt.Sprintf("| %s | `%s` | %s | %s |", op.Method, op.Path, op.Extensions["x-right"],
			op.Summary))
	})
	for _, line := range want {
		if !slices.Contains(documented, line) {
			t.Errorf("docs/http.md lacks %s", line)
		}
	}
	for _, line := range documented {
		if !slices.Contains(want, line) {
			t.Errorf("docs/http.md has %s", line)
		}
	}
}

func TestEveryCodeIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range codes() {
		_, anchor, _ := strings.Cut(problem.TypePrefix, "#")
		if !strings.Contains(string(text), fmt.Sprintf(`<a id="%s%s"></a>`, anchor, code)) {
			t.Errorf("docs/http.md lacks the code %s", code)
		}
	}
}

// TestDescriptionInTheRepositoryIsCurrent compares server/openapi.json, for readers and generators of clients. Write it
// with: go test ./server -run Repository -update
func TestDescriptionInTheRepositoryIsCurrent(t *testing.T) {
	const file = "openapi.json"
	a := newAPIWith(t, "mem://", Config{Version: "(devel)"})
	var want bytes.Buffer
	if err := json.Indent(&want, a.server.description, "", "  "); err != nil {
		t.Fatal(err)
	}
	want.WriteByte('\n')
	if *update {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not what the server describes: run go test ./server -run Repository -update (%v)", file, err)
	}
}

var update = flag.Bool("update", false, "write openapi.json")
