package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const (
	// foreign is in the name of each queue, topic, schedule, id, payload and header that a limited sender may not see.
	// hushed is in the payloads, headers and error texts of the messages that every sender may see.
	foreign, hushed = "zqzq", "hyhy"

	// The costs in bytes of a request that do not depend on its size.
	maxReplyBase, maxHeapBase = 1 << 20, 64 << 20
)

// fuzzed is a server that receives the requests of a fuzzer. Its store has the same state before each request.
type fuzzed struct {
	server *Server
	client *later.Client
	store  store.Store                // with the shards of queues
	now    func() time.Time           // which stands still
	routes []*huma.Operation          // of the server itself, by operationId
	byPath map[string]*huma.Operation // by pattern of the mux

	names *strings.Replacer // of the names in requests, such as the token of a held message
	state map[string]string // of each queue, before a request
}

var topicOf = map[string]string{"mail": "news", foreign: foreign}

// senders are the identities that make the requests.
var senders = []access.Identity{
	{}, // without access control
	{Name: "r", Role: access.RoleRead, Queues: []string{"mail", "topic:news"}},
	{Name: "s", Role: access.RoleSend, Queues: []string{"mail", "topic:news"}},
	{Name: "w", Role: access.RoleWork, Queues: []string{"mail", "topic:news"}},
	{Name: "o", Role: access.RoleOperate, Queues: []string{"mail", "topic:news"}},
	{Name: "a", Role: access.RoleAdmin, Queues: []string{"mail", "topic:news"}},
	{Name: "h", Role: access.RoleRead, HidePayloads: true},
}

func newFuzzed(tb testing.TB) *fuzzed {
	clock := memstore.NewManualClock(time.Now())
	f := &fuzzed{now: clock.Now, byPath: map[string]*huma.Operation{}}
	var err error
	if f.client, err = later.New(memstore.New(memstore.WithClock(clock))); err != nil {
		tb.Fatal(err)
	}
	f.store = f.client.Store()
	if f.server, err = New(f.client, Config{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		f.server.Close()
		if err := f.client.Close(); err != nil {
			tb.Error(err)
		}
	})
	operationsOf(f.server.api.OpenAPI(), func(op *huma.Operation) {
		if op.Extensions["x-mounted"] == nil {
			f.routes = append(f.routes, op)
			f.byPath[op.Method+" "+op.Path] = op
		}
	})
	slices.SortFunc(f.routes, func(a, b *huma.Operation) int { return strings.Compare(a.OperationID, b.OperationID) })
	f.reset(tb)
	return f
}

// reset puts the store into the state that it has before each request.
func (f *fuzzed) reset(tb testing.TB) {
	ctx := context.Background()
	must := func(err error) {
		if err != nil {
			tb.Helper()
			tb.Fatal(err)
		}
	}
	for queue := range f.read(tb) {
		must(f.store.Delete(ctx, queue))
	}
	var names []string
	for name, topic := range topicOf {
		mark := hushed
		if name == foreign {
			mark = foreign
		}
		q := f.client.Queue(name)
		send := func(id, payload string, opts ...later.SendOption) {
			_, err := q.Send(ctx, []byte(payload), append(opts, later.WithID(name+id), later.Header("h", mark))...)
			must(err)
		}
		for _, id := range []string{"-held", "-dead"} {
			send(id, mark)
			got, err := q.Receive(ctx, 1, later.NoWait(), later.Lease(time.Hour))
			must(err)
			if id == "-dead" {
				must(got[0].Bury(ctx, fmt.Errorf("%s 1", mark)))
			} else {
				names = append(names, "TOKEN"+name, got[0].Receipt())
			}
		}
		send("-ready", `{"a": [{"b": 1}], "s": "`+mark+`"}`)
		send("-later", `[`+mark, later.In(time.Hour), later.Group(name+"-group"))
		_, err := q.SendSeries(ctx, []byte(mark), later.Series{Until: f.now().Add(time.Hour),
			Offsets: []time.Duration{-time.Minute}}, later.WithID(name+"-series"))
		must(err)
		t := f.client.Topic(topic)
		must(t.Configure(ctx, later.TopicConfig{HistoryAge: time.Hour}))
		must(t.Subscribe(ctx, name))
		_, err = t.Publish(ctx, []byte(mark))
		must(err)
		_, err = f.client.Schedules().Put(ctx, later.Schedule{Name: foreign + name, Queue: name, Payload: []byte(mark),
			When: recurrence.Spec{Cron: "@daily"}})
		must(err)
	}
	f.names = strings.NewReplacer(names...)
	f.state = f.read(tb)
}

// read returns the state of each queue.
func (f *fuzzed) read(tb testing.TB) map[string]string {
	ctx := context.Background()
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	names, _, err := f.store.Queues(ctx, "")
	must(err)
	state := make(map[string]string, len(names))
	for _, name := range names {
		if reserved.IsWorker(name) || name == reserved.Changes { // these lists change in the background
			continue
		}
		var all struct {
			Properties map[string]string
			Stats      store.Stats
			Messages   [4]store.Page
		}
		all.Properties, err = f.store.Properties(ctx, name)
		must(err)
		all.Stats, err = f.store.Stats(ctx, name)
		must(err)
		for i, s := range []store.State{store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead} {
			all.Messages[i], err = f.store.List(ctx, name, store.ListRequest{State: s, Limit: store.MaxBatch})
			must(err)
		}
		text, err := json.Marshal(&all)
		must(err)
		state[name] = string(text)
	}
	return state
}

