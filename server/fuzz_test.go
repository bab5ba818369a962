package server

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
)

// FuzzRoutes makes requests of every route of the description as each of the senders. No request makes the server
// panic, fail, answer otherwise than described, allocate much more than its size explains, or change anything when it
// is refused. No request shows or changes anything that its sender may not see.
//
// params has the parameters of the path, one a line, and headers a header a line. In them and in the body, TOKENmail
// stands for the token of a held message, "NEST" for n nested arrays or objects, and FILL for n bytes.
func FuzzRoutes(f *testing.F) {
	a := newFuzzed(f)
	for i, op := range a.routes {
		for _, s := range seedsOf(op) {
			for who := range senders {
				if s.params == foreign || who == (i+len(s.params)+len(s.query)+len(s.body))%len(senders) {
					f.Add(uint8(i), uint8(who), s.params, s.query, s.headers, s.body, s.n)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, route, who uint8, params, query, headers string, body []byte, n uint16) {
		op := a.routes[int(route)%len(a.routes)]
		sender := senders[int(who)%len(senders)]
		fill := a.fill(n)
		values := strings.Split(fill(params), "\n")
		path := parameter.ReplaceAllStringFunc(op.Path, func(name string) string {
			value := defaults[name]
			if len(values) > 0 && values[0] != "" {
				value = values[0]
			}
			values = values[min(1, len(values)):]
			return url.PathEscape(a.names.Replace(value))
		})
		text := fill(string(body))
		target := &url.URL{Path: path}
		if unescaped, err := url.PathUnescape(path); err == nil {
			target.Path, target.RawPath = unescaped, path
		}
		target.RawQuery = query
		r := &http.Request{Method: op.Method, URL: target, Header: http.Header{}, Body: http.NoBody, Proto: "HTTP/1.1",
			ProtoMajor: 1, ProtoMinor: 1, Host: "localhost"}
		for line := range strings.Lines(fill(headers)) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			r.Header.Add(name, strings.TrimSpace(value))
		}
		if text != "" {
			r.ContentLength, r.Body = int64(len(text)), nopCloser{strings.NewReader(text)}
		}
		sees(t, sender, strings.Join([]string{params, path, query, headers, string(body)}, "\n"), a.serve(t, sender, r))
	})
}

type nopCloser struct{ *strings.Reader }

func (nopCloser) Close() error { return nil }

// fill returns a function that replaces the placeholders of a text.
func (f *fuzzed) fill(n uint16) func(string) string {
	return func(text string) string {
		if strings.Contains(text, `"NEST"`) {
			opening, closing := "[", "]"
			if n%2 == 1 {
				opening, closing = `{"a":`, "}"
			}
			nested := strings.Repeat(opening, int(n)) + "1" + strings.Repeat(closing, int(n))
			text = strings.Replace(text, `"NEST"`, nested, 1)
		}
		text = strings.Replace(text, "FILL", strings.Repeat("x", int(n)), 1)
		return f.names.Replace(text)
	}
}

// defaults are the parameters of paths that a request does not give.
var defaults = map[string]string{"{queue}": "mail", "{topic}": "news", "{token}": "TOKENmail", "{id}": "mail-later",
	"{group}": "mail-group", "{schedule}": foreign + "mail", "{operation}": "none", "{name}": "none"}

// seed is the part of a request that a route does not say.
type seed struct {
	params, query, headers string
	body                   []byte
	n                      uint16
}

// hostile are texts for every place that takes text.
var hostile = []string{"", ".", "..", "a/b", "a\x00b", "a\r\nLater-Id: x", "\xff\xfe", "\xed\xa0\x80", "%2e%2e", "{a}",
	"schedules:", "topic:" + foreign, foreign, "FILL", "-1", "1e999", "9223372036854775808", "NaN", "null",
	"0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999+23:59", "-0.0000001d", "106751d24h",
	"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "18446744073709551615:x", "9.AA", "9.!", "a[*][*]=1", "a['", "!=", "*=1"}

// hostileJSON are bodies for every route that takes JSON.
var hostileJSON = []string{``, `null`, `[]`, `{}`, `{`, `"NEST"`, `{"payload":"NEST"}`, `{"a":1,"a":2}`,
	`{"payload":"\ud800"}`, "{\"payload\":\"\xff\"}", "\ufeff{}", `{} x`, `{/**/}`, `{"payload":NaN}`, `{"payload":1e999}`,
	`{"payload":123456789012345678901234567890}`, `{"id":"a\u0000"}`, `{"id":"..","payload":"FILL"}`,
	`{"headers":{"\n":"\u0000"}}`, `{"in":"FILL"}`, `{"max":1e3}`, `{"messages":["NEST"]}`, `{"messages":null}`,
	`{"__proto__":{}}`}

// usual are bodies that routes take, by operationId.
var usual = map[string]string{
	"sendMessage":      `{"payload":{"a":["NEST"]},"in":"1h","id":"x","headers":{"k":"v"},"group":"g"}`,
	"publishMessage":   `{"payload":"FILL","at":"2100-01-01T00:00:00Z","max_attempts":3,"timeout":"1s"}`,
	"sendMessages":     `{"messages":[{"payload":1},{"id":"x","on_duplicate":"debounce","wait":"1s","max_wait":"2s"}]}`,
	"publishMessages":  `{"messages":[{"payload_base64":"AAEC"}]}`,
	"receiveMessages":  `{"max":10,"lease":"10ms","wait":"1ms"}`,
	"ackLease":         `{"then":[{"queue":"mail","payload":"x"},{"queue":"topic:news"}]}`,
	"nackLease":        `{"delay":"1h","reason":"FILL"}`,
	"extendLease":      `{"lease":"1h"}`,
	"editMessage":      `{"at":"2100-01-01T00:00:00Z","headers":{"a":"b"},"payload":"x"}`,
	"startBulkChange":  `{"filter":{"state":"scheduled","json":"a[*].b >= 1"},"action":"shift","by":"-1h"}`,
	"setDeadRetention": `{"max_count":1}`,
	"setFlow":          `{"concurrency":3,"rate":{"n":10,"per":"1s","burst":2}}`,
	"setShards":        `{"shards":3}`,
	"purgeQueue":       `{"states":["dead"]}`,
	"sendSeries":       `{"id":"s","until":"2100-01-01T00:00:00Z","offsets":["-1h","0s"]}`,
	"moveSeries":       `{"until":"2100-01-01T00:00:00Z"}`,
	"putSchedule":      `{"queue":"mail","cron":"*/5 * * * *","time_zone":"Europe/Berlin","payload":{"a":1}}`,
	"applySchedules":   `{"set":"s","schedules":[{"name":"a","queue":"mail","every":"1h"}]}`,
	"backfillSchedule": `{"from":"2026-01-01T00:00:00Z","to":"2026-01-03T00:00:00Z"}`,
	"configureTopic":   `{"history_count":10,"drop_unsubscribed":true}`,
	"putSubscription":  `{"where":"a=b, c in (d, \"e\"), !f"}`,
	"rewindTopic":      `{"queue":"mail","last":5}`,
	"importMessages": `{"later_export":2,"time":"2026-01-01T00:00:00Z","queues":["mail"]}` + "\n" +
		`{"queue":"mail","id":"i","state":"ready","due":"2026-01-01T00:00:00Z","payload":"NEST"}` + "\n",
	"settleLeases": `{"messages":[{"token":"TOKENmail","action":"ack"},` +
		`{"token":"TOKEN` + foreign + `","action":"bury"}]}`,
	"previewRuns": `{"rrule":"FREQ=DAILY;BYHOUR=1,2","start":"2030-01-01T00:00:00Z",` +
		`"exclude":["2030-01-02/2030-01-05"]}`,
}

// seedsOf returns requests of an operation: a usual one, requests that name foreign queues, topics and schedules, and
// hostile requests with one odd part each.
func seedsOf(op *huma.Operation) []seed {
	types := []string{jsonType}
	if op.RequestBody != nil {
		for kind := range op.RequestBody.Content {
			if kind != jsonType {
				types = append(types, kind)
			}
		}
		if strings.HasSuffix(op.Path, "/batch") {
			types = append(types, linesType)
		}
	}
	body := []byte(usual[op.OperationID])
	all := []seed{{body: body}, {params: foreign, body: body}, {params: "TOKEN" + foreign, body: body}}
	for i, text := range hostile {
		if strings.Contains(op.Path, "{") && (i+len(op.Path))%3 == 0 { // the fuzzer finds the others
			all = append(all, seed{params: text, body: body, n: 130}, seed{params: "\n" + text, body: body, n: 130})
		}
		for j, p := range op.Parameters {
			if (i+j)%5 != 0 {
				continue
			}
			switch p.In {
			case "query":
				all = append(all, seed{query: p.Name + "=" + url.QueryEscape(text), body: body})
			case "header":
				for _, kind := range types {
					all = append(all, seed{headers: p.Name + ": " + text + "\nContent-Type: " + kind, body: body, n: 130})
				}
			}
		}
	}
	if op.RequestBody == nil {
		return append(all, seed{body: []byte("{")})
	}
	for i, text := range hostileJSON {
		for _, kind := range types {
			all = append(all, seed{headers: "Content-Type: " + kind, body: []byte(text), n: []uint16{63, 64, 65, 9999}[i%4]})
		}
	}
	types = append(types, formType, "application/problem+json", "text/plain; charset=utf-16", "x", "a/b;;=\x00")
	for _, kind := range types {
		all = append(all, seed{headers: "Content-Type: " + kind, body: bytes.ReplaceAll(body, []byte(","), []byte(" ,\t"))})
	}
	return all
}

// FuzzRequest is FuzzRoutes for any method and path.
func FuzzRequest(f *testing.F) {
	for _, c := range badRequests {
		f.Add(c.method, c.path, c.contentType, c.body)
	}
	for _, path := range []string{"", "/", "//", "/v1", "/v1/queues/mail/../x", "/v1/queues/%2e%2e/messages",
		"/v1/queues/a%2fb", "/v1/queues/%00", "/v1/queues/%c0%ae", "/v1//queues", "/V1/queues", "/v1/queues/",
		"/v1/queues;x", "/v1/queues?;", "*", "/v1/queues/mail?%zz", "/v1/openapi.json",
		"/v1/queues/mail%2Fmessages", "/%76%31/queues"} {
		for _, method := range []string{"GET", "DELETE", "HEAD", "OPTIONS", "TRACE", "get", "X"} {
			f.Add(method, path, "", "")
		}
	}
	a := newFuzzed(f)
	f.Fuzz(func(t *testing.T, method, path, contentType, body string) {
		r, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
		if err != nil {
			return
		}
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		who := senders[len(path+body)%len(senders)]
		sees(t, who, path+body, a.serve(t, who, r))
	})
}
