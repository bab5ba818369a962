package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/remotestore"
	"github.com/laterq/later/store"
)

func TestStoreThatRefusesTheServerIsNoRefusalOfItsSender(t *testing.T) {
	shared, err := remotestore.NewHandler(memstore.New(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	var refusal atomic.Pointer[store.Error]
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if kind := refusal.Load(); kind != nil {
			problem.Write(w, 0, kind)
			return
		}
		shared.ServeHTTP(w, r)
	}))
	defer behind.Close()
	a := newAPIWith(t, behind.URL, Config{})
	for _, kind := range []*store.Error{store.ErrUnauthenticated, store.ErrForbidden} {
		refusal.Store(kind)
		a.do(http.MethodPost, mail, `{"payload": "x"}`).
			fails(http.StatusBadGateway, "misconfigured", "", "store refuses this configuration", kind.Error())
	}
}
