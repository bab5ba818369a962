package access

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/store"
)

func TestRequestsForOtherHostsAreRefused(t *testing.T) {
	const all = "localhost LOCALHOST:7600 127.0.0.1:7600 [::1] [fe80::1%25eth0]:7600 10.0.0.1 192.0.2.7:80 evil.example " +
		"evil.example:7600 queue.example QUEUE.example:443 localhost.evil.example other.example 1.2.3.4.evil.example"
	const addresses = "localhost LOCALHOST:7600 127.0.0.1:7600 [::1] [fe80::1%25eth0]:7600 10.0.0.1 192.0.2.7:80"
	withHosts := write(t, "hosts: [Queue.example, 192.0.2.7]")
	withTokens := write(t, "tokens: [{name: a, role: admin, sha256: "+hashOf("t0ken")+"}]")
	for name, c := range map[string]struct {
		config  Config
		allowed string
	}{
		"loopback": {Config{Loopback: true}, addresses},
		"loopback with names": {Config{Loopback: true, File: withHosts, Hosts: []string{"other.example"}},
			addresses + " queue.example QUEUE.example:443 other.example"},
		"loopback with tokens": {Config{Loopback: true, File: withTokens}, addresses},
		// Without authentication, the host name alone tells a page of another site from the server's own.
		"anywhere": {Config{}, addresses},
		"anywhere at a name": {Config{Listener: "queue.example"},
			addresses + " queue.example QUEUE.example:443"},
		"anywhere with names":            {Config{File: withHosts}, addresses + " queue.example QUEUE.example:443"},
		"anywhere with tokens":           {Config{File: withTokens}, all},
		"anywhere at a name with tokens": {Config{File: withTokens, Listener: "queue.example"}, all},
		"anywhere with names and tokens": {Config{File: withTokens, Hosts: []string{"queue.example"}},
			addresses + " queue.example QUEUE.example:443"},
	} {
		c.config.Logger = slog.New(slog.DiscardHandler)
		control, err := New(c.config)
		if err != nil {
			t.Fatal(err)
		}
		s := serve(t, control.Handler(whoami))
		for _, host := range strings.Fields(all) {
			status, h, body := s.get("/", func(r *http.Request) { r.Host = host }, bearer("t0ken"))
			want := http.StatusMisdirectedRequest
			if strings.Contains(" "+c.allowed+" ", " "+host+" ") {
				want = http.StatusOK
			}
			if status != want {
				t.Errorf("%s: host %q: %d, want %d", name, host, status, want)
			}
			if status != http.StatusOK && !strings.Contains(detail(t, status, h, body), "--host") {
				t.Errorf("%s does not say what to do", body)
			}
			if status, _, _ := s.get("/healthz", func(r *http.Request) { r.Host = host }); status != http.StatusOK {
				t.Errorf("%s: a probe at host %q: %d", name, host, status)
			}
		}
	}
}

func TestPagesOfOtherSitesReachOnlyThePage(t *testing.T) {
	c, err := New(Config{Loopback: true, Page: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, c.Handler(whoami))
	for site, want := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200} {
		status, h, body := s.do(http.MethodPost, "/", "", header("Sec-Fetch-Site", site))
		if status != want {
			t.Errorf("%s: %d %s", site, status, body)
		}
		if status != http.StatusOK && !strings.Contains(detail(t, status, h, body), "another site") {
			t.Errorf("%s does not say why", body)
		}
		if status, _, _ := s.get("/", header("Sec-Fetch-Site", site)); status != http.StatusOK {
			t.Errorf("reading the page from %s: %d", site, status)
		}
		if status, _, body := s.get("/v1/queues", header("Sec-Fetch-Site", site)); status != want {
			t.Errorf("reading the API from %s: %d %s", site, status, body)
		}
	}
	if status, _, _ := s.do(http.MethodPost, "/", "", header("Origin", "https://evil.example")); status != 403 {
		t.Errorf("another origin: %d", status)
	}
}

