// # URLs
//
// These URLs name a Redis or Valkey. The port may be omitted if it is 6379 (Sentinel: 26379):
//
//	redis://user:password@host:6379/0                                 one server, database 0
//	unix://user:password@/path/to.sock?db=0                           one server, through its socket
//	redis+sentinel://user:password@host:26379,host2,host3/mymaster/0  the primary that Sentinels call mymaster
//	redis+cluster://user:password@host:6379,host2,host3               a Cluster, by some of its nodes
//	rediss:// rediss+sentinel:// rediss+cluster://                    the same over TLS
//
// User and password belong to the Redis server; the user may be omitted (":password@"). An IPv6 address is written in
// brackets. Special characters are percent-encoded: @ is %40, / is %2F, ? is %3F, # is %23, % is %25. A + is a plus.
// These parameters may follow after ?, joined by &:
//
//	parameter          default    meaning
//	prefix             later:     prefix of every key: up to 64 bytes without braces
//	db                 0          database; a Cluster has only 0
//	client_name        later      name in CLIENT LIST: up to 64 visible ASCII characters
//	pool_size          10 a CPU   connections, in a Cluster per node (there 5 a CPU): 1 to 100000
//	dial_timeout       5s         for a new connection: 1ms to 1h, like all timeouts
//	read_timeout       5s         for a reply
//	write_timeout      as read    for a request
//	retry              10s        how long a call is retried while the server is away: 0s to 1h; see RetryFor
//	eviction           (refused)  "allow" accepts a server with a maxmemory-policy that may evict messages
//	tls_ca             (system)   PEM file of certificates to trust instead of the system's
//	tls_cert, tls_key  (none)     PEM files of the client's certificate and key
//	tls_server_name    (the host) name that the server's certificate must have
//	tls_insecure       false      "true" accepts any certificate: for experiments only
//	sentinel_username  (none)     user of the Sentinels
//	sentinel_password  (none)     password of the Sentinels
//
// The tls_ parameters need a TLS scheme, the sentinel_ parameters a Sentinel scheme. A parameter that is unknown,
// empty or repeated is an error.
package redisstore

import (
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/laterq/later/store"
)

const (
	defaultClientName = "later"
	maxURL            = 8192 // bytes
)

// schemes are the URL schemes of this engine.
var schemes = map[string]scheme{
	"redis":           {form: formSingle},
	"rediss":          {form: formSingle, tls: true},
	"unix":            {form: formSocket},
	"redis+sentinel":  {form: formSentinel},
	"rediss+sentinel": {form: formSentinel, tls: true},
	"redis+cluster":   {form: formCluster},
	"rediss+cluster":  {form: formCluster, tls: true},
}

type scheme struct {
	form form
	tls  bool
}

// form is how a server is found.
type form int

const (
	formSingle form = iota
	formSocket
	formSentinel
	formCluster
)

// exampleURL is a valid URL of each form.
var exampleURL = map[form]string{
	formSingle:   "redis://user:password@localhost:6379/0",
	formSocket:   "unix:///run/redis/redis.sock?db=0",
	formSentinel: "redis+sentinel://host1:26379,host2:26379/mymaster/0",
	formCluster:  "redis+cluster://host1:6379,host2:6379",
}

// parsedURL holds the values of a URL, before any file is read.
type parsedURL struct {
	Options       redis.UniversalOptions // without TLSConfig, which client makes
	Prefix        string
	AllowEviction bool
	RetryFor      time.Duration

	scheme scheme
	tls    *tlsSettings // nil without TLS
}

// client creates the client that the URL describes, reading the TLS files. It does not connect.
func (u *parsedURL) client() (redis.UniversalClient, error) {
	options := u.Options
	if u.tls != nil {
		config, err := u.tls.config()
		if err != nil {
			return nil, err
		}
		options.TLSConfig = config
	}
	return redis.NewUniversalClient(&options), nil
}

// parseURL parses a URL as described in the package comment. Errors are store.ErrInvalid. They quote neither the part
// that may contain the password nor any secret value.
func parseURL(raw string) (parsedURL, error) {
	if len(raw) > maxURL {
		return parsedURL{}, store.Invalid("store URL is %d bytes long: the limit is %d", len(raw), maxURL)
	}
	name, rest, _ := strings.Cut(raw, "://")
	s, ok := schemes[name]
	if !ok {
		return parsedURL{}, store.Invalid("store URL has none of the schemes %s; a valid example: %s",
			strings.Join(slices.Sorted(maps.Keys(schemes)), ", "), exampleURL[formSingle])
	}
	if strings.Contains(rest, "#") {
		return parsedURL{}, store.Invalid("store URL has a #: write it as %%23")
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	authority, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, path = rest[:slash], rest[slash:]
	}
	// The text before an @ may be a password with special characters, so it is never quoted.
	if strings.Contains(query, "@") || s.form != formSocket && strings.Contains(path, "@") {
		return parsedURL{}, store.Invalid("store URL has an @ after the host: in the password and elsewhere " +
			"write @ as %%40, / as %%2F, ? as %%3F and # as %%23")
	}
	u := parsedURL{
		scheme: s,
		Prefix: DefaultPrefix, RetryFor: DefaultRetry,
		Options: redis.UniversalOptions{
			ClientName: defaultClientName,
			// The engine retries calls itself, with the same request numbers.
			MaxRetries:            -1,
			DialerRetries:         1,
			IsClusterMode:         s.form == formCluster,
			ContextTimeoutEnabled: true,
			// Connecting sends nothing that an old server or a restrictive ACL refuses.
			DisableIdentity:          true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		},
	}
	if s.tls {
		u.tls = &tlsSettings{}
	}
	given := map[string]bool{}
	if err := u.setAuthority(authority); err != nil {
		return parsedURL{}, err
	}
	if err := u.setPath(path, given); err != nil {
		return parsedURL{}, err
	}
	if hasQuery {
		if err := u.setParameters(query, given); err != nil {
			return parsedURL{}, err
		}
	}
	if err := u.validate(); err != nil {
		return parsedURL{}, err
	}
	return u, nil
}

