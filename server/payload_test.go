package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/server/access"
)

// forms are payloads as requests and replies have them, with values that a program which decodes them would change.
var forms = []string{
	`"payload":{"z":12345678901234567890.10,"a":[1E+300,-0.0,"<&>\u00e9"],"a":null}`, `"payload":"hello"`,
	`"payload":null`, `"payload":""`, `"payload_text":"{\"n\": 1}"`, `"payload_text":""`, `"payload_base64":"/wA="`,
}

// hasPayload fails the test unless the payload of a message in the text of a reply is as it was sent.
func hasPayload(t *testing.T, what, text, form string) {
	t.Helper()
	whole := strings.Contains(text, form+",") || strings.Contains(text, form+"}")
	if strings.Count(text, `"payload`) != 1 || !whole {
		t.Errorf("%s: the payload %s came back in %s", what, form, text)
	}
}

func TestPayloadComesBackAsItWasSentByEveryRoute(t *testing.T) {
	a := newAPI(t)
	if err := a.client.Topic("t").Configure(t.Context(), later.TopicConfig{HistoryCount: 100}); err != nil {
		t.Fatal(err)
	}
	a.do(http.MethodPut, "/v1/topics/t/subscriptions/read", nil).is(http.StatusOK)
	for i, form := range forms {
		token := func(queue string) string {
			a.do(http.MethodPost, "/v1/queues/"+queue+"/messages", `{}`).is(http.StatusCreated)
			got := a.do(http.MethodPost, "/v1/queues/"+queue+"/receive", nil).is(http.StatusOK)
			return list(got, "messages")[0]["token"].(string)
		}
		type request struct{ method, path, body, contentType string }
		one := fmt.Sprintf(`{%s, "id": "m", "in": "1h"}`, form)
		for name, send := range map[string]request{
			"one":  {"POST", "/v1/queues/%s/messages", one, ""},
			"huma": {"POST", "/v1/queues/%s/messages", one[:len(one)-1] + `, "expire_after": "1d"}`, ""},
			"all":  {"POST", "/v1/queues/%s/messages/batch", `{"messages": [` + one + `]}`, ""},
			"line": {"POST", "/v1/queues/%s/messages/batch", one + "\n", linesType},
			"then": {"POST", "/v1/leases/" + token(fmt.Sprint("work", i)) + "/ack",
				`{"then": [{"queue": "%s", ` + one[1:] + "]}", ""},
			"series": {"POST", "/v1/queues/%s/series",
				`{"id": "m", "until": "2100-01-01T00:00:00Z", "offsets": ["0s"], ` + form + "}", ""},
			"imported": {"POST", "/v1/import", `{"later_export":2}` + "\n" + `{"queue":"%s","id":"m","state":"scheduled",` +
				`"due":"2100-01-01T00:00:00Z",` + form + `}` + "\n" + `{"later_export_end":2,"messages":1}` + "\n", linesType},
			"edited": {"PATCH", "/v1/queues/%s/messages/m", `{` + form + `}`, ""},
		} {
			queue := fmt.Sprint(name, i)
			if name == "edited" {
				a.do(http.MethodPost, "/v1/queues/"+queue+"/messages", `{"id": "m", "in": "1h", "payload": {"before": 1}}`).
					is(http.StatusCreated)
			}
			sprint := func(text string) string { return strings.Replace(text, "%s", queue, 1) }
			sent := a.do(send.method, sprint(send.path), sprint(send.body), "Content-Type", send.contentType)
			if sent.status >= 300 || strings.Contains(sent.body, `"error"`) {
				t.Fatalf("%s: %d %s", name, sent.status, sent.body)
			}
			listed := a.do(http.MethodGet, "/v1/queues/"+queue+"/messages?preview=1000", nil)
			hasPayload(t, name+" in a list", listed.body, form)
			id := url.PathEscape(list(listed.is(http.StatusOK), "items")[0]["id"].(string))
			hasPayload(t, name, a.do(http.MethodGet, "/v1/queues/"+queue+"/messages/"+id, nil).body, form)
			if export := a.export(queue); form != `"payload_text":""` { // which is the default
				hasPayload(t, name+" in an export", export, form)
			}
			hasPayload(t, name+" run now", a.do(http.MethodPost, "/v1/queues/"+queue+"/messages/"+id+"/run", nil).body, form)
			hasPayload(t, name+" received", a.do(http.MethodPost, "/v1/queues/"+queue+"/receive", nil).body, form)
		}
		a.do(http.MethodPost, "/v1/topics/t/messages", fmt.Sprintf(`{%s, "id": "h%d"}`, form, i)).is(http.StatusCreated)
		schedule := a.do(http.MethodPut, "/v1/schedules/s", `{"queue": "scheduled", "every": "1h", `+form+"}")
		schedule.is(http.StatusOK)
		if form != `"payload_text":""` {
			hasPayload(t, "schedule", a.do(http.MethodGet, "/v1/schedules/s", nil).body, form)
			hasPayload(t, "schedules", a.do(http.MethodGet, "/v1/schedules", nil).body, form)
		}
		a.do(http.MethodPost, "/v1/schedules/s/trigger", nil).is(http.StatusOK)
		hasPayload(t, "run", a.do(http.MethodPost, "/v1/queues/scheduled/receive", nil).body, form)
	}
	a.distribute("read", len(forms))
	history := a.do(http.MethodGet, "/v1/topics/t/history", nil).is(http.StatusOK)
	for i, m := range list(history, "items") {
		text, err := json.Marshal(m)
		if err != nil || i > 0 && !strings.Contains(string(text), strings.SplitAfter(forms[i], ":")[0]) {
			t.Errorf("%s in a history is %s, %v", forms[i], text, err)
		}
	}
}

