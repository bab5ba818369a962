package server

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later/internal/problem"
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
}

// schemaName returns the name of the schema of a type. A hint is given for types without one.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if request, ok := strings.CutSuffix(name, "InputBody"); ok {
		return request + "Request"
	}
	name = strings.TrimSuffix(name, "OutputBody")
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