// setAuthority sets user, password and hosts.
func (u *parsedURL) setAuthority(authority string) error {
	user, hosts, hasUser := strings.Cut(authority, "@")
	if !hasUser {
		user, hosts = "", authority
	}
	if strings.Contains(hosts, "@") {
		return store.Invalid("store URL has more than one @: give user and password once, before the first " +
			"host, and write an @ in them as %%40")
	}
	name, password, _ := strings.Cut(user, ":")
	var err error
	if u.Options.Username, err = url.PathUnescape(name); err == nil {
		u.Options.Password, err = url.PathUnescape(password)
	}
	if err != nil {
		return store.Invalid("store URL has a %% in its user or password that starts no percent-encoding: write " +
			"it as %%25")
	}
	if name != "" && password == "" {
		return store.Invalid("store URL has a user without a password: give both, as in %s", exampleURL[formSingle])
	}
	if u.scheme.form == formSocket {
		if hosts != "" {
			return store.Invalid("store URL of a socket has a host: give only the path, as in %s",
				exampleURL[formSocket])
		}
		return nil
	}
	return u.setHosts(strings.Split(hosts, ","))
}

func (u *parsedURL) setHosts(hosts []string) error {
	if len(hosts) > 1 && u.scheme.form == formSingle {
		return store.Invalid("store URL has %d hosts, but its scheme allows one: use redis+cluster:// or "+
			"redis+sentinel://, or with TLS rediss+cluster:// or rediss+sentinel://", len(hosts))
	}
	port := "6379"
	if u.scheme.form == formSentinel {
		port = "26379"
	}
	for i, host := range hosts {
		addr, problem := hostPort(host, port)
		if problem != "" {
			return store.Invalid("host %d of the store URL %s; a valid example: %s",
				i+1, problem, exampleURL[u.scheme.form])
		}
		u.Options.Addrs = append(u.Options.Addrs, addr)
	}
	return nil
}

// hostPort returns host:port for a host with or without a port, or a description of the problem.
func hostPort(text, defaultPort string) (addr, problem string) {
	host, port, hasPort := strings.Cut(text, ":")
	if inner, bracketed := strings.CutPrefix(text, "["); bracketed {
		ip, rest, closed := strings.Cut(inner, "]")
		ip, err := url.PathUnescape(ip) // the % of a zone is written as %25
		parsed, parseErr := netip.ParseAddr(ip)
		if !closed || err != nil || parseErr != nil || !parsed.Is6() || !isHostName(parsed.Zone()) {
			return "", "has brackets but no IPv6 address in them"
		}
		host = parsed.String()
		if port, hasPort = strings.CutPrefix(rest, ":"); !hasPort && rest != "" {
			return "", "has more than a port after its bracket"
		}
	} else if !isHostName(host) {
		return "", "is no name or address"
	}
	if host == "" {
		return "", "is missing"
	}
	if !hasPort {
		port = defaultPort
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return "", "has a port that is not 1 to 65535 (an IPv6 address needs brackets)"
	}
	return net.JoinHostPort(host, strconv.FormatUint(number, 10)), ""
}

// isHostName reports whether s contains only ASCII letters, digits and the characters "-._".
func isHostName(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-._", r))
	})
}

// setPath sets the database, the name of the primary, or the path of the socket.
func (u *parsedURL) setPath(path string, given map[string]bool) error {
	if u.scheme.form == formSocket {
		file, err := url.PathUnescape(path)
		if err != nil || len(file) < 2 || hasControl(file) {
			return store.Invalid("store URL has no path of a socket; a valid example: %s", exampleURL[formSocket])
		}
		u.Options.Addrs = []string{file}
		return nil
	}
	db := strings.TrimPrefix(path, "/")
	if u.scheme.form == formSentinel {
		name, rest, _ := strings.Cut(db, "/")
		name, err := url.PathUnescape(name)
		if err != nil || name == "" || hasControl(name) {
			return store.Invalid("store URL lacks the Sentinels' name of the primary; "+
				"a valid example: %s", exampleURL[formSentinel])
		}
		u.Options.MasterName, db = name, rest
	}
	if db == "" {
		return nil
	}
	given["db"] = true
	return setDB(u, db)
}

// validate checks values that depend on each other.
func (u *parsedURL) validate() error {
	if u.scheme.form == formCluster && u.Options.DB != 0 {
		return store.Invalid("store URL gives a Cluster the database %d: a Cluster has only 0", u.Options.DB)
	}
	if u.Options.SentinelUsername != "" && u.Options.SentinelPassword == "" {
		return store.Invalid("store URL gives sentinel_username without sentinel_password: give both")
	}
	if u.tls != nil && (u.tls.cert == "") != (u.tls.key == "") {
		return store.Invalid("store URL gives one of tls_cert and tls_key: give both")
	}
	return nil
}
