package server

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// apiConfig returns the configuration with which huma describes and checks the API. Huma's own pages are off.
func apiConfig(version string) huma.Config {
	// Handlers decode bodies; see decodeBody.
	format := huma.Format{Marshal: encodeJSON, Unmarshal: func([]byte, any) error { return nil }}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OnAddOperation: []huma.AddOpFunc{func(_ *huma.OpenAPI, op *huma.Operation) {
				for _, p := range op.Parameters {
					neverNull(p.Schema)
				}
			}},
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:   "Later",
				Version: version,
				Description: "A delay queue over HTTP. Durations are texts such as 500ms, 30s, 1h30m and 2d12h, " +
					"and times are RFC 3339. Errors are problems as in RFC 9457. A server that has no web configuration file " +
					"needs no authentication.",
				Contact: &huma.Contact{Name: "Later", URL: "https://github.com/laterq/later"},
				License: &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"},
			},
			Servers: []*huma.Server{{URL: "http://127.0.0.1:7600", Description: "later serve, without flags"}},
			Components: &huma.Components{
				Schemas:         newRegistry(),
				SecuritySchemes: securitySchemes,
			},
			Security: security,
			Tags:     tags,
		},
		Formats:                      map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{asProblem},
	}
}

func encodeJSON(w io.Writer, value any) error {
	if reply, ok := w.(*replyWriter); ok {
		reply.tag(value)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

// finishDescription serves the OpenAPI description. Routes that are registered after it are not in it.
func (s *Server) finishDescription() {
	s.describeMounted()
	api := s.api.OpenAPI()
	api.Components.Responses = s.problemResponses()
	describeTags(api)
	s.describeChanges()
	for _, schema := range api.Components.Schemas.Map() {
		neverNull(schema)
	}
	code := api.Components.Schemas.SchemaFromRef(s.schemaOf(typeOf[problem.Problem]()).Ref).Properties["code"]
	code.Enum = codes()
	code.PrecomputeMessages()
	delete(api.Components.Schemas.Map(), "ErrorModel") // huma's own, which asProblem replaces
	delete(api.Components.Schemas.Map(), "ErrorDetail")
	text, err := json.Marshal(api)
	if err != nil {
		panic(err) // it is the same for every server
	}
	s.description = text
	s.mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json")
		_, _ = w.Write(s.description)
	})
}

// codes returns the codes of problems.
func codes() []any {
	all := []any{string(store.Internal)}
	for _, kind := range store.Kinds() {
		all = append(all, string(kind.Code))
	}
	return all
}

// schemaNames replaces the names of types that would say little to the users of generated clients.
var schemaNames = map[string]string{
	"Info": "Message", "Outgoing": "OutgoingMessage", "Stats": "QueueStats", "ScheduleFields": "ScheduleSettings",
	"ScheduleInfoFields": "Schedule", "Held": "HeldMessage", "RuleSeries": "ScheduleSeries",
	"PageStats": "QueuePage", "PageListedTopic": "TopicPage", "PageSeriesMessage": "SeriesPage", "PageRun": "RunPage",
	"PageScheduledRun": "ScheduledRunPage", "FoundMessageProblem": "Found", "PageWorker": "WorkerPage",
	"PageOperation": "OperationPage",
}

// schemaName returns the name of the schema of a type. A hint is given for types without one.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if request, ok := strings.CutSuffix(name, "InputBody"); ok {
		return request + "Request"
	}
	return cmp.Or(schemaNames[name], name)
}

// Duration is a duration in a request.
type Duration string

// UnmarshalText refuses a text that is empty, which would be no duration.
func (d *Duration) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return store.Invalid("is empty: give a value, or leave it out")
	}
	*d = Duration(text)
	return nil
}

// Schema returns the schema of the text.
func (Duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "A duration such as 500ms, 30s, 1h30m or 2d12h",
		MinLength: new(1), Examples: []any{"30m"}}
}

// schemaPrefix begins the references to schemas.
const schemaPrefix = "#/components/schemas/"

// newRegistry returns a registry in which text types with few values are named enumerations.
func newRegistry() huma.Registry {
	r := huma.NewMapRegistry(schemaPrefix, schemaName)
	for _, t := range []reflect.Type{typeOf[wire.Duration](), typeOf[message.Duration](), typeOf[message.Delay](),
		typeOf[jsonfields.Duration]()} {
		r.RegisterTypeAlias(t, typeOf[Duration]())
	}
	r.RegisterTypeAlias(typeOf[message.Time](), typeOf[time.Time]())
	addEnum(r, store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead)
	addEnum(r, store.DeadFailed, store.DeadLeaseExpired, store.DeadBuried, store.DeadExpired, store.DeadUnreadable)
	addEnum(r, append(view.EventKinds[:len(view.EventKinds):len(view.EventKinds)], later.EventMissed)...)
	addEnum(r, later.SendSent, later.SendDuplicate, later.SendReplaced, later.SendDebounced, later.SendFollows)
	addEnum(r, access.RoleRead, access.RoleSend, access.RoleWork, access.RoleOperate, access.RoleAdmin)
	return r
}

func addEnum[T ~string](r huma.Registry, values ...T) {
	s := &huma.Schema{Type: huma.TypeString}
	for _, value := range values {
		s.Enum = append(s.Enum, string(value))
	}
	s.PrecomputeMessages()
	t := typeOf[T]()
	r.Map()[t.Name()] = s
	r.RegisterTypeAlias(t, typeOf[enum[T]]())
}

// enum stands for a T in a registry.
type enum[T any] struct{}

// Schema returns a reference to the enumeration.
func (enum[T]) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Ref: schemaPrefix + typeOf[T]().Name()}
}

// neverNull marks the arrays of a schema and its parts as not null. Huma marks Go slices as nullable.
func neverNull(s *huma.Schema) {
	if s == nil {
		return
	}
	if s.Type == huma.TypeArray {
		s.Nullable = false
	}
	neverNull(s.Items)
	for _, property := range s.Properties {
		neverNull(property)
	}
	if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
		neverNull(values)
	}
}

// schemaOf returns a reference to the schema of a type.
func (s *Server) schemaOf(t reflect.Type) *huma.Schema {
	return s.api.OpenAPI().Components.Schemas.Schema(t, true, "")
}

// typeOf returns the type that schemas are made from.
func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

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
