package redisstore

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

const (
	maxPrefix     = 64 // bytes
	maxClientName = 64 // bytes
	maxPoolSize   = 100_000
	minTimeout    = time.Millisecond
	maxTimeout    = time.Hour
)

// setParameters sets the parameters after the question mark. The names in given were set before.
func (u *parsedURL) setParameters(query string, given map[string]bool) error {
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		p, known := parameters[name]
		switch {
		case name == "":
			return store.Invalid("store URL has a parameter without a name: known are %s", knownParameters())
		case !known:
			return store.Invalid("store URL has the unknown parameter %q: known are %s", name, knownParameters())
		case given[name]:
			return store.Invalid("store URL gives %s twice (a database in the path counts): give it once; "+
				"known are %s", name, knownParameters())
		case value == "":
			return store.Invalid("store URL gives %s no value: give one or leave it out; known are %s",
				name, knownParameters())
		case p.tls && !u.scheme.tls:
			return store.Invalid("store URL gives %s without TLS: use it with rediss://, rediss+sentinel:// "+
				"or rediss+cluster://", name)
		case p.sentinel && u.scheme.form != formSentinel:
			return store.Invalid("store URL gives %s without Sentinel: use it with redis+sentinel:// or "+
				"rediss+sentinel://", name)
		}
		given[name] = true
		value, err := url.PathUnescape(value)
		if err != nil {
			return store.Invalid("store URL gives %s a value with a %% that starts no percent-encoding: write "+
				"it as %%25", name)
		}
		if err := p.set(u, value); err != nil {
			return err
		}
	}
	return nil
}

// parameter is a URL parameter.
type parameter struct {
	set           func(u *parsedURL, value string) error
	tls, sentinel bool // requires such a scheme
}

var parameters = map[string]parameter{
	"prefix": {set: func(u *parsedURL, value string) error {
		u.Prefix = value
		return checkPrefix(value)
	}},
	"db": {set: setDB},
	"client_name": {set: func(u *parsedURL, value string) error {
		u.Options.ClientName = value
		if len(value) > maxClientName || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return store.Invalid("client_name is %q: must be up to %d visible ASCII characters without a space",
				value, maxClientName)
		}
		return nil
	}},
	"pool_size": {set: func(u *parsedURL, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > maxPoolSize {
			return store.Invalid("pool_size is %q: must be 1 to %d", value, maxPoolSize)
		}
		u.Options.PoolSize = n
		return nil
	}},
	"dial_timeout": timeout("dial_timeout", func(o *redis.UniversalOptions) *time.Duration { return &o.DialTimeout }),
	"read_timeout": timeout("read_timeout", func(o *redis.UniversalOptions) *time.Duration { return &o.ReadTimeout }),
	"write_timeout": timeout("write_timeout",
		func(o *redis.UniversalOptions) *time.Duration { return &o.WriteTimeout }),
	"retry": {set: func(u *parsedURL, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 || d > maxTimeout {
			return store.Invalid("retry is %q: must be 0s (not at all) to %v, for example 2s", value, maxTimeout)
		}
		u.RetryFor = d
		return nil
	}},
	"eviction": {set: func(u *parsedURL, value string) error {
		if value != "allow" {
			return store.Invalid("eviction is %q: give allow, or leave it out", value)
		}
		u.AllowEviction = true
		return nil
	}},
	"tls_ca":          tlsText(func(t *tlsSettings) *string { return &t.ca }),
	"tls_cert":        tlsText(func(t *tlsSettings) *string { return &t.cert }),
	"tls_key":         tlsText(func(t *tlsSettings) *string { return &t.key }),
	"tls_server_name": tlsText(func(t *tlsSettings) *string { return &t.serverName }),
	"tls_insecure": {tls: true, set: func(u *parsedURL, value string) error {
		if value != "true" && value != "false" {
			return store.Invalid("tls_insecure is %q: give true or false", value)
		}
		u.tls.insecure = value == "true"
		return nil
	}},
	"sentinel_username": {sentinel: true, set: func(u *parsedURL, value string) error {
		u.Options.SentinelUsername = value
		return nil
	}},
	"sentinel_password": {sentinel: true, set: func(u *parsedURL, value string) error {
		u.Options.SentinelPassword = value
		return nil
	}},
}

func knownParameters() string { return strings.Join(slices.Sorted(maps.Keys(parameters)), ", ") }

func timeout(name string, field func(*redis.UniversalOptions) *time.Duration) parameter {
	return parameter{set: func(u *parsedURL, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < minTimeout || d > maxTimeout {
			return store.Invalid("%s is %q: must be %v to %v, for example 500ms", name, value, minTimeout, maxTimeout)
		}
		*field(&u.Options) = d
		return nil
	}}
}

func tlsText(field func(*tlsSettings) *string) parameter {
	return parameter{tls: true, set: func(u *parsedURL, value string) error {
		*field(u.tls) = value
		return nil
	}}
}

func setDB(u *parsedURL, value string) error {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return store.Invalid("database is %q: give its number, 0 or more", value)
	}
	u.Options.DB = int(n)
	return nil
}

// checkPrefix rejects a key prefix that would break the hash tag of a queue's keys or make them unreadable.
func checkPrefix(prefix string) error {
	switch {
	case len(prefix) > maxPrefix:
		return store.Invalid("prefix is %d bytes long: the limit is %d", len(prefix), maxPrefix)
	case strings.ContainsAny(prefix, "{}"):
		return store.Invalid("prefix %q contains a brace: leave out { and }", prefix)
	case hasControl(prefix) || !utf8.ValidString(prefix):
		return store.Invalid("prefix %q contains a control character or is not UTF-8: give readable text", prefix)
	}
	return nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// tlsSettings holds the TLS parameters of a URL.
type tlsSettings struct {
	ca, cert, key string // files
	serverName    string
	insecure      bool
}

func (s *tlsSettings) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.serverName, InsecureSkipVerify: s.insecure}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, store.Invalid("tls_ca cannot be read: %v", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, store.Invalid("tls_ca %s contains no certificate in PEM", s.ca)
		}
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, store.Invalid("tls_cert and tls_key cannot be used: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
