package openapitest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	valerrors "github.com/pb33f/libopenapi-validator/errors"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"

	"github.com/laterq/later"
	"github.com/laterq/later/health"
	"github.com/laterq/later/metrics"
	"github.com/laterq/later/server"
	"github.com/laterq/later/server/access"
)

// description is the API as the server describes it.
type description struct {
	t        *testing.T
	url      string
	model    *v3.Document
	checker  validator.Validator
	visited  map[string]bool // operations, as METHOD path
	captured map[string]string
}

func open(t *testing.T) *description {
	t.Helper()
	client, err := later.Open(t.Context(), "mem://")
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(client, server.Config{Logger: slog.New(slog.DiscardHandler),
		Finished: server.FinishedConfig{Queues: []string{"mail"}}})
	if err != nil {
		t.Fatal(err)
	}
	s.WatchFinished()
	control, err := access.New(access.Config{Loopback: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux() // as later serve has it
	mux.Handle("/", s)
	mux.Handle("GET /healthz", health.LiveStore(client))
	mux.Handle("GET /readyz", health.Ready(client))
	mux.Handle("GET /metrics", metrics.New(metrics.Config{}).Handler(client))
	mux.HandleFunc("POST "+access.LoginPath, control.Login)
	mux.HandleFunc("POST "+access.LogoutPath, control.Logout)
	h := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.Close()
		h.Close()
		client.Close()
	})
	d := &description{t: t, url: h.URL, visited: map[string]bool{}, captured: map[string]string{}}
	_, text := d.request(http.MethodGet, "/v1/openapi.json", "", nil)
	document, err := libopenapi.NewDocument([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	model, err := document.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	d.model = &model.Model
	d.checker, errs = validator.NewValidator(document, config.WithFormatAssertions())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return d
}

func TestDescriptionIsValid(t *testing.T) {
	d := open(t)
	if ok, errs := d.checker.ValidateDocument(); !ok {
		t.Error(text(errs))
	}
}

// step is a request, the status of its reply, and what later steps use of it.
type step struct {
	request string // METHOD path
	body    string
	status  int
	capture string // name=pattern: ${name} in later steps is what the pattern's group finds in the reply
	headers []string
	wrong   bool // the request does not fit the description
	endless bool // only the head of the reply is read
	lines   bool // the body or the reply has an object a line, which the library does not know
}

func TestEveryOperationIsAsDescribed(t *testing.T) {
	d := open(t)
	for _, s := range session {
		d.run(s)
	}
	for path, item := range d.model.Paths.PathItems.FromOldest() {
		for method := range item.GetOperations().FromOldest() {
			if operation := strings.ToUpper(method) + " " + path; !d.visited[operation] {
				t.Errorf("no request for %s", operation)
			}
		}
	}
}

// run makes a request and checks it and its reply.
func (d *description) run(s step) {
	d.t.Helper()
	method, path, _ := strings.Cut(d.expand(s.request), " ")
	body := d.expand(s.body)
	if s.endless {
		reply, end := d.open(method, path, body, s.headers)
		end()
		if reply.StatusCode != s.status {
			d.t.Fatalf("%s: %s", s.request, reply.Status)
		}
		d.visit(method, reply.Request.URL.Path)
		return
	}
	reply, answer := d.request(method, path, body, s.headers)
	if reply.StatusCode != s.status {
		d.t.Errorf("%s %s: %d %s, want %d", s.request, body, reply.StatusCode, answer, s.status)
	}
	d.visit(method, reply.Request.URL.Path)
	if s.lines {
		return
	}
	request := reply.Request
	request.Body = io.NopCloser(strings.NewReader(body))
	if !s.wrong {
		if ok, errs := d.checker.ValidateHttpRequest(request); !ok {
			d.t.Errorf("%s %s does not fit the description: %s", s.request, body, text(errs))
		}
	}
	reply.Body = io.NopCloser(strings.NewReader(answer))
	if ok, errs := d.checker.ValidateHttpResponse(request, reply); !ok {
		d.t.Errorf("%s %s: the reply %s does not fit the description: %s", s.request, body, answer, text(errs))
	}
	if name, pattern, ok := strings.Cut(s.capture, "="); ok {
		found := regexp.MustCompile(pattern).FindStringSubmatch(answer)
		if found == nil {
			d.t.Fatalf("%s: no %s in %s", s.request, pattern, answer)
		}
		d.captured[name] = found[1]
	}
}

func (d *description) expand(text string) string {
	return regexp.MustCompile(`\$\{(\w+)\}`).ReplaceAllStringFunc(text, func(v string) string {
		return d.captured[v[2:len(v)-1]]
	})
}

// parameter is a parameter in the template of a path.
var parameter = regexp.MustCompile(`\{\w+\}`)

// visit remembers the operation that a path belongs to: that with the fewest parameters.
func (d *description) visit(method, path string) {
	best := ""
	for template := range d.model.Paths.PathItems.FromOldest() {
		pattern := "^" + parameter.ReplaceAllString(template, `[^/]+`) + "$"
		if regexp.MustCompile(pattern).MatchString(path) &&
			(best == "" || strings.Count(template, "{") < strings.Count(best, "{")) {
			best = template
		}
	}
	d.visited[method+" "+best] = true
}

// open makes a request and returns its reply before that is read. end ends it.
func (d *description) open(method, path, body string, headers []string) (reply *http.Response, end func()) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	r, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Authorization", "Bearer x") // which the description wants, and a server without access control ignores
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	reply, err = http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	return reply, func() {
		cancel()
		reply.Body.Close()
	}
}

func (d *description) request(method, path, body string, headers []string) (*http.Response, string) {
	d.t.Helper()
	reply, end := d.open(method, path, body, headers)
	defer end()
	answer, err := io.ReadAll(reply.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return reply, string(answer)
}

func text(errs []*valerrors.ValidationError) string {
	var b strings.Builder
	for _, err := range errs {
		fmt.Fprintf(&b, "%s: %s", err.Message, err.Reason)
		for _, one := range err.SchemaValidationErrors {
			fmt.Fprintf(&b, "; %s at %s", one.Reason, one.KeywordLocation)
		}
		b.WriteString("\n")
	}
	return b.String()
}
