package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// maxBody is how many bytes the body of a request has at most, where a route does not say otherwise.
const maxBody = 1 << 20

var errEnding = &problem.Error{Err: fmt.Errorf("the server ends: repeat the request: %w", store.ErrClosed)}

// route registers a handler for requests that need a right. A request needs the right for the queues of the path
// parameters "queue", "topic" and "token", and for schedules with "schedule". For any other queue the handler itself
// calls may, or calls access.Check with "" for the whole server.
func route[I, O any](s *Server, right access.Right, op huma.Operation, do func(context.Context, *I) (*O, error)) {
	if op.MaxBodyBytes == 0 {
		op.MaxBodyBytes = maxBody
	}
	op.Description = cmp.Or(op.Description, op.Summary+".")
	middlewares := huma.Middlewares{s.authorize(right)}
	if _, takesKey := typeOf[I]().FieldByName("IdempotencyKey"); !takesKey && op.Method != http.MethodGet {
		middlewares = append(middlewares, refuseKey)
	}
	if _, checked := typeOf[I]().FieldByName("Preconditions"); !checked && op.Method != http.MethodGet {
		middlewares = append(middlewares, refusePreconditions)
	}
	op.Middlewares = append(middlewares, op.Middlewares...)
	op.Extensions = map[string]any{"x-right": right.Name()}
	body, hasBody := typeOf[I]().FieldByName("Body")
	optional := body.Tag.Get("required") == "false"
	if hasBody {
		op.Middlewares, op.SkipValidateBody = append(op.Middlewares, s.readBody), true
	}
	describeProblems(&op, hasBody || op.RequestBody != nil)
	if hasBody && op.RequestBody == nil {
		op.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{}}
	}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		var err error
		if read, ok := ctx.Value(readKey{}).(*bodyRead); ok {
			err = decodeBody(read.text, optional, reflect.ValueOf(in).Elem().FieldByIndex(body.Index).Addr().Interface())
			read.decoded()
		}
		var out *O
		if err == nil {
			out, err = do(ctx, in)
		}
		if err != nil {
			return nil, s.failure(ctx, err)
		}
		return out, nil
	})
	if optional {
		op.RequestBody.Required = false
	}
}

// output is the reply of a route.
type output[T any] struct{ Body T }

// outputOf returns a reply.
func outputOf[T any](body T) *output[T] { return &output[T]{body} }

// tagged is the reply of a route for something that a PUT sets.
type tagged[T any] struct {
	ETag string `header:"ETag" doc:"Changes with the fields of a PUT, and with nothing else; for If-Match"`
	Body T
}

// on describes a route, which is a method and a path, with its tag, id and summary.
func on(route, tag, id, summary string, more ...func(*huma.Operation)) huma.Operation {
	method, path, _ := strings.Cut(route, " ")
	op := huma.Operation{Method: method, Path: path, Tags: []string{tag}, OperationID: id, Summary: summary}
	for _, add := range more {
		add(&op)
	}
	return op
}

// fails adds statuses of errors to an operation.
func fails(statuses ...int) func(*huma.Operation) {
	return func(op *huma.Operation) { op.Errors = append(op.Errors, statuses...) }
}

// answers sets the status of a success.
func answers(status int) func(*huma.Operation) {
	return func(op *huma.Operation) { op.DefaultStatus = status }
}

// bodyUpTo sets the limit of the body.
func bodyUpTo(n int64) func(*huma.Operation) {
	return func(op *huma.Operation) { op.MaxBodyBytes = n }
}

// says describes an operation beyond its summary.
func says(text string) func(*huma.Operation) {
	return func(op *huma.Operation) { op.Description = text }
}

// sends describes the reply of a success, unless it follows from the handler: its content, by media types.
func sends(description string, content map[string]*huma.MediaType) func(*huma.Operation) {
	return func(op *huma.Operation) {
		op.Responses = map[string]*huma.Response{"200": {Description: description, Content: content}}
	}
}

// through adds a middleware.
func through(middleware func(huma.Context, func(huma.Context))) func(*huma.Operation) {
	return func(op *huma.Operation) { op.Middlewares = append(op.Middlewares, middleware) }
}