func TestPageIsPublicAndNothingElse(t *testing.T) {
	name := write(t, file(t))
	for _, page := range []bool{true, false} {
		c, err := New(Config{File: name, Loopback: true, Page: page, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		s := serve(t, c.Handler(whoami))
		for request, public := range map[string]bool{
			"GET /": true, "HEAD /": true, "GET /assets/app/main.js": true, "GET /?queue=mail": true,
			"POST /": false, "PUT /assets/app/main.js": false, "GET /assets": false, "GET /v1/server": false,
			"GET /metrics": false, "GET /assetsx": false,
		} {
			method, path, _ := strings.Cut(request, " ")
			want := http.StatusUnauthorized
			if public && page {
				want = http.StatusOK
			}
			if status, _, body := s.do(method, path, ""); status != want {
				t.Errorf("page %v: %s: %d %s", page, request, status, body)
			}
		}
		status, _, _ := s.get("/", func(r *http.Request) { r.Host = "evil.example" })
		if status != http.StatusMisdirectedRequest {
			t.Errorf("page %v: another host: %d", page, status)
		}
	}
}

// file has every way to authenticate but client certificates.
func file(t testing.TB) string {
	return fmt.Sprintf(`
tokens:
  - {name: shop, role: send, sha256: %s}
basic_auth_users:
  ann: %s
users:
  - {name: ann, role: operate}
  - {name: eve, role: read}
groups:
  - {name: admins, role: admin}
  - {name: support, role: read, hide_payloads: true}
trusted_proxies: [127.0.0.1]
`, hashOf("t0ken"), bcryptOf(t, "pass word"))
}

func TestCredentials(t *testing.T) {
	c, log := control(t, strings.Replace(file(t), "[127.0.0.1]", "[192.0.2.0/24, '2001:db8::/32']", 1))
	s := serve(t, c.Handler(whoami))
	for name, test := range map[string]struct {
		change []func(*http.Request)
		want   string // who, or the detail of a 401
	}{
		"none":                            {nil, "who you are: give a token as Authorization: Bearer TOKEN"},
		"token":                           {list(bearer("t0ken")), "shop send"},
		"token, spelling":                 {list(header("Authorization", "bEARER  t0ken ")), "shop send"},
		"token as the password of nobody": {list(basic("", "t0ken")), "shop send"},
		"token of somebody":               {list(basic("ann", "t0ken")), "user or password is wrong"},
		"wrong token":                     {list(bearer("t0kens")), "the token is not one of this server's"},
		"empty token":                     {list(bearer("")), "the token is not one of this server's"},
		"password":                        {list(basic("ann", "pass word")), "ann operate"},
		"wrong password":                  {list(basic("ann", "guess")), "user or password is wrong"},
		"password of a user without one":  {list(basic("eve", "pass word")), "user or password is wrong"},
		"unknown user":                    {list(basic("bob", "pass word")), "user or password is wrong"},
		"unknown scheme":                  {list(header("Authorization", "Digest x")), "cannot be read"},
		"no scheme":                       {list(header("Authorization", "t0ken")), "cannot be read"},
		"a header that is a proxy's": {list(header("X-Forwarded-User", "ann")),
			"this server must know who you are"},
		"token and a header that is a proxy's": {list(bearer("t0ken"), header("X-Forwarded-User", "ann"),
			header("X-Forwarded-Groups", "admins")), "shop send"},
		"a cookie that is none": {list(header("Cookie", "later_login=AAAA")), "the login is over"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time a password that was right is remembered
				status, h, body := s.get("/", test.change...)
				if status == http.StatusOK {
					if body != test.want {
						t.Errorf("%s, want %s", body, test.want)
					}
					continue
				}
				if status != http.StatusUnauthorized || !strings.Contains(detail(t, status, h, body), test.want) {
					t.Errorf("%d %s, want %s", status, body, test.want)
				}
				if got := h.Values("WWW-Authenticate"); len(got) != 2 {
					t.Errorf("WWW-Authenticate: %q", got)
				}
			}
			for _, path := range []string{"/healthz", "/readyz"} {
				if status, _, body := s.get(path, test.change...); status != http.StatusOK || body != "anonymous none" {
					t.Errorf("%s: %d %s", path, status, body)
				}
			}
		})
	}
	for _, secret := range []string{"t0ken", "pass word", "guess", hashOf("t0ken")} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has %q:\n%s", secret, log)
		}
	}
}

func list(all ...func(*http.Request)) []func(*http.Request) { return all }

func TestTrustedProxiesSayWhoAsks(t *testing.T) {
	c, _ := control(t, file(t))
	s := serve(t, c.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := FromContext(r.Context())
		fmt.Fprint(w, who.Name, " ", who.Role, " ", who.HidePayloads)
	})))
	user := func(name string) func(*http.Request) { return header("X-Forwarded-User", name) }
	groups := func(names string) func(*http.Request) { return header("X-Forwarded-Groups", names) }
	for name, test := range map[string]struct {
		change []func(*http.Request)
		want   string
	}{
		"user":                            {list(user("eve")), "eve read false"},
		"user before group":               {list(user("eve"), groups("admins")), "eve read false"},
		"group":                           {list(user("bob"), groups("x,support")), "bob read true"},
		"groups in the order of the file": {list(user("bob"), groups("support, admins")), "bob admin false"},
		"groups and other groups":         {list(user("bob"), groups("x"), groups("support")), "401"},
		"user with groups and others":     {list(user("eve"), groups("admins"), groups("x")), "401"},
		"user before credentials":         {list(user("eve"), bearer("t0ken")), "eve read false"},
		"no user":                         {list(groups("admins"), bearer("t0ken")), "shop send false"},
		"nobody known":                    {list(user("bob"), groups("x")), "403"},
		"a name that logs cannot have":    {list(user("b\x80b"), groups("admins")), "403"},
		"nobody":                          {list(groups("admins")), "401"},
		"somebody and somebody else":      {list(user("ann"), user("eve")), "401"},
		"an empty name":                   {list(user(""), groups("admins")), "401"},
	} {
		status, h, body := s.get("/", test.change...)
		if status != http.StatusOK {
			detail(t, status, h, body)
			body = fmt.Sprint(status)
		}
		if body != test.want {
			t.Errorf("%s: %s, want %s", name, body, test.want)
		}
	}
}

