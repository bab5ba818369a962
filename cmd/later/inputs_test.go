package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/server"
	"github.com/laterq/later/store"
)

// sendInputs are the inputs of one send on each face: options in Go, flags of later send, fields of JSON, and headers
// of a request with a raw payload. A face that cannot express an input has none. All faces must answer with the same
// code.
var sendInputs = []struct {
	name  string
	code  store.Code // "" if it is sent
	opts  []later.SendOption
	flags string
	json  string // the fields after the payload
	raw   []string
}{
	{"nothing", "", []later.SendOption{}, " ", " ", []string{}},
	{"negative delay", "", []later.SendOption{later.In(-time.Minute)}, "--in -1m", `"in": "-1m"`,
		[]string{"Later-In: -1m"}},
	{"zero delay", "", []later.SendOption{later.In(0)}, "--in 0s", `"in": "0s"`, []string{"Later-In: 0s"}},
	{"delay above the limit", "invalid", []later.SendOption{later.In(store.MaxDelay + 1)}, "--in 36500d1ms",
		`"in": "36500d1ms"`, []string{"Later-In: 36500d1ms"}},
	{"empty delay", "invalid", nil, "--in=", `"in": ""`, []string{"Later-In: "}},
	{"delay twice", "invalid", []later.SendOption{later.In(1), later.In(1)}, "--in 1s --in 1s",
		`"in": "1s", "in": "1s"`, []string{"Later-In: 1s", "Later-In: 1s"}},
	{"delay and time", "invalid", []later.SendOption{later.In(1), later.At(time.Now())},
		"--in 1s --at 12:00", `"in": "1s", "at": "2100-01-01T00:00:00Z"`,
		[]string{"Later-In: 1s", "Later-At: 2100-01-01T00:00:00Z"}},
	{"time zero", "invalid", []later.SendOption{later.At(time.Time{})}, "--at 0001-01-01T00:00:00Z",
		`"at": "0001-01-01T00:00:00Z"`, []string{"Later-At: 0001-01-01T00:00:00Z"}},
	{"id", "", []later.SendOption{later.WithID("a")}, "--id a", `"id": "a"`, []string{"Later-Id: a"}},
	{"id empty", "invalid", []later.SendOption{later.WithID("")}, "--id=", `"id": ""`, []string{"Later-Id: "}},
	{"id twice", "invalid", []later.SendOption{later.WithID("b"), later.WithID("b")}, "--id b --id b",
		`"id": "b", "id": "b"`, []string{"Later-Id: b", "Later-Id: b"}},
	{"id too long", "invalid", []later.SendOption{later.WithID(strings.Repeat("x", 129))},
		"--id " + strings.Repeat("x", 129), `"id": "` + strings.Repeat("x", 129) + `"`,
		[]string{"Later-Id: " + strings.Repeat("x", 129)}},
	{"dedup window without id", "invalid", []later.SendOption{later.DedupWindow(time.Hour)}, "--dedup-window 1h",
		`"dedup_window": "1h"`, []string{"Later-Dedup-Window: 1h"}},
	{"dedup window", "", []later.SendOption{later.DedupWindow(time.Hour), later.WithID("c")},
		"--dedup-window 1h --id c",
		`"dedup_window": "1h", "id": "c"`, []string{"Later-Dedup-Window: 1h", "Later-Id: c"}},
	{"dedup window 0", "invalid", []later.SendOption{later.DedupWindow(0), later.WithID("d")},
		"--dedup-window 0s --id d",
		`"dedup_window": "0s", "id": "d"`, []string{"Later-Dedup-Window: 0s", "Later-Id: d"}},
	{"dedup window negative", "invalid", []later.SendOption{later.DedupWindow(-1), later.WithID("d")},
		"--dedup-window -1s --id d", `"dedup_window": "-1s", "id": "d"`,
		[]string{"Later-Dedup-Window: -1s", "Later-Id: d"}},
	{"dedup window empty", "invalid", nil,
		"--dedup-window= --id d", `"dedup_window": "", "id": "d"`, []string{"Later-Dedup-Window: ", "Later-Id: d"}},
	{"timeout 0", "invalid", []later.SendOption{later.Timeout(0)}, "--timeout 0s", `"timeout": "0s"`,
		[]string{"Later-Timeout: 0s"}},
	{"timeout negative", "invalid", []later.SendOption{later.Timeout(-1)}, "--timeout -1s", `"timeout": "-1s"`,
		[]string{"Later-Timeout: -1s"}},
	{"timeout above the limit", "invalid", []later.SendOption{later.Timeout(25 * time.Hour)}, "--timeout 25h",
		`"timeout": "25h"`, []string{"Later-Timeout: 25h"}},
	{"timeout twice", "invalid", []later.SendOption{later.Timeout(1), later.Timeout(1)}, "--timeout 1s --timeout 1s",
		`"timeout": "1s", "timeout": "1s"`, []string{"Later-Timeout: 1s", "Later-Timeout: 1s"}},
	{"max attempts 0", "invalid", []later.SendOption{later.MaxAttempts(0)}, "--max-attempts 0", `"max_attempts": 0`,
		[]string{"Later-Max-Attempts: 0"}},
	{"max attempts negative", "invalid", []later.SendOption{later.MaxAttempts(-1)}, "--max-attempts -1",
		`"max_attempts": -1`, []string{"Later-Max-Attempts: -1"}},
	{"max attempts above the limit", "invalid", []later.SendOption{later.MaxAttempts(65536)}, "--max-attempts 65536",
		`"max_attempts": 65536`, []string{"Later-Max-Attempts: 65536"}},
	{"max attempts twice", "invalid", []later.SendOption{later.MaxAttempts(1), later.MaxAttempts(1)},
		"--max-attempts 1 --max-attempts 1", `"max_attempts": 1, "max_attempts": 1`,
		[]string{"Later-Max-Attempts: 1", "Later-Max-Attempts: 1"}},
	{"expiry twice", "invalid", []later.SendOption{later.ExpireAfter(1), later.ExpireAt(time.Now().Add(time.Hour))},
		"--expire-after 1s --expire-at 2100-01-01T00:00:00Z",
		`"expire_after": "1s", "expire_at": "2100-01-01T00:00:00Z"`,
		[]string{"Later-Expire-After: 1s", "Later-Expire-At: 2100-01-01T00:00:00Z"}},
	{"expiry 0", "invalid", []later.SendOption{later.ExpireAfter(0)},
		"--expire-after 0s", `"expire_after": "0s"`, []string{"Later-Expire-After: 0s"}},
	{"expiry time zero", "invalid", []later.SendOption{later.ExpireAt(time.Time{})}, "--expire-at 0001-01-01T00:00:00Z",
		`"expire_at": "0001-01-01T00:00:00Z"`, []string{"Later-Expire-At: 0001-01-01T00:00:00Z"}},
	{"expiry before the due time", "invalid",
		[]later.SendOption{later.In(3 * time.Hour), later.ExpireAt(time.Now().Add(time.Hour))},
		"--in 3h --expire-at " + soon(), `"in": "3h", "expire_at": "` + soon() + `"`,
		[]string{"Later-In: 3h", "Later-Expire-At: " + soon()}},
	{"expiry in the past", "", []later.SendOption{later.ExpireAt(time.UnixMilli(1e12))},
		"--expire-at 2001-01-01T00:00:00Z", `"expire_at": "2001-01-01T00:00:00Z"`,
		[]string{"Later-Expire-At: 2001-01-01T00:00:00Z"}},
	{"header twice", "invalid", []later.SendOption{later.Header("a", "1"), later.Header("a", "1")},
		"--header a=1 --header a=1", `"headers": {"a": "1", "a": "1"}`,
		[]string{"Later-Header-A: 1", "Later-Header-A: 1"}},
	{"header without a name", "invalid", []later.SendOption{later.Header("", "1")}, "--header =1",
		`"headers": {"": "1"}`, []string{"Later-Header-: 1"}},
	{"headers above the limit", "too_large", []later.SendOption{later.Header("a", strings.Repeat("x", 16<<10))},
		"--header a=" + strings.Repeat("x", 16<<10), `"headers": {"a": "` + strings.Repeat("x", 16<<10) + `"}`,
		[]string{"Later-Header-A: " + strings.Repeat("x", 16<<10)}},
	{"group empty", "invalid", []later.SendOption{later.Group("")}, "--group=", `"group": ""`,
		[]string{"Later-Group: "}},
	{"group twice", "invalid", []later.SendOption{later.Group("g"), later.Group("g")}, "--group g --group g",
		`"group": "g", "group": "g"`, []string{"Later-Group: g", "Later-Group: g"}},
	{"group too long", "invalid", []later.SendOption{later.Group(strings.Repeat("g", 129))},
		"--group " + strings.Repeat("g", 129), `"group": "` + strings.Repeat("g", 129) + `"`,
		[]string{"Later-Group: " + strings.Repeat("g", 129)}},
	{"keep without id", "", []later.SendOption{later.OnDuplicate(later.Keep())}, "--on-duplicate keep",
		`"on_duplicate": "keep"`, []string{"Later-On-Duplicate: keep"}},
	{"replace without id", "invalid", []later.SendOption{later.OnDuplicate(later.Replace())}, "--on-duplicate replace",
		`"on_duplicate": "replace"`, []string{"Later-On-Duplicate: replace"}},
	{"mode twice", "invalid",
		[]later.SendOption{later.WithID("e"), later.OnDuplicate(later.Keep()), later.OnDuplicate(later.Keep())},
		"--id e --on-duplicate keep --on-duplicate keep", `"id": "e", "on_duplicate": "keep", "on_duplicate": "keep"`,
		[]string{"Later-Id: e", "Later-On-Duplicate: keep", "Later-On-Duplicate: keep"}},
	{"mode unknown", "invalid", nil, "--id e --on-duplicate drop", `"id": "e", "on_duplicate": "drop"`,
		[]string{"Later-Id: e", "Later-On-Duplicate: drop"}},
	{"mode empty", "invalid", nil, "--id e --on-duplicate=", `"id": "e", "on_duplicate": ""`,
		[]string{"Later-Id: e", "Later-On-Duplicate: "}},
	{"debounce with a due time", "invalid",
		[]later.SendOption{later.WithID("e"), later.OnDuplicate(later.Debounce(time.Second, time.Minute)), later.In(1)},
		"--id e --on-duplicate debounce --wait 1s --max-wait 1m --in 1s",
		`"id": "e", "on_duplicate": "debounce", "wait": "1s", "max_wait": "1m", "in": "1s"`,
		[]string{"Later-Id: e", "Later-On-Duplicate: debounce", "Later-Wait: 1s", "Later-Max-Wait: 1m",
			"Later-In: 1s"}},
	{"debounce that waits longer than at most", "invalid",
		[]later.SendOption{later.WithID("e"), later.OnDuplicate(later.Debounce(time.Minute, time.Second))},
		"--id e --on-duplicate debounce --wait 1m --max-wait 1s",
		`"id": "e", "on_duplicate": "debounce", "wait": "1m", "max_wait": "1s"`,
		[]string{"Later-Id: e", "Later-On-Duplicate: debounce", "Later-Wait: 1m", "Later-Max-Wait: 1s"}},
	{"debounce that does not wait", "invalid",
		[]later.SendOption{later.WithID("e"), later.OnDuplicate(later.Debounce(0, time.Second))},
		"--id e --on-duplicate debounce --wait 0s --max-wait 1s",
		`"id": "e", "on_duplicate": "debounce", "wait": "0s", "max_wait": "1s"`,
		[]string{"Later-Id: e", "Later-On-Duplicate: debounce", "Later-Wait: 0s", "Later-Max-Wait: 1s"}},
	{"wait without debounce", "invalid", nil, "--id e --wait 1s", `"id": "e", "wait": "1s"`,
		[]string{"Later-Id: e", "Later-Wait: 1s"}},
	{"durability above the limit", "invalid", []later.SendOption{later.Durable(17, time.Second)}, "--durable 17,1s",
		`"durable": {"replicas": 17, "timeout": "1s"}`, nil},
	{"durability's timeout 0", "invalid", []later.SendOption{later.Durable(1, 0)}, "--durable 1,0s",
		`"durable": {"replicas": 1, "timeout": "0s"}`, nil},
	{"durability twice", "invalid", []later.SendOption{later.Durable(0, 1), later.Durable(0, 1)},
		"--durable 0,1s --durable 0,1s", `"durable": {"replicas": 0}, "durable": {"replicas": 0}`, nil},
}

