package server

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api is a server with a store in memory, and a client of it.
type api struct {
	t      testing.TB
	client *later.Client
	server *Server
	url    string
	http   *http.Client
}

func newAPI(t testing.TB) *api { return newAPIWith(t, "mem://", Config{}) }

func newAPIWith(t testing.TB, url string, cfg Config) *api {
	t.Helper()
	c, err := later.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return newAPIOver(t, c, cfg)
}

// newAPIOver returns the API of a client, which it closes.
func newAPIOver(t testing.TB, c *later.Client, cfg Config) *api {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := New(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		h.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return &api{t: t, client: c, server: s, url: h.URL, http: h.Client()}
}

// reply is the answer of a server.
type reply struct {
	t      testing.TB
	what   string // the request
	status int
	header http.Header
	body   string
}

// do makes a request. A body that is neither a string nor nil is sent as JSON. The headers are names and values.
func (a *api) do(method, path string, body any, headers ...string) *reply {
	a.t.Helper()
	var text string
	switch b := body.(type) {
	case nil:
	case string:
		text = b
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			a.t.Fatal(err)
		}
		text = string(encoded)
	}
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(text))
	if err != nil {
		a.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	answer, err := a.http.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	got := &reply{a.t, fmt.Sprintf("%s %s %.200s", method, path, text), answer.StatusCode, answer.Header, string(read)}
	a.described(r, got)
	return got
}

// described fails the test unless a reply is as the description says, so that all tests of the server compare both.
func (a *api) described(r *http.Request, got *reply) {
	a.t.Helper()
	api := a.server.api.OpenAPI()
	_, pattern := a.server.mux.Handler(r)
	_, path, _ := strings.Cut(pattern, " ")
	item := api.Paths[path]
	if item == nil {
		return // no operation
	}
	op := map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch,
		"DELETE": item.Delete}[r.Method]
	if op.Extensions["x-mounted"] != nil {
		return // which it is beside a Server
	}
	response := op.Responses[strconv.Itoa(got.status)]
	if response != nil && response.Ref != "" {
		response = api.Components.Responses[strings.TrimPrefix(response.Ref, "#/components/responses/")]
	}
	if response == nil {
		a.t.Errorf("%s: %d is no reply of %s: %s", got.what, got.status, op.OperationID, got.body)
		return
	}
	kind, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	content := response.Content[kind]
	switch {
	case content == nil && (got.body != "" || len(response.Content) > 0):
		a.t.Errorf("%s: %d with the type %q is no reply of %s", got.what, got.status, kind, op.OperationID)
	case kind == jsonType, kind == problem.MediaType:
		a.describedBy(content.Schema, op, got.what, got.body)
	case kind == linesType && content.Schema.Ref != "":
		for line := range strings.Lines(got.body) {
			a.describedBy(content.Schema, op, got.what, line)
		}
	}
}

// describedBy fails the test unless a JSON value of a reply is as its schema says.
func (a *api) describedBy(schema *huma.Schema, op *huma.Operation, what, text string) {
	a.t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		a.t.Errorf("%s: %v in %s", what, err, text)
		return
	}
	result := &huma.ValidateResult{}
	huma.Validate(a.server.api.OpenAPI().Components.Schemas, schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer,
		value, result)
	for _, err := range result.Errors {
		a.t.Errorf("%s: %s is not as %s describes it: %v", what, text, op.OperationID, err)
	}
}

// is fails the test unless the reply has a status, and decodes its body into a map.
func (r *reply) is(status int) map[string]any {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: %d %s, want %d", r.what, r.status, r.body, status)
	}
	if r.body == "" {
		return nil
	}
	var value map[string]any
	if err := json.Unmarshal([]byte(r.body), &value); err != nil {
		r.t.Fatalf("%s: %v in %s", r.what, err, r.body)
	}
	return value
}

// fails fails the test unless the reply is a problem with a status, a code, a field, and a text that has all the parts.
func (r *reply) fails(status int, code store.Code, field string, parts ...string) {
	r.t.Helper()
	p := r.is(status)
	got, _ := p["field"].(string)
	if p["code"] != string(code) || got != field || r.header.Get("Content-Type") != "application/problem+json" {
		r.t.Errorf("%s: %s, want the code %s and the field %q", r.what, r.body, code, field)
	}
	busy := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	if (r.header.Get("Retry-After") != "") != busy {
		r.t.Errorf("%s: %d with the header %v", r.what, status, r.header)
	}
	for _, part := range parts {
		if text, _ := p["detail"].(string); !strings.Contains(text, part) {
			r.t.Errorf("%s: %q lacks %q", r.what, text, part)
		}
	}
}

// list returns a field of a reply that is a list of objects.
func list(value map[string]any, name string) []map[string]any {
	items, _ := value[name].([]any)
	all := make([]map[string]any, len(items))
	for i, item := range items {
		all[i], _ = item.(map[string]any)
	}
	return all
}
