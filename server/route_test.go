package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
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
