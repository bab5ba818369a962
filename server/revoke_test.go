package server

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/laterq/later/server/access"
)

func TestWaitingRequestsEndWithTheirToken(t *testing.T) {
	a := newAPI(t)
	file := filepath.Join(t.TempDir(), "web.yml")
	configure := func(token string) {
		t.Helper()
		text := fmt.Appendf(nil, "tokens: [{name: app, role: admin, sha256: %x}]", sha256.Sum256([]byte(token)))
		if err := os.WriteFile(file+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	configure("first")
	control, err := access.New(access.Config{File: file, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(control.Handler(a.server))
	defer h.Close()
	ask := func(method, path, body string) string {
		r, err := http.NewRequestWithContext(t.Context(), method, h.URL+path, strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		r.Header.Set("Authorization", "Bearer first")
		r.Header.Set("Content-Type", jsonType)
		reply, err := h.Client().Do(r)
		if err != nil {
			return err.Error()
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		return fmt.Sprint(reply.StatusCode, " ", string(text), " ", err)
	}
	received, watched := make(chan string, 1), make(chan string, 1)
	go func() { received <- ask(http.MethodPost, "/v1/queues/mail/receive", `{"wait": "5m"}`) }()
	go func() { watched <- ask(http.MethodGet, "/v1/events", "") }()
	for len(a.server.waits) < 2 {
		runtime.Gosched()
	}
	configure("second")
	if got := <-watched; !strings.HasPrefix(got, "200 ") || !strings.HasSuffix(got, " <nil>") {
		t.Errorf("the stream was answered with %s", got)
	}
	if got := <-received; !strings.HasPrefix(got, "401 ") || !strings.Contains(got, "access has changed") {
		t.Errorf("the receive was answered with %s", got)
	}
}