func soon() string { return time.Now().Add(time.Hour).UTC().Format(time.RFC3339) }

func TestEveryFaceAnswersTheSameSendAlike(t *testing.T) {
	c := newCLI(t)
	client := c.client()
	s, err := server.New(client, server.Config{})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	defer func() { web.Close(); s.Close() }()
	type failed struct {
		Code   store.Code
		Detail string
	}
	post := func(path, contentType, body string, headers ...string) (code store.Code, detail string) {
		r, _ := http.NewRequestWithContext(t.Context(), "POST", web.URL+path, strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Add(name, value)
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			return "failed", err.Error()
		}
		defer reply.Body.Close()
		var all struct {
			Code    store.Code
			Detail  string
			Error   *failed
			Results []struct{ Error *failed }
		}
		if err := json.NewDecoder(reply.Body).Decode(&all); err != nil {
			t.Fatal(err)
		}
		for _, one := range all.Results {
			all.Error = one.Error
		}
		if all.Error != nil {
			return all.Error.Code, all.Error.Detail
		}
		return all.Code, all.Detail
	}
	for _, in := range sendInputs {
		check := func(face string, code store.Code, text string) {
			t.Helper()
			if code != in.code {
				t.Errorf("%s, %s: %q, want %q: %.300s", in.name, face, code, in.code, text)
			}
		}
		if in.opts != nil {
			_, err := client.Queue("go").Send(context.Background(), []byte("x"), in.opts...)
			check("Go", codeOf(err), text(err))
			f := later.Then("then", []byte("x"), in.opts...)
			_ = f
		}
		r := c.run(append([]string{"send", "cli", "x", "--json"}, strings.Fields(in.flags)...)...)
		var failed struct {
			Error struct {
				Code    store.Code
				Message string
			}
		}
		if r.exit != 0 {
			_ = json.Unmarshal([]byte(r.stderr), &failed)
		}
		check("command", failed.Error.Code, failed.Error.Message)
		fields := `"payload": "x"`
		if strings.TrimSpace(in.json) != "" {
			fields += ", " + in.json
		}
		code, text := post("/v1/queues/json/messages", "application/json", "{"+fields+"}")
		check("JSON", code, text)
		code, text = post("/v1/queues/batch/messages/batch", "application/json", `{"messages": [{`+fields+"}]}")
		check("batch", code, text)
		code, text = post("/v1/queues/lines/messages/batch", "application/x-ndjson", "{"+fields+"}\n")
		check("lines", code, text)
		if in.raw != nil {
			code, text = post("/v1/queues/raw/messages", "text/plain", "x", in.raw...)
			check("headers", code, text)
		}
	}
}

func codeOf(err error) store.Code {
	if err == nil {
		return ""
	}
	return later.CodeOf(err)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
