package access

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// revocations are Revocations in memory, which can fail.
type revocations struct {
	mu    sync.Mutex
	ended map[string]bool
	asked int
	fails error
}

func (r *revocations) Revoke(_ context.Context, session string, _ time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails == nil {
		r.ended[session] = true
	}
	return r.fails
}

// fail has further calls fail.
func (r *revocations) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = err
}

func (r *revocations) Revoked(_ context.Context, session string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.ended[session], r.fails
}

// request asks a server, with a cookie if it is not "".
func request(c *Control, method, path, body, cookie string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if cookie != "" {
		r.AddCookie(&http.Cookie{Name: LoginCookie, Value: cookie})
	}
	w := httptest.NewRecorder()
	withLogin(c).ServeHTTP(w, r)
	return w
}

func login(t *testing.T, c *Control) (cookie string) {
	t.Helper()
	w := request(c, http.MethodPost, LoginPath, `{"token": "t0ken"}`, "")
	if w.Code != http.StatusNoContent {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Result().Cookies()[0].Value
}

// withKey returns a configuration file with a session_key.
func withKey(t *testing.T, key string) string {
	return file(t) + "session_key: " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(key, minSessionKey))) +
		"\n"
}

func TestLoginWorksOnAllServersAndALogoutEndsItThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &revocations{ended: map[string]bool{}}
		var servers []*Control
		for _, key := range []string{"k", "k", "other"} {
			c, _ := control(t, withKey(t, key))
			c.ShareLogouts(shared)
			servers = append(servers, c)
		}
		expect := func(c *Control, cookie string, want int) {
			t.Helper()
			if got := request(c, http.MethodGet, "/", "", cookie).Code; got != want {
				t.Errorf("status %d, want %d", got, want)
			}
		}
		cookie, another := login(t, servers[0]), login(t, servers[0])
		for range 100 {
			expect(servers[1], cookie, 200)
		}
		if shared.asked != 1 {
			t.Errorf("the store was asked %d times", shared.asked)
		}
		expect(servers[2], cookie, 401) // which has another key
		ctx, leave := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: LoginCookie, Value: cookie})
		var cause error
		go servers[1].Handler(lastingHandler(&cause)).ServeHTTP(httptest.NewRecorder(), r)
		synctest.Wait()
		shared.fail(errors.New("away"))
		time.Sleep(revokedFor + revokedWithin)
		synctest.Wait()
		if cause != nil {
			t.Errorf("a request that lasts ended with %v while the store was away", cause)
		}
		if w := request(servers[0], http.MethodPost, LogoutPath, "", cookie); w.Code != 503 ||
			len(w.Result().Cookies()) > 0 {
			t.Errorf("a logout without the store: %d, %v", w.Code, w.Result().Cookies())
		}
		expect(servers[0], cookie, 401) // it knows by itself
		expect(servers[1], cookie, 503)
		shared.fail(nil)
		if w := request(servers[0], http.MethodPost, LogoutPath, "", cookie); w.Code != http.StatusNoContent {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if cause != errRevoked {
			t.Errorf("a request that lasts: %v", cause)
		}
		leave()
		for _, c := range servers[:2] {
			expect(c, cookie, 401)
			expect(c, another, 200)
		}
		if w := request(servers[0], http.MethodPost, LogoutPath, "", "forged"); w.Code != http.StatusNoContent ||
			len(shared.ended) != 1 {
			t.Errorf("%d, %v", w.Code, shared.ended)
		}
		time.Sleep(revokedFor)
	})
}

func TestLogoutOfASingleServerEndsTheLogin(t *testing.T) {
	c, _ := control(t, file(t))
	cookie := login(t, c)
	if w := request(c, http.MethodPost, LogoutPath, "", cookie); w.Code != http.StatusNoContent {
		t.Errorf("%d", w.Code)
	}
	if w := request(c, http.MethodGet, "/", "", cookie); w.Code != http.StatusUnauthorized {
		t.Errorf("%d", w.Code)
	}
}

func TestSessionsThatAreRememberedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ss sessions
		ended := newSession(sum{}, time.Now().Add(time.Hour))
		ss.note(ended, true)
		for range maxSessions {
			ss.note(newSession(sum{}, time.Now().Add(time.Hour)), false)
		}
		time.Sleep(revokedFor)
		ss.note(newSession(sum{}, time.Now().Add(time.Hour)), false)
		if revoked, _ := ss.revoked(t.Context(), ended); len(ss.seen) != 2 || !revoked {
			t.Errorf("%d are remembered, the ended one: %v", len(ss.seen), revoked)
		}
	})
}

func TestSessionKeyIsChecked(t *testing.T) {
	for _, key := range []string{"x", "", "not base64!",
		base64.StdEncoding.EncodeToString(make([]byte, minSessionKey-1))} {
		if _, err := New(Config{File: write(t, file(t)+"session_key: '"+key+"'\n")}); err == nil ||
			!strings.Contains(err.Error(), "session_key") {
			t.Errorf("%q: %v", key, err)
		}
	}
}
