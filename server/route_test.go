package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// goneWriter is a reply to a client that is gone when the body is written.
type goneWriter struct {
	header   http.Header
	gone     context.CancelFunc
	statuses []int
}

func (w *goneWriter) Header() http.Header    { return w.header }
func (w *goneWriter) WriteHeader(status int) { w.statuses = append(w.statuses, status) }

func (w *goneWriter) Write([]byte) (int, error) {
	w.gone()
	return 0, http.ErrAbortHandler
}

func TestReplyToAClientThatIsGoneHasOneStatus(t *testing.T) {
	a := newAPI(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &goneWriter{header: http.Header{}, gone: cancel}
	a.server.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/v1/queues", nil))
	if !slices.Equal(w.statuses, []int{http.StatusOK}) {
		t.Errorf("statuses %v were sent, want 200", w.statuses)
	}
}

// TestPathIsNeverMadeShorter sends paths that a mux would redirect, and clients would follow to another resource.
func TestPathIsNeverMadeShorter(t *testing.T) {
	a := newAPI(t)
	a.send("victim", "1")
	for _, path := range []string{
		"/v1/queues/victim/messages/%2E%2E", "/v1/queues/victim/messages/..", "/v1/queues/victim/messages/.%2e",
		"/v1/queues/victim/messages/%2e", "/v1/queues/victim/.", "/v1/queues//victim",
		"/v1/queues/x/../victim", "//v1/queues/victim", "/v1/queues/victim/messages/1/%2E%2E/%2E%2E",
	} {
		for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodPost} {
			r := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader("{}"))
			if u, err := url.Parse("http://x" + path); err != nil {
				t.Fatal(err)
			} else {
				r.URL = u
			}
			w := httptest.NewRecorder()
			a.server.ServeHTTP(w, r)
			if w.Code != http.StatusBadRequest || w.Header().Get("Location") != "" {
				t.Errorf("%s %s: %d %s to %s", method, path, w.Code, w.Body, w.Header().Get("Location"))
			}
		}
	}
	a.do(http.MethodGet, "/v1/queues/victim/messages/1", nil).is(http.StatusOK)
	a.send("victim", "a/../b", "a//b")
	for _, id := range []string{"a%2F..%2Fb", "a%2F%2Fb"} {
		a.do(http.MethodGet, "/v1/queues/victim/messages/"+id, nil).is(http.StatusOK)
	}
}
