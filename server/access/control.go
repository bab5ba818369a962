package access

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/store"
)

// Config is the configuration of a Control.
type Config struct {
	// File is the configuration file; docs/access.md describes it. Without one there is no TLS, and every client that
	// reaches the server may do everything.
	File string
	// Loopback says that the server listens at an address that only its own machine reaches.
	//
	// Such a server, a server without authentication, and one with Hosts answer requests for localhost, IP addresses,
	// Hosts and Listener only, so that no web page reaches them under a name of its own.
	Loopback bool
	// Hosts are names of the server, in addition to the names in the file.
	Hosts []string
	// Listener is the host that the server listens at, if that has a name.
	Listener string
	// Page says that package page serves / and the paths below /assets/. They need no right, because the page has no
	// secrets, and users log in there.
	Page bool
	// Logger receives refused requests and new versions of the file. The default is slog.Default().
	Logger *slog.Logger
}

// Control finds the sender of a request. Its methods can be called at the same time.
type Control struct {
	cfg     Config
	key     []byte // of passwords that are remembered, and of logins without session_key; each process has its own
	guesses *guesses
	origins *http.CrossOriginProtection
	refused throttle
	lasting lasting

	sessions sessions

	settings atomic.Pointer[settings]
	started  time.Time
	checked  atomic.Int64 // when the files were checked, as a duration since started
	mu       sync.Mutex   // guards the fields below
	files    *files       // of the last version, also if it was refused
}

// checkEvery is how often the files are checked at most. They are checked when a request comes.
const checkEvery = time.Second

// New reads the configuration file and the files that it names. It starts nothing. Its errors are ErrInvalid and name
// the file, the line and the field.
func New(cfg Config) (*Control, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	for _, host := range cfg.Hosts {
		if err := checkHostName(host); err != nil {
			return nil, store.Invalid("a host %v", err)
		}
	}
	c := &Control{cfg: cfg, key: make([]byte, 32), origins: http.NewCrossOriginProtection(),
		started: time.Now(), files: &files{}}
	rand.Read(c.key)
	c.guesses = newGuesses(c.key)
	c.settings.Store(&settings{})
	if cfg.File == "" {
		return c, nil
	}
	s, files, err := load(cfg.File)
	if err != nil {
		return nil, err
	}
	c.files = files
	c.settings.Store(s)
	return c, nil
}

// Authenticates reports whether the sender of a request must authenticate.
func (c *Control) Authenticates() bool { return c.settings.Load().authenticates() }

// TLS returns a configuration for a listener that follows the file, or nil without TLS.
func (c *Control) TLS() *tls.Config {
	if c.settings.Load().tls == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.current().tls, nil
		}}
}

// Reload reads the files now, which happens by itself when they change. A version with an error is logged and
// returned, and the one before stays.
func (c *Control) Reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.File == "" {
		return nil
	}
	return c.reload()
}

// current returns the settings, from the files if these have changed.
func (c *Control) current() *settings {
	now := time.Since(c.started)
	if c.cfg.File != "" && now-time.Duration(c.checked.Load()) >= checkEvery && c.mu.TryLock() {
		defer c.mu.Unlock()
		c.checked.Store(int64(now))
		if c.files.changed() {
			c.reload() // which logs its error
		}
	}
	return c.settings.Load()
}

// reload reads the files. The lock is held.
func (c *Control) reload() error {
	before := c.settings.Load()
	s, files, err := load(c.cfg.File)
	c.files = files
	switch {
	case err != nil:
	case (s.tls == nil) != (before.tls == nil):
		err = store.Invalid("%s: TLS cannot be turned on or off while the server runs: restart it", c.cfg.File)
	case s.authenticates() != before.authenticates():
		err = store.Invalid("%s: authentication cannot be turned on or off while the server runs: restart it",
			c.cfg.File)
	}
	if err != nil {
		c.cfg.Logger.Error("access control stays as it was", "error", err)
		return err
	}
	s.keepRight(before)
	c.settings.Store(s)
	c.cfg.Logger.Info("access control was read again", "file", c.cfg.File)
	return nil
}