// fewReads limits how many of an operation run at a time.
func (s *Server) fewReads(op *huma.Operation) {
	op.Middlewares = append(op.Middlewares, s.oneOfFewReads)
}

// decodeBody decodes the JSON of a request into a struct. All bodies and lines are decoded by this. Errors name the
// field or, if they are about another part, the body.
func decodeBody(text []byte, optional bool, into any) error {
	if len(text) == 0 && optional {
		return nil
	}
	var err error
	if own, ok := into.(json.Unmarshaler); ok {
		err = own.UnmarshalJSON(text)
	} else {
		err = jsonfields.Decode(text, into)
	}
	if err != nil && store.FieldOf(err) == "" {
		err = field("body", err)
	}
	return err
}

// queuesOfPath returns the queues that the path of a request is about.
func queuesOfPath(ctx huma.Context) (queues []string, err error) {
	if queue := ctx.Param("queue"); queue != "" {
		queues = append(queues, queue)
	}
	if topic := ctx.Param("topic"); topic != "" {
		queues = append(queues, reserved.Topic+topic)
	}
	if token := ctx.Param("token"); token != "" {
		var receipt wire.Receipt
		receipt, err = wire.ParseReceipt(token)
		queues = append(queues, receipt.Queue)
	}
	return queues, field("path.token", err)
}

// authorize refuses requests of senders that lack a right, in general or for a queue of the path.
func (s *Server) authorize(right access.Right) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		_, w := humago.Unwrap(ctx)
		queues, err := queuesOfPath(ctx)
		switch scheduled := ctx.Param("schedule") != ""; {
		case err != nil:
		case scheduled:
			err = access.CheckSchedules(ctx.Context(), right)
		case len(queues) == 0:
			err = may(ctx.Context(), right, "")
		}
		for _, queue := range queues {
			if err == nil {
				err = may(ctx.Context(), right, queue)
			}
		}
		if err == nil {
			err = checkQuery(ctx)
		}
		if err != nil {
			problem.Write(w, 0, err)
			return
		}
		next(ctx)
	}
}

// checkQuery refuses a query that cannot be read, and a parameter that is empty, or given twice, unless it is a list.
// Huma would leave it out, or take the first value.
func checkQuery(ctx huma.Context) error {
	r, _ := humago.Unwrap(ctx)
	if r.URL.RawQuery == "" {
		return nil
	}
	all, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil { // and the parameters that are wrong would be left out
		return field("query", store.Invalid("cannot be read: %v", err))
	}
	for name, values := range all {
		isList := slices.ContainsFunc(ctx.Operation().Parameters, func(p *huma.Param) bool {
			return p.In == "query" && p.Name == name && p.Schema.Type == huma.TypeArray
		})
		if len(values) > 1 && !isList {
			return field("query."+name, store.Invalid("is given twice: give it once"))
		}
		if slices.Contains(values, "") { // an empty variable must not select everything
			return field("query."+name, store.Invalid("is empty: give a value, or omit it"))
		}
	}
	return nil
}

// may returns an error unless the sender of a request has a right for a queue, or for some queue if it is "".
func may(ctx context.Context, right access.Right, queue string) error {
	if queue == "" {
		return access.CheckRole(ctx, right)
	}
	return access.Check(ctx, right, queue)
}

// hides reports whether the sender of a request must not see payloads, headers and error texts.
func hides(ctx context.Context) bool {
	who, controlled := access.FromContext(ctx)
	return controlled && who.HidePayloads
}

// failure is a problem as a handler's error.
type failure struct{ problem.Problem }

func (f *failure) Error() string             { return f.Detail }
func (f *failure) GetStatus() int            { return f.Status }
func (f *failure) ContentType(string) string { return problem.MediaType }

