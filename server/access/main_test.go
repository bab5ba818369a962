package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logged is the log of a Control.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// write writes a configuration file and returns its name.
func write(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "web.yml")
	rewrite(t, name, text)
	return name
}

// rewrite replaces a file at once, since a server may read it at the same time.
func rewrite(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// control returns a Control with a configuration file of this text, and its log.
func control(t testing.TB, text string) (*Control, *logged) {
	t.Helper()
	log := &logged{}
	c, err := New(Config{File: write(t, text), Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return c, log
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// bcryptOf returns a hash that costs little.
func bcryptOf(t testing.TB, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

// whoami answers with the name and role of the sender.
var whoami = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	who, controlled := FromContext(r.Context())
	if !controlled {
		who.Name = "nobody was asked"
	}
	io.WriteString(w, who.Name+" "+string(who.Role))
})

// site is a server behind a Control.
type site struct {
	t testing.TB
	*httptest.Server
}

func serve(t testing.TB, h http.Handler) *site {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &site{t, s}
}

// get sends a request with changes, and returns the reply's status, header and body.
func (s *site) get(path string, change ...func(*http.Request)) (int, http.Header, string) {
	return s.do(http.MethodGet, path, "", change...)
}

func (s *site) do(method, path, body string, change ...func(*http.Request)) (int, http.Header, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range change {
		f(r)
	}
	reply, err := s.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply.StatusCode, reply.Header, string(text)
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func bearer(token string) func(*http.Request) { return header("Authorization", "Bearer "+token) }

func basic(user, password string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(user, password) }
}

// refusals are the codes of requests that access control refuses.
var refusals = map[int]store.Code{http.StatusUnauthorized: "unauthenticated", http.StatusForbidden: "forbidden",
	http.StatusMisdirectedRequest: "misconfigured"}

// detail returns the detail of a problem with a status and the code of a refusal.
func detail(t testing.TB, status int, h http.Header, body string) string {
	t.Helper()
	var p problem.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%q is no problem: %v", body, err)
	}
	if h.Get("Content-Type") != problem.MediaType || p.Status != status || p.Code != refusals[status] {
		t.Errorf("%d, header %v: %s", status, h, body)
	}
	return p.Detail
}