// Paths that need no authentication. Probes need no allowed host either, since they go to addresses.
const (
	healthPath = "/healthz"
	readyPath  = "/readyz"
	pagePath   = "/"
	assetsPath = "/assets/"
	// LoginPath and LogoutPath are where to mount Login and Logout.
	LoginPath  = "/v1/login"
	LogoutPath = "/v1/logout"
)

// public reports whether a request needs no authentication.
func (c *Control) public(r *http.Request) bool {
	switch path := r.URL.Path; {
	case path == LoginPath, path == LogoutPath:
		return true
	case !c.cfg.Page, r.Method != http.MethodGet && r.Method != http.MethodHead:
		return false
	default:
		return path == "" || path == pagePath || strings.HasPrefix(path, assetsPath)
	}
}

// anonymous is the sender of a request that needs no authentication.
var anonymous = Identity{Name: "anonymous", Role: "none"}

// Handler returns a handler that refuses requests for other hosts, from pages of other sites, and of people and
// programs that it does not know. The others reach next with an Identity in their context; see Check.
func (c *Control) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := c.current()
		if r.URL.Path == healthPath || r.URL.Path == readyPath {
			next.ServeHTTP(w, r.WithContext(NewContext(r.Context(), anonymous)))
			return
		}
		if err := c.checkHost(s, r); err != nil {
			c.refuse(w, r, err)
			return
		}
		if err := c.origins.Check(r); err != nil {
			c.refuse(w, r, refuse(http.StatusForbidden, "the request comes from a page of another site: %v", err))
			return
		}
		if fromOtherSite(r) && !c.public(r) {
			c.refuse(w, r, refuse(http.StatusForbidden, "the request comes from a page of another site: open this "+
				"server's own"))
			return
		}
		from := &caller{Identity: anonymous, control: c, settings: s, request: r}
		if r = s.withoutForgery(r); !s.authenticates() {
			next.ServeHTTP(w, r)
			return
		}
		if !c.public(r) {
			var err error
			if from.Identity, err = c.authenticate(s, r); err != nil {
				if problem.StatusOf(err) == http.StatusUnauthorized {
					s.challenge(w.Header())
					if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && s.certificate(r) == nil {
						w.Header().Set("Connection", "close") // so that the client connects with a new certificate
					}
				}
				c.refuse(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, from)))
	})
}

// fromOtherSite reports whether a browser says that a page of another site caused a request. It includes GET requests,
// which http.CrossOriginProtection lets pass, because they can be expensive here.
func fromOtherSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// refuse answers a request with an error, and logs it without its path, which can hold a receipt.
func (c *Control) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if skipped, ok := c.refused.next(); ok {
		c.cfg.Logger.Warn("request refused", "from", r.RemoteAddr, "error", err, "skipped", skipped)
	}
	problem.Write(w, 0, err)
}

// throttle lets one thing happen in a second.
type throttle struct {
	mu      sync.Mutex
	last    time.Time
	skipped int
}

// next reports whether it may happen now, and how often it could not since the last time.
func (t *throttle) next() (skipped int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.last) >= time.Second {
		skipped = t.skipped
		t.last, t.skipped = now, 0
		return skipped, true
	}
	t.skipped++
	return 0, false
}

// checkHost returns an error for a request for a host that this server is not.
func (c *Control) checkHost(s *settings, r *http.Request) error {
	if !c.cfg.Loopback && s.authenticates() && len(s.hosts)+len(c.cfg.Hosts) == 0 {
		return nil
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	same := func(name string) bool { return strings.EqualFold(name, host) }
	if _, err := netip.ParseAddr(host); err == nil { // which no name server can make another machine's
		return nil
	}
	if same("localhost") || host != "" && same(c.cfg.Listener) || slices.ContainsFunc(c.cfg.Hosts, same) ||
		slices.ContainsFunc(s.hosts, same) {
		return nil
	}
	return refuse(http.StatusMisdirectedRequest, "the host %q is not allowed: start later serve with --host "+
		"%q, or add it to the hosts of its configuration file", host, host)
}
