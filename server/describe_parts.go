package server

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/server/access"
)

// tags are the groups of operations.
var tags = []*huma.Tag{
	{Name: "messages", Description: "Send messages, look at them, and change or cancel single ones."},
	{Name: "work", Description: "Receive messages that are due, and settle them."},
	{Name: "groups", Description: "Change or cancel the messages of a group together."},
	{Name: "series", Description: "Reminders before and after a moment, under one id."},
	{Name: "queues", Description: "Counts and settings of queues, and their dead messages."},
	{Name: "operations", Description: "Bulk changes, which go on after their request."},
	{Name: "topics", Description: "Publish messages to all queues that are subscribed to a topic."},
	{Name: "schedules", Description: "Messages that are sent again and again, by a rule."},
	{Name: "workers", Description: "The live workers of all processes, and what they are told."},
	{Name: "overview", Description: "What is due, to come and dead in all queues."},
	{Name: "events", Description: "What happens to messages and queues, live."},
	{Name: "transfer", Description: "Export and import messages."},
	{Name: "access", Description: "Log in and out with a browser."},
	{Name: "server", Description: "The server itself: its health, its metrics and its changes."},
}

// securitySchemes are the ways to authenticate a request, and security allows each of them.
var (
	securitySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "A token, as later token new prints it"},
		"user":  {Type: "http", Scheme: "basic", Description: "User and password; a token is the password of an empty user"},
		"login": {Type: "apiKey", In: "cookie", Name: access.LoginCookie,
			Description: "The cookie that the operation logIn sets, for browsers"},
	}
	security  = []map[string][]string{{"token": {}}, {"user": {}}, {"login": {}}}
	noneNeeds = []map[string][]string{}
)

// describeMounted describes the operations that are mounted beside a Server, as later serve does.
func (s *Server) describeMounted() {
	describe := func(right string, op huma.Operation, status string, response *huma.Response) {
		op.Extensions = map[string]any{"x-right": right, "x-mounted": true}
		op.Responses = map[string]*huma.Response{status: response}
		describeProblems(&op, op.RequestBody != nil)
		s.api.OpenAPI().AddOperation(&op)
		s.mux.HandleFunc(op.Method+" "+op.Path, noRoute) // unless it is mounted; other methods are answered with 405
	}
	open := func(op *huma.Operation) { op.Security = noneNeeds }
	text := &huma.Schema{Type: huma.TypeString}
	content := func(mediaType string, schema *huma.Schema) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{mediaType: {Schema: schema}}
	}
	cookie := func(about string) map[string]*huma.Param {
		return map[string]*huma.Param{"Set-Cookie": {Description: about, Schema: text}}
	}
	health := content(jsonType, s.schemaOf(typeOf[Health]()))
	describe("none", on("GET /healthz", "server", "getLiveness", "Ask whether the process is alive", open,
		says("503 means that it is to be restarted. Needs no authentication.")),
		"200", &huma.Response{Description: "It is alive", Content: health})
	describe("none", on("GET /readyz", "server", "getReadiness", "Ask whether requests can be served", open,
		says("503 means that the store cannot be reached. Needs no authentication.")),
		"200", &huma.Response{Description: "Requests can be served", Content: health})
	describe(access.Look.Name(), on("GET /metrics", "server", "getMetrics", "Read metrics for Prometheus",
		says("In the text format of Prometheus, or in the one that Accept asks for.")),
		"200", &huma.Response{Description: "Metrics", Content: content("text/plain", text)})
	logIn := on("POST "+access.LoginPath, "access", "logIn", "Exchange a token for a cookie", open,
		fails(http.StatusUnauthorized),
		says("For browsers: the cookie lasts 12 hours. Other programs send the token with each request."))
	logIn.RequestBody = &huma.RequestBody{Required: true,
		Content: content(jsonType, s.schemaOf(typeOf[access.Credentials]()))}
	describe("none", logIn, "204", &huma.Response{Description: "Logged in", Headers: cookie("The login")})
	describe("none", on("POST "+access.LogoutPath, "access", "logOut", "End a login", open,
		says("The reply removes the cookie.")),
		"204", &huma.Response{Description: "Logged out", Headers: cookie("Removes the cookie")})
}

// Health is the reply of a probe that finds nothing wrong.
type Health struct {
	Status string `json:"status" enum:"ok"`
}

