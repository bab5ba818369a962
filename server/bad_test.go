package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/recurrence"
)

// badRequests are requests that are refused, with the whole of their problems but for type and title.
var badRequests = []struct {
	method, path, body, contentType string
	status                          int
	want                            string
}{
	{"POST", mail, `{`, "", 400,
		`"code":"invalid","detail":"body: text is not one JSON object: unexpected end of JSON input at byte 1",` +
			`"field":"body"`},
	{"POST", mail, ``, "", 400,
		`"code":"invalid","detail":"body: text is not one JSON object: unexpected end of JSON input at byte 0",` +
			`"field":"body"`},
	{"POST", mail, `[]`, "", 400,
		`"code":"invalid","detail":"body: text is not a JSON object but a list","field":"body"`},
	{"POST", mail, `{"payload": "x", "in": "soon"}`, "", 400,
		`"code":"invalid","detail":"in: give a duration such as 500ms, 30s, 1h30m or 2d12h: the units are ms, s, m, h and ` +
			`d, and the limit is 36500d","field":"in"`},
	{"POST", mail, `{"payload": "x", "in": "1h", "\u0069n": "2h"}`, "", 400,
		`"code":"invalid","detail":"field \"in\" is given twice: give it once","field":"in"`},
	{"POST", mail + "/batch", `{"messages": [{"headers": {"a": "1", "a": "2"}}]}`, "", 400,
		`"code":"invalid","detail":"messages[0]: field \"headers\" has \"a\" twice: give it once",` +
			`"field":"messages[0].headers"`},
	{"POST", "/v1/queues/mail/receive", `{"max": 1}`, "text/plain", 415,
		`"code":"invalid","detail":"header.Content-Type: is \"text/plain\": must be application/json",` +
			`"field":"header.Content-Type"`},
	{"POST", "/v1/queues/mail/receive", `{"max": 1, "MAX": 1000000}`, "", 400,
		`"code":"invalid","detail":"field \"MAX\" is unknown: did you mean max?","field":"MAX"`},
	{"POST", mail, `{"payload": "x", "ID": "a"}`, "", 400,
		`"code":"invalid","detail":"field \"ID\" is unknown: did you mean id?","field":"ID"`},
	{"POST", mail, `{"max_attempts": 1e999}`, "", 400,
		`"code":"invalid","detail":"field \"max_attempts\" is 1e999: must be a whole number of 1 to 65535",` +
			`"field":"max_attempts"`},
	{"POST", mail, `{"payload": "x", "in": ""}`, "", 400,
		`"code":"invalid","detail":"field \"in\" is empty: give a value, or leave it out","field":"in"`},
	{"POST", mail, `{"payload": "x", "id": ""}`, "", 400,
		`"code":"invalid","detail":"field \"id\" is empty: give a value, or leave it out","field":"id"`},
	{"POST", mail, `{"payload": "x", "dedup_window": "1h"}`, "", 400,
		`"code":"invalid","detail":"dedup window is 1h0m0s and there is no id: give the id that repeated sends share, or ` +
			`leave the window out","field":"dedup_window"`},
	{"POST", mail, `{"payload": "x", "expire_at": "0001-01-01T00:00:00Z"}`, "", 400,
		`"code":"invalid","detail":"field \"expire_at\" is \"0001-01-01T00:00:00Z\": must be a time after 1970",` +
			`"field":"expire_at"`},
	{"POST", mail, `{"payload": "x", "in": "1h", "at": "2100-01-01T00:00:00Z"}`, "", 400,
		`"code":"invalid","detail":"in and at are both given: give one of them","field":"in"`},
	{"POST", mail, `{"payload": "x", "at": "tomorrow"}`, "", 400,
		`"code":"invalid","detail":"field \"at\": \"tomorrow\" is no time: give one such as 2030-12-31T15:04:05Z",` +
			`"field":"at"`},
	{"POST", mail, `{"payload": "x", "at": "1969-01-01T00:00:00Z"}`, "", 400,
		`"code":"invalid","detail":"due time is 1969-01-01T00:00:00Z: give a time from 1970 to 2199","field":"at"`},
	{"POST", mail, `{"paylaod": "x"}`, "", 400,
		`"code":"invalid","detail":"field \"paylaod\" is unknown: did you mean payload?","field":"paylaod"`},
	{"POST", mail, `{"payload": "x", "max_attempts": 0}`, "", 400,
		`"code":"invalid","detail":"field \"max_attempts\" is 0: must be a whole number of 1 to 65535",` +
			`"field":"max_attempts"`},
	{"POST", mail, `{"payload": "x", "max_attempts": 70000}`, "", 400,
		`"code":"invalid","detail":"field \"max_attempts\" is 70000: must be a whole number of 1 to 65535",` +
			`"field":"max_attempts"`},
	{"POST", mail, `{"payload": "x", "max_attempts": "3"}`, "", 400,
		`"code":"invalid","detail":"field \"max_attempts\" is a text: must be a whole number","field":"max_attempts"`},
	{"POST", mail, `{"payload": "x", "payload_base64": "eA=="}`, "", 400,
		`"code":"invalid","detail":"payload is given in several forms: give one of payload, payload_text and ` +
			`payload_base64","field":"payload"`},
	{"POST", mail, `{"payload_text": 1}`, "", 400,
		`"code":"invalid","detail":"field \"payload_text\" is a number: must be a text, in quotes","field":"payload_text"`},
	{"POST", mail, `{"payload": 1, "headers": {"content-type": "text/plain"}}`, "", 400,
		`"code":"invalid","detail":"payload is JSON, and the header content-type is \"text/plain\": give payload_text or ` +
			`payload_base64","field":"payload"`},
	{"POST", mail, `{"payload": ` + strings.Repeat("[", 61) + strings.Repeat("]", 61) + `}`, "", 400,
		`"code":"invalid","detail":"payload: JSON is nested more than 60 deep at byte 61: the limit is 60; send a payload ` +
			`that is nested deeper as payload_text","field":"payload"`},
	{"POST", mail, `{"payload_base64": "no base64!"}`, "", 400,
		`"code":"invalid","detail":"field \"payload_base64\" is not in base64: must be in the standard encoding with ` +
			`padding","field":"payload_base64"`},
	{"POST", mail, `{"payload_base64": "abc"}`, "", 400,
		`"code":"invalid","detail":"field \"payload_base64\" is not in base64: must be in the standard encoding with ` +
			`padding","field":"payload_base64"`},
	{"POST", mail + "/batch", `{"messages": [{"payload": {"payload_base64": "-"}}, {"payload_base64": "_-8="}]}`, "", 400,
		`"code":"invalid","detail":"messages[1]: field \"payload_base64\" is not in base64: must be in the standard ` +
			`encoding with padding","field":"messages[1].payload_base64"`},
	{"PUT", "/v1/schedules/weekly", `{"queue": "mail", "every": "168h", "payload_base64": "abc"}`, "", 400,
		`"code":"invalid","detail":"field \"payload_base64\" is not in base64: must be in the standard encoding with ` +
			`padding","field":"payload_base64"`},
	{"POST", mail, `{"max_attempts": 1e0}`, "", 400,
		`"code":"invalid","detail":"field \"max_attempts\" is 1e0: must be a whole number of 1 to 65535",` +
			`"field":"max_attempts"`},
	{"POST", mail + "/batch", `{"messages": [{"max_attempts": 2}, {"payload": 2.0, "max_attempts": 2.0}]}`, "", 400,
		`"code":"invalid","detail":"messages[1]: field \"max_attempts\" is 2.0: must be a whole number of 1 to 65535",` +
			`"field":"messages[1].max_attempts"`},
	{"POST", "/v1/queues/mail/receive", `{"max": 1.0}`, "", 400,
		`"code":"invalid","detail":"field \"max\" is 1.0: must be a whole number of 1 to 500","field":"max"`},
	{"PUT", "/v1/queues/mail/dead-retention", `{"max_count": 99999999999999999999}`, "", 400,
		`"code":"invalid","detail":"field \"max_count\" is 99999999999999999999: must be a whole number of 0 to ` +
			`9223372036854775807","field":"max_count"`},
	{"POST", mail, `{"payload": "\ud800"}`, "", 400,
		`"code":"invalid","detail":"body: text has half of a surrogate pair, such as \\ud800, which is not a character: ` +
			`give bytes that are not text in base64","field":"body"`},
	{"POST", mail, `{"payload": "x", "id": ".."}`, "", 400,
		`"code":"invalid","detail":"id is \"..\", which URLs cannot have in their paths: give another one","field":"id"`},
	{"POST", mail, `{"payload": "x", "group": "."}`, "", 400,
		`"code":"invalid","detail":"group is \".\", which URLs cannot have in their paths: give another one",` +
			`"field":"group"`},
	{"POST", mail, `{"payload": "x", "key": "a/b"}`, "", 400,
		`"code":"invalid","detail":"key \"a/b\" holds a slash: leave it out, or write another character, such as :",` +
			`"field":"key"`},
	{"POST", mail, `{"payload": "x", "key": "` + strings.Repeat("ä", 33) + `"}`, "", 400,
		`"code":"invalid","detail":"key is 66 bytes long: the limit is 64; give a shorter one, such as its hash",` +
			`"field":"key"`},
	{"POST", mail, `{"payload": "x", "key": ""}`, "", 400,
		`"code":"invalid","detail":"field \"key\" is empty: give a value, or leave it out","field":"key"`},
	{"POST", mail, `{"payload": "x", "id": "taken"}`, "", 409,
		`"code":"duplicate","detail":"id \"taken\" is already in queue \"mail\": duplicate id"`},
	{"POST", mail, `{"payload": "x", "id": "a\u0000"}`, "", 400,
		`"code":"invalid","detail":"id \"a\\x00\" holds a control character: leave it out","field":"id"`},
	{"POST", mail, `{"payload": "x", "on_duplicate": "replace"}`, "", 400,
		`"code":"invalid","detail":"mode for duplicates is replace and there is no id: give the id that sends share",` +
			`"field":"on_duplicate"`},
	{"POST", mail, `{"payload": "x", "id": "a", "on_duplicate": "debounce"}`, "", 400,
		`"code":"invalid","detail":"wait: a debounce needs wait and max_wait: give both, such as 2s and 30s","field":"wait"`},
	{"POST", mail, `{"payload": "x", "wait": "1s"}`, "", 400,
		`"code":"invalid","detail":"wait and max_wait are for on_duplicate debounce: omit them","field":"wait"`},
	{"POST", mail, `{"payload": "x", "timeout": "0s"}`, "", 400,
		`"code":"invalid","detail":"field \"timeout\" is 0: must be more, or left out","field":"timeout"`},
	{"POST", mail, `{"payload": "x", "timeout": "25h"}`, "", 400,
		`"code":"invalid","detail":"timeout is 25h0m0s: must be 0 (none) to 24h0m0s","field":"timeout"`},
	{"POST", mail, `{"payload": "x", "headers": {"": "x"}}`, "", 400,
		`"code":"invalid","detail":"header name is empty","field":"headers"`},
	{"POST", mail, `{"payload": "x", "headers": {"a": 1}}`, "", 400,
		`"code":"invalid","detail":"field \"headers\" has a number under \"a\": must be an object of texts",` +
			`"field":"headers"`},
	{"POST", mail, `{"payload": "x", "at": "2030-01-01T00:00:00Z", "expire_at": "2001-01-01T00:00:00Z"}`, "", 400,
		`"code":"invalid","detail":"expiry at 2001-01-01T00:00:00Z is before the message is due, at 2030-01-01T00:00:00Z: ` +
			`give a later expiry, or an earlier due time","field":"expire_at"`},
	{"POST", mail, `{"payload": "x", "durable": {"replicas": 17}}`, "", 400,
		`"code":"invalid","detail":"field \"durable\": field \"replicas\" is 17: must be a whole number of 0 to 16",` +
			`"field":"durable.replicas"`},
	{"POST", mail + "/batch", `{"messages": []}`, "", 400,
		`"code":"invalid","detail":"field \"messages\" has 0 elements: must have at least 1","field":"messages"`},
	{"POST", mail + "/batch", `{"messages": [{"payload": "x"}, {"payload": "x", "in": "x"}]}`, "", 400,
		`"code":"invalid","detail":"messages[1]: in: give a duration such as 500ms, 30s, 1h30m or 2d12h: the units are ms, ` +
			`s, m, h and d, and the limit is 36500d","field":"messages[1].in"`},
	{"GET", mail + "?state=gone", ``, "", 400,
		`"code":"invalid","detail":"query.state: expected value to be one of \"scheduled, ready, leased, dead\"",` +
			`"field":"query.state"`},
	{"GET", mail + "?limit=501", ``, "", 400,
		`"code":"invalid","detail":"query.limit: expected number <= 500","field":"query.limit"`},
	{"GET", mail + "?limit=many", ``, "", 400,
		`"code":"invalid","detail":"query.limit: invalid integer","field":"query.limit"`},
	{"GET", mail + "?stat=dead", ``, "", 400,
		`"code":"invalid","detail":"query.stat: unknown query parameter","field":"query.stat"`},
	{"GET", mail + "?cursor=nonsense", ``, "", 400,
		`"code":"invalid","detail":"cursor \"nonsense\" is not from this store: give Page.Next of the previous page, or ` +
			`\"\" for the first","field":"query.cursor"`},
	{"GET", mail + "?limit=1&limit=2", ``, "", 400,
		`"code":"invalid","detail":"query.limit: is given twice: give it once","field":"query.limit"`},
	{"GET", mail + "?group=", ``, "", 400,
		`"code":"invalid","detail":"query.group: is empty: give a value, or omit it","field":"query.group"`},
	{"GET", mail + "?header=a%3D1&header=a%3D2", ``, "", 400,
		`"code":"invalid","detail":"query.header: sets \"a\" twice: give each name once","field":"query.header"`},
	{"GET", mail + "?json=total", ``, "", 400,
		`"code":"invalid","detail":"json: condition is \"total\": give a comparison such as order.total >= 100",` +
			`"field":"json"`},
	{"GET", mail + "?header=x", ``, "", 400,
		`"code":"invalid","detail":"query.header: is \"x\": give name=value","field":"query.header"`},
	{"GET", mail + "/none", ``, "", 404,
		`"code":"not_found","detail":"message \"none\" of queue \"mail\": not found"`},
	{"GET", mail + "/none/why", ``, "", 404,
		`"code":"not_found","detail":"message \"none\" of queue \"mail\": not found"`},
	{"GET", mail + "/taken/why?time_zone=Nowhere", ``, "", 400,
		`"code":"invalid","detail":"query.time_zone: \"Nowhere\" is no time zone: give one such as Europe/Berlin",` +
			`"field":"query.time_zone"`},
	{"PATCH", mail + "/taken", `{}`, "", 400,
		`"code":"invalid","detail":"body: changes nothing: give in, at, a payload or headers","field":"body"`},
	{"POST", mail + "/taken/replay", ``, "", 404,
		`"code":"not_found","detail":"no dead message \"taken\" in queue \"mail\": not found"`},
	{"PUT", mail, ``, "", 405,
		`"code":"invalid","detail":"PUT is no method of /v1/queues/mail/messages: use GET or POST"`},
	{"GET", "/v1/login", ``, "", 405,
		`"code":"invalid","detail":"GET is no method of /v1/login: use POST"`},
	{"POST", "/readyz", ``, "", 405,
		`"code":"invalid","detail":"POST is no method of /readyz: use GET"`},
	{"POST", "/v1/queues/mail/receive", `{"max": 501}`, "", 400,
		`"code":"invalid","detail":"field \"max\" is 501: must be a whole number of 1 to 500","field":"max"`},
	{"POST", "/v1/queues/mail/receive", `{"lease": "1ms"}`, "", 400,
		`"code":"invalid","detail":"lease is 1ms: must be 10ms to 24h0m0s","field":"lease"`},
	{"POST", "/v1/queues/mail/receive", `{"wait": "1h"}`, "", 400,
		`"code":"invalid","detail":"wait: is 1h0m0s: the limit is 5m0s","field":"wait"`},
	{"POST", "/v1/leases/nonsense/ack", ``, "", 400,
		`"code":"invalid","detail":"path.token: text is not a receipt: give one unchanged, as Delivery.Receipt returned ` +
			`it","field":"path.token"`},
	{"POST", "/v1/leases/settle", `{"messages": [{"token": "x", "action": "eat"}]}`, "", 400,
		`"code":"invalid","detail":"messages[0]: field \"action\" is \"eat\": must be one of ack, nack, snooze, bury, ` +
			`release, extend","field":"messages[0].action"`},
	{"GET", "/v1/queues/mail/horizon?from=2030-01-02T00:00:00Z&to=2030-01-01T00:00:00Z", ``, "", 400,
		`"code":"invalid","detail":"histogram from 2030-01-02T00:00:00Z to 2030-01-01T00:00:00Z has less than a ` +
			`millisecond for each bucket: give a longer range or fewer buckets"`},
	{"GET", "/v1/queues/mail/horizon", ``, "", 400,
		`"code":"invalid","detail":"query.from: required query parameter is missing; query.to: required query parameter is ` +
			`missing","field":"query.from"`},
	{"GET", "/v1/overview?from=2030-01-01T00:00:00Z", ``, "", 400,
		`"code":"invalid","detail":"query.from: from and to belong together: give both, or neither","field":"query.from"`},
	{"GET", "/v1/overview/watch?buckets=7", ``, "", 400,
		`"code":"invalid","detail":"query.buckets: buckets are parts of a range: give from and to, too",` +
			`"field":"query.buckets"`},
	{"GET", "/v1/overview?from=2030-01-02T00:00:00Z&to=2030-01-01T00:00:00Z", ``, "", 400,
		`"code":"invalid","detail":"query.from: histogram from 2030-01-02T00:00:00Z to 2030-01-01T00:00:00Z has less than ` +
			`a millisecond for each bucket: give a longer range or fewer buckets","field":"query.from"`},
	{"GET", "/v1/overview?queue=a%7B", ``, "", 400,
		`"code":"invalid","detail":"query.queue: queue name \"a{\" holds a brace: leave out { and }","field":"query.queue"`},
	{"GET", "/v1/queues/mail/dead-errors?look=0", ``, "", 400,
		`"code":"invalid","detail":"query.look: expected number >= 1","field":"query.look"`},
	{"GET", "/v1/queues/mail/dead-errors?cursor=nonsense", ``, "", 400,
		`"code":"invalid","detail":"cursor \"nonsense\" is invalid: give the one that the request before ended with, or ` +
			`none","field":"query.cursor"`},
	{"GET", "/v1/dead-errors?queue=a%7B", ``, "", 400,
		`"code":"invalid","detail":"query.queue: queue name \"a{\" holds a brace: leave out { and }","field":"query.queue"`},
	{"GET", "/v1/schedules/none/runs", ``, "", 404,
		`"code":"not_found","detail":"schedule \"none\": not found"`},
	{"GET", "/v1/schedules/daily/runs?limit=501", ``, "", 400,
		`"code":"invalid","detail":"query.limit: expected number <= 500","field":"query.limit"`},
	{"GET", "/v1/schedules/daily/runs?from=2030-01-02T00:00:00Z&to=2030-01-01T00:00:00Z", ``, "", 400,
		`"code":"invalid","detail":"query.to: is not later than from: give a later time, or omit it","field":"query.to"`},
	{"POST", "/v1/queues/mail/purge", `{}`, "", 400,
		`"code":"invalid","detail":"states: give states, or all","field":"states"`},
	{"GET", "/v1/changes?limit=1001", ``, "", 400,
		`"code":"invalid","detail":"query.limit: expected number <= 500","field":"query.limit"`},
	{"GET", "/v1/changes?cursor=0", ``, "", 400,
		`"code":"invalid","detail":"query.cursor: is \"0\": give the next of the page before","field":"query.cursor"`},
	{"PUT", "/v1/queues/mail/dead-retention", `{"max_count": -1}`, "", 400,
		`"code":"invalid","detail":"field \"max_count\" is -1: must be a whole number of 0 to 9223372036854775807",` +
			`"field":"max_count"`},
	{"PUT", "/v1/queues/mail/flow", `{"concurrency": -1}`, "", 400,
		`"code":"invalid","detail":"field \"concurrency\" is -1: must be a whole number of 0 to 1000000",` +
			`"field":"concurrency"`},
	{"PUT", "/v1/queues/mail/flow", `{"rate": {"n": 10}}`, "", 400,
		`"code":"invalid","detail":"field \"rate\": field \"per\" is missing: give it","field":"rate.per"`},
	{"PUT", "/v1/queues/mail/flow", `{"rate": {"per": "1s"}}`, "", 400,
		`"code":"invalid","detail":"field \"rate\": field \"n\" is missing: give it","field":"rate.n"`},
	{"PUT", "/v1/queues/mail/flow", `{"rate": {"n": 0, "per": "1s"}}`, "", 400,
		`"code":"invalid","detail":"field \"rate\": field \"n\" is 0: must be a whole number of 1 to 1000000",` +
			`"field":"rate.n"`},
	{"PUT", "/v1/queues/mail/flow", `{"rate": {"n": 1000001, "per": "1h"}}`, "", 400,
		`"code":"invalid","detail":"field \"rate\": field \"n\" is 1000001: must be a whole number of 1 to 1000000",` +
			`"field":"rate.n"`},
	{"PUT", "/v1/queues/mail/flow", `{"rate": {"n": 10, "per": "9us"}}`, "", 400,
		`"code":"invalid","detail":"period of the rate is 9µs: must be 10µs, which is 1µs a message, to 8784h0m0s",` +
			`"field":"rate.per"`},
	{"PUT", "/v1/queues/mail/flow", `{"rate": {"n": 10, "per": "soon"}}`, "", 400,
		`"code":"invalid","detail":"field \"rate\": field \"per\": \"soon\" is no duration: give one such as 90s, 15m or ` +
			`1h30m","field":"rate.per"`},
	{"PUT", "/v1/queues/mail/flow", `{"rate": "10/1s"}`, "", 400,
		`"code":"invalid","detail":"field \"rate\": text is not a JSON object but a text","field":"rate"`},
	{"PUT", "/v1/queues/mail/flow", `{"key": {"weight": 1001}}`, "", 400,
		`"code":"invalid","detail":"field \"key\": field \"weight\" is 1001: must be a whole number of 0 to 1000",` +
			`"field":"key.weight"`},
	{"PUT", "/v1/queues/mail/flow", `{"key": {"rate": {"n": 10, "per": "9us"}}}`, "", 400,
		`"code":"invalid","detail":"period of the rate is 9µs: must be 10µs, which is 1µs a message, to 8784h0m0s",` +
			`"field":"key.rate.per"`},
	{"PUT", "/v1/queues/mail/shards", `{"shards": 0}`, "", 400,
		`"code":"invalid","detail":"field \"shards\" is 0: must be a whole number of 1 to 64","field":"shards"`},
	{"PUT", "/v1/queues/mail/shards", `{"shards": 65}`, "", 400,
		`"code":"invalid","detail":"field \"shards\" is 65: must be a whole number of 1 to 64","field":"shards"`},
	{"PUT", "/v1/queues/mail/shards", `{"shards": "3"}`, "", 400,
		`"code":"invalid","detail":"field \"shards\" is a text: must be a whole number","field":"shards"`},
	{"PUT", "/v1/queues/mail/shards", `{}`, "", 400,
		`"code":"invalid","detail":"field \"shards\" is missing: give it","field":"shards"`},
	{"PUT", "/v1/queues/topic:news/shards", `{"shards": 2}`, "", 400,
		`"code":"invalid","detail":"queue \"topic:news\" is one of Later's own, which have one shard",` +
			`"field":"path.queue"`},
	{"PUT", "/v1/queues/topic:news/flow", `{"concurrency": 1}`, "", 400,
		`"code":"invalid","detail":"queue \"topic:news\" is one of Later's own, which have no limits: give another queue",` +
			`"field":"path.queue"`},
	{"GET", "/v1/queues/" + strings.Repeat("x", 129), ``, "", 400,
		`"code":"invalid","detail":"path.queue: expected length <= 128","field":"path.queue"`},
	{"GET", "/v2/queues", ``, "", 404,
		`"code":"not_found","detail":"no route /v2/queues: /v1/openapi.json lists them: not found"`},
}

func TestBadRequestsAreAnsweredExactly(t *testing.T) {
	a := newAPI(t)
	if _, err := a.client.Queue("mail").Send(t.Context(), nil, later.WithID("taken")); err != nil {
		t.Fatal(err)
	}
	daily := later.Schedule{Name: "daily", Queue: "mail", When: recurrence.Spec{Cron: "@daily"}}
	if _, err := a.client.Schedules().Put(t.Context(), daily); err != nil {
		t.Fatal(err)
	}
	for _, c := range badRequests {
		var headers []string
		if c.contentType != "" {
			headers = []string{"Content-Type", c.contentType}
		}
		got := a.do(c.method, c.path, c.body, headers...)
		_, code, _ := strings.Cut(c.want, `"code":"`)
		code, _, _ = strings.Cut(code, `"`)
		want := fmt.Sprintf(`{"type":%q,"title":%q,"status":%d,%s}`, problem.TypePrefix+code, http.StatusText(c.status),
			c.status, c.want)
		if strings.TrimSpace(got.body) != want || got.status != c.status {
			t.Errorf("%s %s %.100s\n got %d %s\nwant %d %s", c.method, c.path, c.body, got.status, got.body, c.status, want)
		}
	}
}
