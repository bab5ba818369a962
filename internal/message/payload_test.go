package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/store"
)

// decode returns the payload and the headers of a message that is sent with the JSON of a payload.
func decode(t *testing.T, text string, headers map[string]string) ([]byte, map[string]string, error) {
	t.Helper()
	var p Payload
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(text, err)
	}
	return p.Message(headers)
}

func TestPayloadComesBackInItsForm(t *testing.T) {
	for _, text := range []string{
		`{"payload":{"b":12345678901234567890.10,"a":[1e999,"<&>\u2028\ud83d\ude42"],"b":null}}`,
		`{"payload":"hello"}`, `{"payload":null}`, `{"payload":false}`, `{"payload":0}`, `{"payload":""}`, `{"payload":[]}`,
		`{"payload":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`,
		`{"payload_text":"{\"a\": 1}"}`, `{"payload_text":""}`, `{"payload_base64":"/w=="}`,
	} {
		payload, headers, err := decode(t, text, nil)
		if got := string(jsontext.Append(nil, NewPayload(payload, headers))); err != nil || got != text {
			t.Errorf("%s became %q and came back as %s, %v", text, payload, got, err)
		}
		json := headers[ContentType] == JSONType
		if json != strings.HasPrefix(text, `{"payload":`) || !json && headers != nil {
			t.Errorf("%s has the headers %v", text, headers)
		}
	}
}

func TestPayloadIsShownByItsContentType(t *testing.T) {
	for _, test := range []struct{ payload, contentType, want string }{
		{`{"a":1}`, "application/json", `{"payload":{"a":1}}`},
		{"{\n\"a\" : 1}", "Application/JSON; charset=utf-8", `{"payload":{"a":1}}`},
		{`[1]`, "application/vnd.order+json", `{"payload":[1]}`},
		{`[1]`, "", `{"payload_text":"[1]"}`},
		{`[1]`, "text/plain", `{"payload_text":"[1]"}`},
		{`[1`, "application/json", `{"payload_text":"[1"}`},
		{``, "application/json", `{"payload_text":""}`},
		{"\"\xff\"", "application/json", `{"payload_base64":"Iv8i"}`},
		{`"\ud800"`, "application/json", `{"payload_text":"\"\\ud800\""}`},
		{strings.Repeat("[", 61) + strings.Repeat("]", 61), "application/json",
			`{"payload_text":"` + strings.Repeat("[", 61) + strings.Repeat("]", 61) + `"}`},
	} {
		headers := map[string]string{ContentType: test.contentType}
		if got := string(jsontext.Append(nil, NewPayload([]byte(test.payload), headers))); got != test.want {
			t.Errorf("%q of type %q\n got  %s\n want %s", test.payload, test.contentType, got, test.want)
		}
	}
}

func TestContentTypeOfASentPayload(t *testing.T) {
	own := map[string]string{ContentType: "application/geo+json", "k": "v"}
	for _, test := range []struct {
		text      string
		headers   map[string]string
		want      string
		wantType  string
		wantError string
	}{
		{text: `{"payload": {"a": [1, 2]}}`, headers: map[string]string{"k": "v"}, want: `{"a":[1,2]}`, wantType: JSONType},
		{text: `{"payload": 1}`, headers: own, want: `1`, wantType: "application/geo+json"},
		{text: `{"payload_text": "[1]"}`, headers: own, want: `[1]`, wantType: "application/geo+json"},
		{text: `{}`, headers: own, wantType: "application/geo+json"},
		{text: `{"payload": 1}`, headers: map[string]string{ContentType: "text/html"},
			wantError: `is "text/html": give payload_text`},
		{text: `{"payload": 1, "payload_text": "1"}`, wantError: "give one of payload, payload_text"},
		{text: `{"payload": null, "payload_base64": ""}`, wantError: "give one of payload, payload_text"},
		{text: `{"payload": ` + strings.Repeat("[", 61) + strings.Repeat("]", 61) + `}`,
			wantError: "nested more than 60 deep"},
	} {
		before := maps.Clone(test.headers)
		payload, headers, err := decode(t, test.text, test.headers)
		switch {
		case !maps.Equal(before, test.headers):
			t.Errorf("%s changed the headers %v to %v", test.text, before, test.headers)
		case test.wantError != "":
			if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), test.wantError) {
				t.Errorf("%s: got %v, want %s", test.text, err, test.wantError)
			}
		case err != nil || string(payload) != test.want || headers[ContentType] != test.wantType ||
			headers["k"] != test.headers["k"]:
			t.Errorf("%s: got %q with %v, %v", test.text, payload, headers, err)
		}
	}
}

func TestEditedPayloadHasItsOwnContentType(t *testing.T) {
	isJSON, isHTML := map[string]string{ContentType: JSONType, "k": "v"}, map[string]string{ContentType: "text/html"}
	text := "x"
	for _, test := range []struct {
		edit    Payload
		headers map[string]string
		want    string
	}{
		{Payload{Payload: json.RawMessage("1")}, isJSON, JSONType},
		{Payload{Payload: json.RawMessage("1")}, isHTML, JSONType},
		{Payload{PayloadText: &text}, isJSON, ""},
		{Payload{PayloadText: &text}, isHTML, "text/html"},
	} {
		_, headers, err := test.edit.Edit(test.headers)
		if err != nil || headers[ContentType] != test.want || headers["k"] != test.headers["k"] {
			t.Errorf("%+v of %v has the headers %v, %v", test.edit, test.headers, headers, err)
		}
	}
}

// FuzzPayload finds payloads that are shown as JSON that encoding/json refuses, or that come back as another value.
func FuzzPayload(f *testing.F) {
	for _, text := range []string{`{"a":[1.5e-7,"\u00e9"]}`, "\"\x7f\"", `-0`, `01`, "\u2028", `"\x"`, "[1,]", "\"\t\""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		shown := jsontext.Append(nil, NewPayload(payload, map[string]string{ContentType: JSONType}))
		var p Payload
		if err := json.Unmarshal(shown, &p); err != nil || !p.Given() {
			t.Fatalf("%q is shown as %q: %v", payload, shown, err)
		}
		got, _, err := p.Message(nil)
		var compact bytes.Buffer
		if p.Payload != nil && json.Compact(&compact, payload) == nil {
			payload = compact.Bytes()
		}
		if err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("%q came back as %q: %v", payload, got, err)
		}
	})
}