func TestPayloadThatIsHiddenOrCutIsNoJSON(t *testing.T) {
	a := newAPI(t)
	long := strings.Repeat("1", 400)
	for id, payload := range map[string]string{"n": long, "s": `"` + long + `"`, "o": `{"a":` + long + `}`} {
		a.do(http.MethodPost, mail, fmt.Sprintf(`{"id": %q, "payload": %s}`, id, payload)).is(http.StatusCreated)
	}
	for _, m := range list(a.do(http.MethodGet, mail+"?preview=300", nil).is(http.StatusOK), "items") {
		text, _ := m["payload_text"].(string)
		if m["payload"] != nil || len(text) != 300 || m["payload_bytes"].(float64) < 400 || json.Valid([]byte(text)) {
			t.Errorf("a payload that was cut is %v", m)
		}
	}
	reader := access.Identity{Name: "page", Role: access.RoleRead, HidePayloads: true}
	hidden := a.as(reader)
	for _, path := range []string{mail, mail + "?preview=300", mail + "/n"} {
		if got := hidden.do(http.MethodGet, path, nil); got.status != http.StatusOK || strings.Contains(got.body, "111") ||
			strings.Contains(got.body, "content-type") {
			t.Errorf("%s shows a hidden payload: %.300s", path, got.body)
		}
	}
}

func TestContentTypeOfARawBody(t *testing.T) {
	a := newAPI(t)
	for i, test := range []struct{ contentType, own, body, want string }{
		{"text/plain; charset=utf-8", "", "hello",
			`"payload_text":"hello","headers":{"content-type":"text/plain; charset=utf-8"}`},
		{"image/png", "", "\xff\x00", `"payload_base64":"/wA=","headers":{"content-type":"image/png"}`},
		{"application/octet-stream", "", "x", `"payload_text":"x","max_attempts"`},
		{"application/geo+json", "", `{ "a":1}`, `"payload":{"a":1},"headers":{"content-type":"application/geo+json"}`},
		{"application/octet-stream", "application/json", "[1]",
			`"payload":[1],"headers":{"content-type":"application/json"}`},
	} {
		headers := []string{"Content-Type", test.contentType, "Later-Id", fmt.Sprint(i), "Later-In", "1h"}
		if test.own != "" {
			headers = append(headers, "Later-Header-Content-Type", test.own)
		}
		a.do(http.MethodPost, mail, test.body, headers...).is(http.StatusCreated)
		if got := a.do(http.MethodGet, fmt.Sprint(mail, "/", i), nil); !strings.Contains(got.body, test.want) {
			t.Errorf("%v: %s lacks %s", test, got.body, test.want)
		}
	}
}

// withHeaders returns the JSON of n headers.
func withHeaders(n int) string {
	headers := map[string]string{}
	for i := range n {
		headers[fmt.Sprint("h", i)] = "v"
	}
	text, _ := json.Marshal(headers)
	return string(text)
}

