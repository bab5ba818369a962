package store

import (
	"context"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// OpenConfig is what a client tells an engine that is opened by URL.
type OpenConfig struct {
	// Logger is never nil.
	Logger *slog.Logger
	// AllowEviction opens a Redis whose maxmemory-policy may evict keys.
	AllowEviction bool
}

// Opener opens the engine that a URL names. Unknown parameters in the URL are errors. The URL comes as text,
// since one with several hosts is none to net/url.
type Opener func(ctx context.Context, url string, cfg OpenConfig) (Store, error)

var (
	openersMu sync.RWMutex
	openers   = map[string]Opener{}
)

// Register makes an engine known for a URL scheme. Engines call it in their init; a scheme that is taken panics.
func Register(scheme string, open Opener) {
	openersMu.Lock()
	defer openersMu.Unlock()
	if _, taken := openers[scheme]; taken {
		panic("later: two engines for the scheme " + scheme)
	}
	openers[scheme] = open
}

// Open opens the engine that a URL names by its scheme.
func Open(ctx context.Context, url string, cfg OpenConfig) (Store, error) {
	scheme, _, ok := strings.Cut(url, "://")
	if !ok {
		return nil, Invalid("store URL has no scheme; an example that does: redis://localhost:6379/0")
	}
	openersMu.RLock()
	open, ok := openers[scheme]
	known := slices.Sorted(maps.Keys(openers))
	openersMu.RUnlock()
	if !ok {
		if scheme == "file" {
			return nil, Invalid(`store URL has the scheme file: add import _ "github.com/laterq/later/diskstore" to the program`)
		}
		return nil, Invalid("store URL has the unknown scheme %q: use one of %s", scheme, strings.Join(known, ", "))
	}
	return open(ctx, url, cfg)
}

// A user's password ends at the last @, since one that was not written in %-codes may hold anything.
var (
	userPassword      = regexp.MustCompile(`^([^:]*://[^:/?@]*:).*@`)
	parameterPassword = regexp.MustCompile(`([?&][^=&]*password=)[^&]*`)
)

// RedactURL hides the passwords in a store's URL, for logs and messages. Of a URL that is wrong it hides too
// much rather than too little.
func RedactURL(url string) string {
	url = userPassword.ReplaceAllString(url, "${1}xxxxx@")
	return parameterPassword.ReplaceAllString(url, "${1}xxxxx")
}
