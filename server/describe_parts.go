package server

import (
	"maps"
	"net/http"
	"slices"
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

// securitySchemes are the ways in which a request says who sends it, and security allows each of them.
var (
	securitySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "A token, as later token new prints it"},
		"user":  {Type: "http", Scheme: "basic", Description: "A user and password; a token is the password of an empty user"},
		"login": {Type: "apiKey", In: "cookie", Name: access.LoginCookie,
			Description: "The cookie that the operation logIn sets, for browsers"},
	}
	security  = []map[string][]string{{"token": {}}, {"user": {}}, {"login": {}}}
	noneNeeds = []map[string][]string{}
)

// describeMounted describes the operations that are mounted beside a Server, as later serve does.
func (s *Server) describeMounted() {
	describe := func(op huma.Operation, right string) {
		op.Extensions = map[string]any{"x-right": right, "x-mounted": true}
		s.describeProblems(&op)
		s.api.OpenAPI().AddOperation(&op)
	}
	text := func(about string) map[string]*huma.Response {
		return map[string]*huma.Response{"200": {Description: about, Content: map[string]*huma.MediaType{
			"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}}}
	}
	healthy := func(about string) map[string]*huma.Response {
		return map[string]*huma.Response{"200": {Description: about, Content: map[string]*huma.MediaType{
			jsonType: {Schema: s.schemaOf(typeOf[Health]())}}}}
	}
	describe(huma.Operation{
		OperationID: "getLiveness",
		Method:      http.MethodGet, Path: "/healthz", Tags: []string{"server"}, Summary: "Ask whether the process is alive",
		Description: "503 means that it is to be restarted. Needs no authentication.",
		Security:    noneNeeds, Responses: healthy("It is alive"),
	}, "none")
	describe(huma.Operation{
		OperationID: "getReadiness",
		Method:      http.MethodGet, Path: "/readyz", Tags: []string{"server"},
		Summary:     "Ask whether requests can be served",
		Description: "503 means that the store cannot be reached. Needs no authentication.",
		Security:    noneNeeds, Responses: healthy("Requests can be served"),
	}, "none")
	describe(huma.Operation{
		OperationID: "getMetrics",
		Method:      http.MethodGet, Path: "/metrics", Tags: []string{"server"}, Summary: "Read metrics for Prometheus",
		Description: "In the text format of Prometheus, or in the one that Accept asks for.",
		Responses:   text("Metrics"),
	}, access.Look.Name())
	describe(huma.Operation{
		OperationID: "logIn",
		Method:      http.MethodPost, Path: access.LoginPath, Tags: []string{"access"},
		Summary:     "Exchange a token for a cookie",
		Description: "For browsers: the cookie lasts 12 hours. Other programs send the token with each request.",
		Security:    noneNeeds,
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			jsonType: {Schema: s.schemaOf(typeOf[access.Credentials]())}}},
		Responses: map[string]*huma.Response{"204": {Description: "Logged in", Headers: map[string]*huma.Param{
			"Set-Cookie": {Description: "The login", Schema: &huma.Schema{Type: huma.TypeString}}}}},
	}, "none")
	describe(huma.Operation{
		OperationID: "logOut",
		Method:      http.MethodPost, Path: access.LogoutPath, Tags: []string{"access"}, Summary: "End a login",
		Security: noneNeeds,
		Responses: map[string]*huma.Response{"204": {Description: "Logged out", Headers: map[string]*huma.Param{
			"Set-Cookie": {Description: "Removes the cookie", Schema: &huma.Schema{Type: huma.TypeString}}}}},
	}, "none")
}

// Health is the reply of a probe that finds nothing wrong.
type Health struct {
	Status string `json:"status" enum:"ok"`
}

// describeProblems adds the replies of an operation that are problems.
func (s *Server) describeProblems(op *huma.Operation) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = &huma.Response{
		Description: "A problem, as in RFC 9457",
		Content:     map[string]*huma.MediaType{problem.MediaType: {Schema: s.schemaOf(typeOf[problem.Problem]())}},
	}
}

// laterHeaders describes the request headers of a raw message, which are fields of Outgoing.
func (s *Server) laterHeaders() (params []*huma.Param) {
	fields := s.api.OpenAPI().Components.Schemas.SchemaFromRef(s.schemaOf(typeOf[Outgoing]()).Ref).Properties
	for _, name := range slices.Sorted(maps.Keys(rawHeaders)) {
		field := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, laterPrefix)), "-", "_")
		params = append(params, &huma.Param{Name: name, In: "header", Schema: fields[field],
			Description: "The field " + field + " of a message whose payload is the body"})
	}
	return params
}
