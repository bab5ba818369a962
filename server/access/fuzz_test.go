package access

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// FuzzControl makes requests with any headers. A request without a secret of the configuration file reaches public
// paths only, no sender gets the identity of another one, and each refusal has one of the statuses for that. A header
// is a line.
func FuzzControl(f *testing.F) {
	const token, password = "t0ken", "pass word"
	for _, headers := range []string{"", "Authorization: Bearer t0ken",
		"Authorization: Bearer  t0ken\nAuthorization: Bearer x",
		"Authorization: Basic YW5uOnBhc3Mgd29yZA==", "Authorization: Basic OnQwa2Vu", "Authorization: Basic Og==",
		"Authorization: Basic !",
		"Authorization: Bearer", "Authorization: \x00", "Authorization: Basic YW5uOg==", "authorization: bearer t0ken",
		"Cookie: later_login=AAAA; later_login=BBBB", "Cookie: later_login=\"\"",
		"Cookie: later_login=" + strings.Repeat("A", 96),
		"Cookie: =;;==", "X-Forwarded-User: ann", "X-Forwarded-User: ann\nX-Forwarded-User: eve",
		"X-Forwarded-Groups: admins",
		"Host: evil.example", "Host: localhost:x:y", "Host: [::1", "Host: \x00", "Origin: null",
		"Origin: https://evil.example",
		"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-origin\nSec-Fetch-Site: cross-site",
		"X-Forwarded-Proto: https"} {
		for _, path := range []string{"/v1/queues", "/", "/healthz", "/v1/login", "/assets/../v1/queues", "//healthz",
			"/HEALTHZ"} {
			f.Add("GET", path, headers)
			f.Add("POST", path, headers)
		}
	}
	c, err := New(Config{File: write(f, file(f)), Loopback: true, Page: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	h, requests := c.Handler(whoami), 0
	f.Fuzz(func(t *testing.T, method, path, headers string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/", nil)
		if err != nil {
			return
		}
		// An address that has guessed too many passwords is refused for a time, so each request has its own.
		r.URL.Path, r.RemoteAddr = path, fmt.Sprintf("[2001:%x:%x::1]:5", requests>>16, requests&0xffff)
		requests++
		for line := range strings.Lines(headers) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			if r.Header.Add(name, strings.TrimSpace(value)); strings.EqualFold(name, "Host") {
				r.Host = strings.TrimSpace(value)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			if refusals[w.Code] == "" {
				t.Errorf("%s %q %q: %d", method, path, headers, w.Code)
			}
			detail(t, w.Code, w.Header(), w.Body.String())
			return
		}
		user, given, basic := r.BasicAuth()
		scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		want := []string{"anonymous none"}
		switch {
		case c.public(r) || path == healthPath || path == readyPath:
		case basic && user == "" && given == token, strings.EqualFold(scheme, "Bearer") &&
			strings.TrimSpace(rest) == token:
			want = []string{"shop send"}
		case basic && user == "ann" && given == password:
			want = []string{"ann operate"}
		default:
			want = nil
		}
		if !slices.Contains(want, w.Body.String()) {
			t.Errorf("%s %q %q is %s", method, path, headers, w.Body)
		}
	})
}

// FuzzLogin sends bodies to a login: no login succeeds without a token, and each refusal says why.
func FuzzLogin(f *testing.F) {
	for _, body := range []string{`{"token":"t0ken"}`, `{"token":"t0ken"} x`, `{"token":"x","token":"t0ken"}`,
		`{"Token":"t0ken"}`, `{"token":["t0ken"]}`,
		"", "null", `{"token":""}`, strings.Repeat("[", 5000), `{"token":"` + strings.Repeat("x", 5000) + `"}`,
		"{\"token\":\"\xff\"}",
		`{"token":"\u0074\u0030ken"}`, `{"token":"t0ken","x":1}`, "\ufeff{}"} {
		f.Add(body)
	}
	c, err := New(Config{File: write(f, file(f)), Loopback: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := httptest.NewRecorder()
		c.Login(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, LoginPath, strings.NewReader(body)))
		switch loggedIn := w.Header().Get("Set-Cookie") != ""; {
		case w.Code == http.StatusNoContent && loggedIn:
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/queues", nil)
			r.Header.Set("Cookie", strings.SplitN(w.Header().Get("Set-Cookie"), ";", 2)[0])
			asked := httptest.NewRecorder()
			if c.Handler(whoami).ServeHTTP(asked, r); asked.Body.String() != "shop send" {
				t.Errorf("%q: %d %s", body, asked.Code, asked.Body)
			}
		case loggedIn || w.Code != http.StatusUnauthorized && w.Code != http.StatusBadRequest:
			t.Errorf("%q: %d %v", body, w.Code, w.Header())
		}
	})
}