// problems are the statuses of error replies, with their meanings.
var problems = map[int]string{
	http.StatusBadRequest:            "The request is not allowed: invalid. Nothing was done",
	http.StatusUnauthorized:          "No valid token, user or login: unauthenticated",
	http.StatusForbidden:             "The sender may not do this, or a page of another site asks: forbidden",
	http.StatusNotFound:              "What the path names does not exist: not_found",
	http.StatusRequestTimeout:        "The body came too slowly: unavailable",
	http.StatusPreconditionFailed:    "It is not what If-Match or If-None-Match say",
	http.StatusConflict:              "Not in the state that it has, or it has changed meanwhile",
	http.StatusRequestEntityTooLarge: "The body, or a part of it, is over its limit: too_large. Nothing was done",
	http.StatusUnsupportedMediaType:  "The body has a type that the operation does not take: invalid",
	http.StatusMisdirectedRequest:    "The server does not answer for this host: misconfigured",
	http.StatusUnprocessableEntity:   "The Idempotency-Key was used for another request: conflict",
	http.StatusTooManyRequests:       "The sender makes too many requests: unavailable. Try again later",
	http.StatusInternalServerError:   "What is stored is damaged, or the server failed: corrupt, internal",
	http.StatusNotImplemented:        "The store cannot do this: unsupported",
	http.StatusBadGateway:            "The store refuses the server: misconfigured",
	http.StatusServiceUnavailable:    "The store or server cannot serve calls now: unavailable, closed. Try again later",
	http.StatusGatewayTimeout:        "Done, but not confirmed to be as durable as asked: not_durable",
	http.StatusInsufficientStorage:   "The store has no room: full. Nothing was done",
}

// problemName returns the name of the description of a reply with a status, such as NotFound.
func problemName(status int) string {
	return strings.NewReplacer(" ", "", "-", "").Replace(http.StatusText(status))
}

// problemResponses describes the replies that are problems, for operations to refer to.
func (s *Server) problemResponses() map[string]*huma.Response {
	responses := map[string]*huma.Response{}
	for status, about := range problems {
		r := &huma.Response{Description: about, Content: map[string]*huma.MediaType{
			problem.MediaType: {Schema: s.schemaOf(typeOf[problem.Problem]())}}}
		text := &huma.Schema{Type: huma.TypeString}
		switch status {
		case http.StatusUnauthorized:
			r.Headers = map[string]*huma.Param{"WWW-Authenticate": {Description: "The ways to authenticate", Schema: text}}
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			r.Headers = map[string]*huma.Param{"Retry-After": {Description: "Try again after so many seconds",
				Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: new(1.0)}}}
		}
		responses[problemName(status)] = r
	}
	return responses
}

// describeProblems adds the error replies of an operation: the replies that every operation can have, the ones that
// follow from its method and body, and its own Errors.
func describeProblems(op *huma.Operation, hasBody bool) {
	statuses := append(op.Errors, http.StatusBadRequest, http.StatusForbidden, http.StatusMisdirectedRequest,
		http.StatusInternalServerError, http.StatusServiceUnavailable)
	op.Errors = nil // else huma would describe them in its own way
	if op.Security == nil {
		statuses = append(statuses, http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusNotImplemented,
			http.StatusBadGateway)
	}
	if hasBody {
		statuses = append(statuses, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType)
	}
	if op.Method != http.MethodGet && op.Security == nil {
		statuses = append(statuses, http.StatusGatewayTimeout, http.StatusInsufficientStorage)
	}
	responses := map[string]*huma.Response{}
	for _, status := range statuses {
		responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + problemName(status)}
	}
	maps.Copy(responses, op.Responses)
	op.Responses = responses
}

// laterHeaders describes the request headers of a raw message, which are fields of Outgoing.
func (s *Server) laterHeaders() (params []*huma.Param) {
	fields := s.api.OpenAPI().Components.Schemas.SchemaFromRef(s.schemaOf(typeOf[Outgoing]()).Ref).Properties
	for _, name := range slices.Sorted(maps.Keys(rawHeaders)) {
		field := rawHeaders[name].Name
		params = append(params, &huma.Param{Name: name, In: "header", Schema: fields[field],
			Description: "The field " + field + " of a message whose payload is the body"})
	}
	return params
}

// describeTags describes that replies to GETs with one JSON value have ETags. Clients learn from them whether a reply
// has changed. A reply with an ETag for If-Match is an exception: its ETag is for the stored version, and the reply
// leaves out a part of it.
func describeTags(api *huma.OpenAPI) {
	const parameter, notModified = "IfNoneMatch", "NotModified"
	text := &huma.Schema{Type: huma.TypeString}
	tag := map[string]*huma.Param{"ETag": {Description: "Changes with the reply; for If-None-Match", Schema: text}}
	api.Components.Parameters = map[string]*huma.Param{parameter: {Name: "If-None-Match", In: "header", Schema: text,
		Description: "The ETag of an earlier reply: the status is 304, without a body, if this one is the same"}}
	api.Components.Responses[notModified] = &huma.Response{Description: "As the reply whose ETag If-None-Match has",
		Headers: tag}
	for _, item := range api.Paths {
		if item.Get == nil || item.Get.Extensions["x-mounted"] != nil {
			continue
		}
		ok := item.Get.Responses["200"]
		if ok == nil || ok.Content[jsonType] == nil || ok.Headers["ETag"] != nil {
			continue
		}
		ok.Headers = tag
		item.Get.Parameters = append(item.Get.Parameters, &huma.Param{Ref: "#/components/parameters/" + parameter})
		item.Get.Responses["304"] = &huma.Response{Ref: "#/components/responses/" + notModified}
	}
}