func TestHeadersOfProxiesAreRemovedFromOthers(t *testing.T) {
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, c.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { r.Header.Write(w) })))
	_, _, body := s.get("/", header("X-Forwarded-User", "ann"), header("X-Forwarded-Groups", "g"),
		header("X-Forwarded-Proto", "https"), header("Other", "stays"))
	if strings.Contains(body, "X-Forwarded") || !strings.Contains(body, "Other: stays") {
		t.Error(body)
	}
}

func TestPasswordIsCheckedByBcryptOnce(t *testing.T) {
	c, _ := control(t, file(t))
	s := c.settings.Load()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	p := s.passwords["ann"]
	if ok, err := c.guesses.check(r, "ann", p, "pass word"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	p.hash = nil // bcrypt fails from now on
	if ok, err := c.guesses.check(r, "ann", p, "pass word"); !ok || err != nil {
		t.Errorf("the right password: %v, %v", ok, err)
	}
	if ok, err := c.guesses.check(r, "ann", p, "pass wor"); ok || err != nil {
		t.Errorf("a wrong password: %v, %v", ok, err)
	}
}

func TestFileIsReadAgainWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = "tokens: [{name: %s, role: read, sha256: %s}]"
		c, log := control(t, fmt.Sprintf(text, "first", hashOf("1")))
		h := c.Handler(whoami)
		ask := func(token string) string {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return fmt.Sprint(w.Code, " ", strings.Fields(w.Body.String())[0])
		}
		expect := func(token, want string) {
			t.Helper()
			if got := ask(token); !strings.HasPrefix(got, want) {
				t.Errorf("token %s: %s, want %s", token, got, want)
			}
		}
		expect("1", "200 first")
		rewrite(t, c.cfg.File, fmt.Sprintf(text, "second", hashOf("2")))
		expect("2", "401") // it was read less than a second ago
		time.Sleep(checkEvery)
		expect("2", "200 second")
		expect("1", "401")
		for _, wrong := range []string{"tokens: x", "", "tls_server_config: {}"} {
			rewrite(t, c.cfg.File, wrong)
			for range 3 {
				time.Sleep(checkEvery)
				expect("2", "200 second")
			}
		}
		if got := strings.Count(log.String(), "access control stays as it was"); got != 3 {
			t.Errorf("%d errors are logged, want one for each version:\n%s", got, log)
		}
		if err := c.Reload(); err == nil || !strings.Contains(err.Error(), "no cert_file") {
			t.Errorf("reload: %v", err)
		}
		rewrite(t, c.cfg.File, fmt.Sprintf(text, "third", hashOf("3")))
		if err := c.Reload(); err != nil {
			t.Error(err)
		}
		expect("3", "200 third")
	})
}

func TestRefusedRequestsAreLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := control(t, file(t))
		h := c.Handler(whoami)
		for range 10 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/leases/secret/ack?secret",
				nil))
		}
		if got := strings.Count(log.String(), "request refused"); got != 1 {
			t.Errorf("%d lines:\n%s", got, log)
		}
		time.Sleep(time.Second)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		if !strings.Contains(log.String(), "skipped=9") || strings.Contains(log.String(), "secret") {
			t.Error(log)
		}
	})
}

func BenchmarkHandler(b *testing.B) {
	for name, change := range map[string]func(*http.Request){
		"token": bearer("t0ken"), "password": basic("ann", "pass word"), "proxy": header("X-Forwarded-User", "ann"),
	} {
		b.Run(name, func(b *testing.B) {
			c, _ := control(b, file(b))
			h := c.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = "127.0.0.1:1"
			change(r)
			for b.Loop() {
				h.ServeHTTP(nil, r)
			}
		})
	}
}

func TestProblemKeepsTheCodeOfItsError(t *testing.T) {
	err := refuse(http.StatusForbidden, "no")
	if !errors.Is(err, store.ErrForbidden) || problem.StatusOf(err) != http.StatusForbidden {
		t.Errorf("%v", err)
	}
	w := httptest.NewRecorder()
	problem.Write(w, 0, err)
	if text := w.Body.String(); !strings.Contains(text, `"status":403,"code":"forbidden","detail":"no"`) {
		t.Error(text)
	}
}