// flushed receives a stream of events and ends it after its first part, because the stream itself never ends.
type flushed struct {
	*httptest.ResponseRecorder
	end context.CancelFunc
}

func (w flushed) Flush() {
	w.ResponseRecorder.Flush()
	if w.Header().Get("Content-Type") == eventsType {
		w.end()
	}
}

// answer answers a request, and reports whether the reply was cut, so that the client knows that it is not whole.
func (f *fuzzed) answer(w http.ResponseWriter, r *http.Request) (cut bool) {
	defer func() {
		switch reason := recover(); reason {
		case nil:
		case http.ErrAbortHandler:
			cut = true
		default:
			panic(reason)
		}
	}()
	f.server.ServeHTTP(w, r)
	return false
}

// serve makes a request and checks its reply and its effects.
func (f *fuzzed) serve(tb testing.TB, who access.Identity, r *http.Request) *httptest.ResponseRecorder {
	size := 0
	if r.ContentLength > 0 {
		size = int(r.ContentLength)
	}
	// Requests that wait, and the messages that they wait for, end soon.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	w := flushed{httptest.NewRecorder(), cancel}
	before := heap()
	if r = r.WithContext(ctx); who.Role != "" {
		r = r.WithContext(access.NewContext(ctx, who))
	}
	cut := f.answer(w, r)
	for _, op := range f.server.operations.all { // bulk changes go on after their requests
		<-op.finished
	}
	if grown := heap() - before; grown > uint64(maxHeapBase+64*size) {
		tb.Errorf("%d bytes were allocated for a request of %d", grown, size)
	}
	if text := f.wrong(r, w.ResponseRecorder, size); text != "" && !cut {
		tb.Errorf("%s %s: %s\n%d %.1000q", r.Method, r.URL, text, w.Code, w.Body)
	}
	after := f.read(tb)
	if maps.Equal(after, f.state) {
		return w.ResponseRecorder
	}
	// An import keeps the messages before the wrong line, and says so.
	if w.Code >= 400 && w.Code < 500 && !strings.Contains(w.Body.String(), "messages were imported") {
		tb.Errorf("%s %s was refused, and changed the store: %d %.1000q", r.Method, r.URL, w.Code, w.Body)
	}
	if who.Queues != nil && f.state[foreign] != after[foreign] {
		tb.Errorf("%s %s by %v changed the queue of others: %d %.1000q", r.Method, r.URL, who, w.Code, w.Body)
	}
	f.reset(tb)
	return w.ResponseRecorder
}

// heap returns how many bytes were ever allocated.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// wrong describes an error in a reply, or returns "".
func (f *fuzzed) wrong(r *http.Request, w *httptest.ResponseRecorder, size int) string {
	body, kind := w.Body.Bytes(), w.Header().Get("Content-Type")
	if limit := maxReplyBase + 16*size; len(body) > limit {
		return fmt.Sprintf("the reply has %d bytes, more than %d", len(body), limit)
	}
	op := f.byPath[r.Pattern]
	switch {
	case w.Code >= 400:
		if text := wrongProblem(w); text != "" || op == nil {
			return text
		}
	case r.URL.Path == "/v1/openapi.json":
		return ""
	case op == nil:
		return "no route of the description answers with success"
	}
	described := op.Responses[strconv.Itoa(w.Code)]
	if described != nil && described.Ref != "" {
		described = f.server.api.OpenAPI().Components.Responses[path.Base(described.Ref)]
	}
	switch {
	case described == nil:
		return "the description lacks the status"
	case len(described.Content) == 0 && len(body) == 0:
		return ""
	case described.Content[kind] == nil:
		return fmt.Sprintf("the description lacks the type %q", kind)
	case kind == jsonType && !json.Valid(body):
		return "the reply is no JSON"
	case kind == linesType:
		for line := range bytes.Lines(body) {
			if !json.Valid(line) {
				return fmt.Sprintf("the reply has the line %.100q", line)
			}
		}
	}
	return ""
}

// wrongProblem describes an error in a reply that is a problem, or returns "".
func wrongProblem(w *httptest.ResponseRecorder) string {
	var p problem.Problem
	err := json.Unmarshal(w.Body.Bytes(), &p)
	known := slices.ContainsFunc(store.Kinds(), func(k *store.Error) bool { return k.Code == p.Code })
	switch {
	case err != nil || w.Header().Get("Content-Type") != problem.MediaType:
		return "the reply is no problem"
	case p.Status != w.Code || p.Title != http.StatusText(w.Code) || !known:
		return "the problem does not fit its status"
	case p.Detail == "" || !utf8.ValidString(p.Detail),
		strings.HasPrefix(p.Detail, ":") && !strings.HasPrefix(p.Field, ":"):
		return "the problem does not say what is wrong"
	case w.Code >= 500 && w.Code != http.StatusServiceUnavailable && w.Code != http.StatusNotImplemented:
		return "the server failed"
	}
	return ""
}

// sees fails a test if a reply shows a secret that its receiver may not see and did not send.
func sees(tb testing.TB, who access.Identity, request string, w *httptest.ResponseRecorder) {
	secret := ""
	switch {
	case who.Queues != nil:
		secret = foreign
	case who.HidePayloads:
		secret = hushed
	}
	if secret != "" && !strings.Contains(request, secret) && strings.Contains(w.Body.String(), secret) {
		tb.Errorf("%v sees what is hidden, by %.1000q: %d %.1000q", who, request, w.Code, w.Body)
	}
}

var parameter = regexp.MustCompile(`\{\w+\}`)
