package metrics

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestRequestsAreCountedByRoute(t *testing.T) {
	m := New(Config{})
	inner := http.NewServeMux()
	inner.HandleFunc("POST /v1/queues/{queue}/messages", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusContinue)
		w.WriteHeader(http.StatusCreated)
	})
	inner.HandleFunc("GET /text", func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
			t.Errorf("the writer cannot be controlled: %v", err)
		}
		w.Write([]byte("text"))
	})
	inner.HandleFunc("/nothing", func(http.ResponseWriter, *http.Request) {})
	inner.HandleFunc("GET /cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	outer := http.NewServeMux()
	outer.Handle("/", inner)
	guard := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r.WithContext(t.Context()))
		})
	}
	s := httptest.NewServer(m.Requests(outer, guard))
	defer s.Close()
	s.Client().Transport.(*http.Transport).DisableKeepAlives = true // else requests that are cut off are repeated
	ask := func(method, path string, headers ...string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range headers {
			r.Header.Set(name, "x")
		}
		if reply, err := s.Client().Do(r); err == nil {
			reply.Body.Close()
		} else if path != "/cut" {
			t.Error(err)
		}
	}
	for _, queue := range []string{"mail", "orders", "more"} {
		ask("POST", "/v1/queues/"+queue+"/messages")
	}
	ask("GET", "/text")
	ask("GET", "/nothing")
	ask("BREW", "/nothing")
	ask("POST", "/cut/me")
	ask("POST", "/text", "Authorization")
	ask("GET", "/cut")
	s.Close() // when all are counted

	got := scrape(t, m.Handler(open(t, "mem://")))
	for labels, want := range map[string]float64{
		`code="201",method="POST",route="/v1/queues/{queue}/messages"`: 3,
		`code="200",method="GET",route="/text"`:                        1,
		`code="200",method="GET",route="/nothing"`:                     1,
		`code="200",method="other",route="/nothing"`:                   1,
		`code="404",method="POST",route="unknown"`:                     1,
		`code="401",method="POST",route="refused"`:                     1,
		`code="aborted",method="GET",route="/cut"`:                     1,
	} {
		if n := got["later_http_requests_total{"+labels+"}"]; n != want {
			t.Errorf("%s: %v, want %v", labels, n, want)
		}
	}
	if n := got[`later_http_request_seconds{method="POST",route="/v1/queues/{queue}/messages"}`]; n != 3 {
		t.Errorf("%v durations", n)
	}
}

func BenchmarkRequests(b *testing.B) {
	h := New(Config{}).Requests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = "POST /v1/queues/{queue}/messages"
		w.WriteHeader(http.StatusCreated)
	}), nil)
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/queues/mail/messages", nil)
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}
