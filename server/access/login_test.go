package access

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// withLogin returns a handler with Login and Logout.
func withLogin(c *Control) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+LoginPath, c.Login)
	mux.HandleFunc("POST "+LogoutPath, c.Logout)
	mux.Handle("/", whoami)
	return c.Handler(mux)
}

func TestTokenIsExchangedForACookie(t *testing.T) {
	c, log := control(t, file(t))
	s := serve(t, withLogin(c))
	status, h, body := s.do(http.MethodPost, LoginPath, `{"token": "t0ken"}`)
	if status != http.StatusNoContent {
		t.Fatalf("%d %s", status, body)
	}
	set := h.Get("Set-Cookie")
	cookie, rest, _ := strings.Cut(set, "; ")
	if want := "Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"; rest != want {
		t.Errorf("%s, want %s", rest, want)
	}
	if status, _, body := s.get("/", header("Cookie", cookie)); status != http.StatusOK || body != "shop send" {
		t.Errorf("%d %s", status, body)
	}
	if strings.Contains(log.String(), "t0ken") || strings.Contains(log.String(), cookie) ||
		!strings.Contains(log.String(), "who=shop") {
		t.Error(log)
	}
	_, h, _ = s.do(http.MethodPost, LogoutPath, "", header("Cookie", cookie))
	if got := h.Get("Set-Cookie"); got != "later_login=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict" {
		t.Error(got)
	}
}

func TestCookieIsSecureWithTLS(t *testing.T) {
	for from, want := range map[string]bool{"127.0.0.1": true, "192.0.2.1": false} {
		c, _ := control(t, strings.Replace(file(t), "[127.0.0.1]", "["+from+"]", 1))
		s := serve(t, withLogin(c))
		_, h, _ := s.do(http.MethodPost, LoginPath, `{"token": "t0ken"}`, header("X-Forwarded-Proto", "https"))
		if got := strings.Contains(h.Get("Set-Cookie"), "; Secure"); got != want {
			t.Errorf("proxy %s: %v, want %v", from, got, want)
		}
	}
	c, _ := control(t, file(t))
	s := httptest.NewTLSServer(withLogin(c))
	defer s.Close()
	if _, h, _ := (&site{t, s}).do(http.MethodPost, LoginPath, `{"token": "t0ken"}`); !strings.Contains(
		h.Get("Set-Cookie"), "; Secure") {
		t.Errorf("%v", h)
	}
}

func TestWrongLoginsAreRefused(t *testing.T) {
	c, _ := control(t, file(t))
	s := serve(t, withLogin(c))
	for body, want := range map[string]int{
		"": 400, "{": 400, "{}": 400, `{"token": 1}`: 400, `{"token": "x"}`: 401,
		`{"token": "` + strings.Repeat("x", maxLogin) + `"}`: 400,
	} {
		if status, h, _ := s.do(http.MethodPost, LoginPath, body); status != want || h.Get("Set-Cookie") != "" {
			t.Errorf("%.20q: %d %v, want %d", body, status, h, want)
		}
	}
	if status, _, _ := s.do(http.MethodPost, LoginPath, `{"token": "t0ken"}`,
		header("Sec-Fetch-Site", "cross-site")); status != http.StatusForbidden {
		t.Errorf("from a page of another site: %d", status)
	}
}

func TestLoginEndsWithItsTimeItsTokenAndItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := control(t, file(t))
		text := c.cookie(c.settings.Load(), newSession(sha256.Sum256([]byte("t0ken")), time.Now().Add(LoginAge)))
		ask := func(c *Control, text string) int {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.AddCookie(&http.Cookie{Name: LoginCookie, Value: text})
			w := httptest.NewRecorder()
			c.Handler(whoami).ServeHTTP(w, r)
			return w.Code
		}
		expect := func(c *Control, text string, want int) {
			t.Helper()
			if got := ask(c, text); got != want {
				t.Errorf("status %d, want %d", got, want)
			}
		}
		expect(c, text, 200)
		for i := range len(text) - 1 { // of the last character some bits have no meaning
			changed := []byte(text)
			changed[i] ^= 1
			expect(c, string(changed), 401)
		}
		expect(c, text[1:], 401)
		expect(c, text+"A", 401)
		other, _ := control(t, file(t))
		expect(other, text, 401)
		time.Sleep(LoginAge - time.Second)
		expect(c, text, 200)
		time.Sleep(time.Second)
		expect(c, text, 401)
		text = c.cookie(c.settings.Load(), newSession(sha256.Sum256([]byte("t0ken")), time.Now().Add(LoginAge)))
		expect(c, text, 200)
		rewrite(t, c.cfg.File, strings.Replace(file(t), hashOf("t0ken"), hashOf("new"), 1))
		if err := c.Reload(); err != nil {
			t.Fatal(err)
		}
		expect(c, text, 401)
	})
}

func TestLoginRefusesHeadersThatItWouldIgnore(t *testing.T) {
	c, _ := control(t, file(t))
	for _, header := range []string{"Idempotency-Key", "If-Match", "If-None-Match"} {
		for name, do := range map[string]http.HandlerFunc{"login": c.Login, "logout": c.Logout} {
			r := httptest.NewRequest(http.MethodPost, LoginPath, strings.NewReader(`{"token": "t0ken"}`))
			r.Header.Set(header, "*")
			w := httptest.NewRecorder()
			if do(w, r); w.Code != http.StatusBadRequest || w.Header().Get("Set-Cookie") != "" ||
				!strings.Contains(w.Body.String(), `"field":"header.`+header+`"`) {
				t.Errorf("%s with %s: %d %s", name, header, w.Code, w.Body)
			}
		}
	}
}
