package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
)

// TestDeepJSONIsRefusedByEveryRoute sends JSON that is nested deeper than allowed to every route that has a body. Code
// that recurses into such a body needs up to hundreds of bytes of stack for each of its bytes.
func TestDeepJSONIsRefusedByEveryRoute(t *testing.T) {
	a := newAPI(t)
	if _, err := a.client.Queue("q").Send(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	got, err := a.client.Queue("q").Receive(t.Context(), 1, later.NoWait())
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	names := strings.NewReplacer("{token}", got[0].Receipt(), "{queue}", "q", "{topic}", "q")
	deep := map[string]string{
		"open":    strings.Repeat("[", 8_000_000),
		"objects": strings.Repeat(`{"payload":`, 65) + "1" + strings.Repeat("}", 65),
		"lists":   `{"payload":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + "}",
	}
	routes := 0
	operationsOf(a.server.api.OpenAPI(), func(op *huma.Operation) {
		if op.RequestBody == nil || op.Extensions["x-mounted"] != nil {
			return
		}
		routes++
		path := parameter.ReplaceAllString(names.Replace(op.Path), "none")
		for name, body := range deep {
			if op.Path == "/v1/import" && name != "open" {
				body = "{\"later_export\":2}\n" + body + "\n"
			}
			for _, contentType := range []string{jsonType, linesType} {
				r := httptest.NewRequestWithContext(t.Context(), op.Method, path, strings.NewReader(body))
				r.Header.Set("Content-Type", contentType)
				w := httptest.NewRecorder()
				a.server.ServeHTTP(w, r)
				if op.RequestBody.Content[contentType] == nil && contentType != jsonType {
					continue // as a payload, or refused for its type
				}
				refused := w.Code == http.StatusBadRequest || w.Code == http.StatusRequestEntityTooLarge ||
					contentType == linesType && strings.Contains(w.Body.String(), `"code":"`)
				if !refused || name != "open" && !strings.Contains(w.Body.String(), "nested more than 64 deep") {
					t.Errorf("%s %s with %s of %s: %d %.300s", op.Method, path, name, contentType, w.Code, w.Body)
				}
			}
		}
	})
	if routes < 15 {
		t.Errorf("only %d routes have a body", routes)
	}
}

// TestDeepPayloadsAreSearched has payloads that no parser may read, of 1 MiB.
func TestDeepPayloadsAreSearched(t *testing.T) {
	a := newAPI(t)
	for id, payload := range map[string]string{"deep": strings.Repeat("[", 1<<20), "plain": `{"a":1}`} {
		_, err := a.client.Queue("q").Send(t.Context(), []byte(payload), later.WithID(id), later.In(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
	}
	const list = "/v1/queues/q/messages?state=scheduled&json="
	for query, want := range map[string]string{
		"a+%3D+1": "plain", "a+%21%3D+1": "deep",
	} {
		if text := a.do(http.MethodGet, list+query, nil).body; strings.Contains(text, `"id":"plain"`) != (want == "plain") ||
			strings.Contains(text, `"id":"deep"`) != (want == "deep") {
			t.Errorf("%s: %.200s", query, text)
		}
	}
	for _, query := range []string{"%5B%40this%2C%40this%5D+%3D+1", "%40this%7C%40this+%3D+1", "a.%23.b+%3D+1"} {
		a.do(http.MethodGet, list+query, nil).fails(http.StatusBadRequest, "invalid", "json", "byte")
	}
}