// failure returns the problem of an error, and logs it if it is one of the server.
func (s *Server) failure(ctx context.Context, err error) *failure {
	code := store.CodeOf(err)
	if _, own := errors.AsType[*problem.Error](err); !own &&
		(code == store.ErrUnauthenticated.Code || code == store.ErrForbidden.Code) {
		err = fmt.Errorf("%w: %w", store.ErrMisconfigured, err) // the store is a server, and refuses this one
	}
	f := &failure{problem.New(0, err)}
	if in, ok := parameters[f.Field]; ok && problem.FieldOf(err) == store.FieldOf(err) {
		f.Field = in
	}
	if f.Code == store.Internal {
		switch cause := context.Cause(ctx); {
		case cause != nil && errors.Is(err, cause):
			f.Problem = problem.New(0, fmt.Errorf("%w: the request ended: %w", store.ErrUnavailable, err))
		default:
			f.Instance = "urn:later:error:" + store.NewID()
			s.log.Error("request failed", "instance", f.Instance, "error", err)
		}
	}
	return f
}

// parameters are the fields of package store that are not fields of bodies.
var parameters = map[string]string{"queue": "path.queue", "cursor": "query.cursor"}

// field names the part of a request that an error is about, if there is an error.
func field(name string, err error) error {
	if err == nil {
		return nil
	}
	e := &problem.Error{Field: name}
	if inner, ok := errors.AsType[*problem.Error](err); ok {
		e.Status = inner.Status
	}
	inner := problem.FieldOf(err)
	if _, isParameter := parameters[inner]; inner != "" && inner != name && !isParameter {
		e.Field += "." + inner
	}
	if !strings.HasPrefix(err.Error(), name+" ") { // else the text names it already
		err = fmt.Errorf("%s: %w", name, err)
	}
	e.Err = err
	return e
}

// humaContext can be embedded under a name that is not that of its method.
type humaContext huma.Context

// requestContext is a request on its way through huma.
type requestContext struct {
	humaContext
	ctx    context.Context // with its sender
	server *Server
	body   []byte // in place of the request's, if it was read before
	ready  func() // called when the reply is there, if it is not nil
	status int    // in place of the next one that is set, unless it is 0
	set    int    // the status that was set
	sent   bool

	fingerprint hash.Hash // of a request with a key, if its body was read
}

func (c *requestContext) Context() context.Context { return c.ctx }

func (c *requestContext) BodyReader() io.Reader {
	if c.body != nil {
		return c.fingerprinted(bytes.NewReader(c.body))
	}
	return c.fingerprinted(c.humaContext.BodyReader())
}

// isReady says that the reply is there.
func (c *requestContext) isReady() {
	if c.ready != nil {
		c.ready()
		c.ready = nil
	}
}

// SetStatus sets the status that is sent with the body. Huma sets another status when the client is gone before the
// body is written. That status is ignored.
func (c *requestContext) SetStatus(code int) {
	if c.set != 0 {
		return
	}
	c.set = cmp.Or(c.status, code)
}

// BodyWriter returns a writer of the reply, which huma writes at once.
func (c *requestContext) BodyWriter() io.Writer { return (*replyWriter)(c) }

type replyWriter requestContext

// Write refuses a large reply if there are too many that their clients do not take.
func (w *replyWriter) Write(text []byte) (int, error) {
	c := (*requestContext)(w)
	_, to := humago.Unwrap(c.humaContext)
	if g, ok := to.(*getReply); ok {
		g.ready = c.isReady
	} else {
		c.isReady()
	}
	if !c.sent && len(text) > smallReply {
		give, err := c.server.replies.take(c.ctx, int64(len(text)))
		if err != nil {
			c.sent = true
			problem.Write(to, 0, err)
			return len(text), nil
		}
		defer give()
	}
	c.send()
	return c.humaContext.BodyWriter().Write(text)
}

// send sends the status that was set.
func (c *requestContext) send() {
	if !c.sent && c.set != 0 {
		_, w := humago.Unwrap(c.humaContext)
		problem.SetRetryAfter(w.Header(), c.set)
		c.humaContext.SetStatus(c.set)
	}
	c.sent = true
}

func (c *requestContext) Unwrap() huma.Context { return c.humaContext }

