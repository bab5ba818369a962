package server

import (
	"reflect"
	"testing"

	"github.com/danielgtaylor/huma/v2"
)

// FuzzUsualOutgoing checks that a body which is not decoded by huma is decoded as huma would.
func FuzzUsualOutgoing(f *testing.F) {
	for _, body := range []string{
		`{"payload": "hello", "in": "30m"}`, `{"payload": {"a": [1, "é"]}, "id": "a", "headers": {"k": "v"}}`,
		`{"payload": null, "at": "2100-01-01T00:00:00Z", "max_attempts": 3, "group": "g"}`, `{"Payload": "x"}`,
		`{"payload": "x", "payload": "y"}`, `{"max_attempts": 1e1}`, `{"max_attempts": 0}`, `{"timeout": "", "id": "\u0061"}`,
		`{"headers": {"a": "b", "a": "c"}}`, `{"dedup_window": "1h", "timeout": "1s"}`, `[]`, `{`, "{\"id\": \"\xff\"}",
		`{"payload": "\ud800"}`, `{"payload_base64": "eA=="}`, `{"in": 5}`, `{"i\u006e": "1h"}`,
	} {
		f.Add([]byte(body))
	}
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schema := registry.Schema(typeOf[Outgoing](), true, "")
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := usualOutgoing(body)
		if !ok {
			return
		}
		var value any
		if err := decodeJSON(body, &value); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		var result huma.ValidateResult
		huma.Validate(registry, schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, value, &result)
		var want Outgoing
		if err := decodeJSON(body, &want); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if _, err := got.outgoing(); len(result.Errors) > 0 && err == nil {
			if m, _ := got.outgoing(); m.Check() == nil {
				t.Fatalf("%q is taken, and does not fit its description: %v", body, result.Errors)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %+v, want %+v", body, got, want)
		}
	})
}