func TestMessageHasOneContentType(t *testing.T) {
	a := newAPI(t)
	const twice = `"payload": {"a": 1}, "headers": {"Content-Type": "text/plain"}`
	const field = "headers.Content-Type"
	a.do(http.MethodPost, mail, `{`+twice+`}`).fails(http.StatusBadRequest, "invalid", field, "is a second content type")
	a.do(http.MethodPost, mail, `{"payload_text": "x", "headers": {"content-type": "a/b", "Content-Type": "c/d"}}`).
		fails(http.StatusBadRequest, "invalid", field)
	a.do(http.MethodPost, mail+"/batch", `{"messages": [{}, {`+twice+`}]}`).
		fails(http.StatusBadRequest, "invalid", "messages[1]."+field)
	line := a.do(http.MethodPost, mail+"/batch", `{`+twice+"}\n", "Content-Type", linesType)
	if !strings.Contains(line.body, `"field":"`+field+`"`) {
		t.Error(line.body)
	}
	a.do(http.MethodPost, "/v1/queues/mail/series", `{"until": "2100-01-01T00:00:00Z", "offsets": ["0s"], `+twice+`}`).
		fails(http.StatusBadRequest, "invalid", field)
	a.do(http.MethodPut, "/v1/schedules/s", `{"queue": "mail", "every": "1h", `+twice+`}`).
		fails(http.StatusBadRequest, "invalid", field)
	a.do(http.MethodPost, "/v1/schedules/apply",
		`{"schedules": [{"name": "s", "queue": "mail", "every": "1h", `+twice+`}]}`).
		fails(http.StatusBadRequest, "invalid", "schedules[0]."+field)
	a.do(http.MethodPost, mail, `{"id": "m", "in": "1h", "payload": 1}`).is(http.StatusCreated)
	a.do(http.MethodPatch, mail+"/m", `{`+twice+`}`).fails(http.StatusBadRequest, "invalid", field)
	a.do(http.MethodPatch, mail+"/m", `{"headers": {"Content-Type": "text/plain"}}`).
		fails(http.StatusBadRequest, "invalid", field)
	got := list(a.do(http.MethodPost, "/v1/queues/mail/receive", nil).is(http.StatusOK), "messages")
	if len(got) != 0 {
		t.Errorf("refused messages were sent: %v", got)
	}
	// Without a content type of its own, a message may have the header in any case.
	a.do(http.MethodPost, mail, `{"payload_text": "x", "headers": {"Content-Type": "text/plain"}}`).is(http.StatusCreated)
}

func TestContentTypeStaysWithAPayloadThatIsNotEdited(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodPost, mail, `{"id": "m", "in": "1h", "payload": {"a": 1}, "headers": {"k": "v"}}`).
		is(http.StatusCreated)
	for _, test := range []struct{ body, want string }{
		{`{"headers": {"k": "w"}}`, `"payload":{"a":1},"headers":{"content-type":"application/json","k":"w"}`},
		{`{"headers": {}}`, `"payload":{"a":1},"headers":{"content-type":"application/json"}`},
		{`{"headers": {"content-type": "text/plain"}}`, `"payload_text":"{\"a\":1}","headers":{"content-type":"text/plain"}`},
		{`{"payload": 2}`, `"payload":2,"headers":{"content-type":"application/json"}`},
		{`{"payload_text": "x", "headers": {"k": "v"}}`, `"payload_text":"x","headers":{"k":"v"}`},
		{`{"headers": {"l": "v"}}`, `"payload_text":"x","headers":{"l":"v"}`},
	} {
		if got := a.do(http.MethodPatch, mail+"/m", test.body); !strings.Contains(got.body, test.want) {
			t.Errorf("%s: %s lacks %s", test.body, got.body, test.want)
		}
	}
}

func TestContentTypeCountsAsAHeader(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodPost, mail, `{"id": "m", "in": "1h", "payload": 1, "headers": `+withHeaders(63)+`}`).
		is(http.StatusCreated)
	a.do(http.MethodPost, mail, `{"payload_text": "", "headers": `+withHeaders(64)+`}`).is(http.StatusCreated)
	a.do(http.MethodPost, mail, `{"payload": 1, "headers": `+withHeaders(64)+`}`).
		fails(http.StatusRequestEntityTooLarge, "too_large", "headers",
			"has 64 names, and the payload needs the header content-type")
	a.do(http.MethodPatch, mail+"/m", `{"headers": `+withHeaders(64)+`}`).
		fails(http.StatusRequestEntityTooLarge, "too_large", "headers")
	a.do(http.MethodPost, "/v1/queues/mail/series",
		`{"until": "2100-01-01T00:00:00Z", "offsets": ["0s"], "payload": 1, "headers": `+withHeaders(59)+`}`).
		fails(http.StatusRequestEntityTooLarge, "too_large", "headers")
	const schedule = `{"queue": "mail", "every": "1h", "payload_text": "x", "headers": `
	a.do(http.MethodPut, "/v1/schedules/s", schedule+withHeaders(61)+`}`).is(http.StatusOK)
	a.do(http.MethodPut, "/v1/schedules/s", schedule+withHeaders(62)+`}`).
		fails(http.StatusRequestEntityTooLarge, "too_large", "headers")
}

func TestExportKeepsTheBytesOfARawBody(t *testing.T) {
	a := newAPI(t)
	const body = "{ \"a\" :\t1}\n"
	a.do(http.MethodPost, mail, body, "Content-Type", "application/geo+json", "Later-Id", "m", "Later-In", "1h").
		is(http.StatusCreated)
	export := strings.Replace(a.export("mail"), `"queue":"mail"`, `"queue":"restored"`, 1)
	a.do(http.MethodPost, "/v1/import", export, "Content-Type", linesType).is(http.StatusOK)
	info, err := a.client.Queue("restored").Get(t.Context(), "m")
	if err != nil || string(info.Payload) != body || info.Headers["content-type"] != "application/geo+json" {
		t.Errorf("%+v, %v", info, err)
	}
}