// SetReadDeadline leaves the deadline as it is: withDeadlines has set it, and ends it with the body.
func (c *requestContext) SetReadDeadline(time.Time) error { return nil }

// prepare is the first middleware of each route.
func (s *Server) prepare(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	c := &requestContext{humaContext: ctx, ctx: withHeader(withSender(r), w.Header()), server: s}
	next(c)
	c.send()
}

// asProblem replaces errors of huma, which are about requests that do not fit their description.
func asProblem(ctx huma.Context, _ string, value any) (any, error) {
	model, ok := value.(*huma.ErrorModel)
	if !ok {
		return value, nil
	}
	status := model.Status
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	ctx.(*requestContext).status = status
	where, what := "", strings.ToLower(model.Detail)
	for i, detail := range model.Errors { // the first one first, all of them in short
		text := detail.Message
		location := strings.TrimPrefix(detail.Location, "body.")
		if location != "" {
			text = location + ": " + text
		}
		if i == 0 {
			where, what = location, text
		} else if i < 3 {
			what += "; " + text
		}
	}
	err := store.Invalid("%s", what)
	switch status {
	case http.StatusRequestEntityTooLarge:
		err = store.TooLarge("%s", what)
	case http.StatusInternalServerError, http.StatusRequestTimeout: // the connection broke
		err = fmt.Errorf("%s: %w", what, store.ErrUnavailable)
	}
	return &failure{problem.New(status, &problem.Error{Err: err, Field: where})}, nil
}

// checkPath refuses paths that http.ServeMux or a client may make shorter, such as those with the id "..": a request to
// delete a message would delete its queue.
func checkPath(r *http.Request) error {
	if !strings.HasPrefix(r.URL.Path, "/") { // of CONNECT, OPTIONS * and URLs without one
		return field("path", store.Invalid("%q does not begin with a slash", nearest.Clip(r.URL.Path)))
	}
	escaped := r.URL.EscapedPath()
	for part := range strings.SplitSeq(strings.TrimSuffix(escaped[1:], "/"), "/") {
		if part == "" && escaped != "/" {
			return field("path", store.Invalid("%q has an empty part: leave out the slash", nearest.Clip(r.URL.Path)))
		}
		if name, err := url.PathUnescape(part); err == nil && (name == "." || name == "..") {
			return field("path", store.Invalid("%q has the part %q, which clients and proxies take out: select a message with "+
				"such an id by a filter", nearest.Clip(r.URL.Path), name))
		}
	}
	return nil
}

// checkBody refuses bodies that would be misread: compressed bodies, and bodies with two content types.
func checkBody(r *http.Request) error {
	if len(r.Header["Content-Type"]) > 1 {
		return field("header.Content-Type", store.Invalid("is given twice: give it once"))
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" && r.ContentLength != 0 {
		return field("header.Content-Encoding", &problem.Error{Status: http.StatusUnsupportedMediaType,
			Err: store.Invalid("bodies are not decompressed: send them as they are")})
	}
	return nil
}

// ExactPaths returns a handler that refuses requests whose paths an http.ServeMux would redirect: those with empty
// parts, and the parts . and .. in any encoding. Put it before such a mux. A Server does the same by itself.
func ExactPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkPath(r); err != nil {
			problem.Write(w, 0, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// unknownRoute answers a request that no route is for.
func (s *Server) unknownRoute(w http.ResponseWriter, r *http.Request) {
	var others []string
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := s.mux.Handler(other); pattern != "/" && !slices.Contains(others, method) {
			others = append(others, method)
		}
	}
	if len(others) > 0 {
		w.Header().Set("Allow", strings.Join(others, ", "))
		problem.Write(w, http.StatusMethodNotAllowed,
			store.Invalid("%s is no method of %s: use %s", r.Method, r.URL.Path, strings.Join(others, " or ")))
		return
	}
	noRoute(w, r)
}

func noRoute(w http.ResponseWriter, r *http.Request) {
	problem.Write(w, 0, fmt.Errorf("no route %s: /v1/openapi.json lists them: %w", r.URL.Path, store.ErrNotFound))
}
