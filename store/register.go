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

// OpenConfig holds the options that a client passes to an engine opened by URL.
type OpenConfig struct {
	// Logger is never nil.
	Logger *slog.Logger
}

// Opener opens the engine that a URL names. Unknown parameters in the URL are errors. The URL is passed as text,
// because net/url cannot parse one with several hosts.
type Opener func(ctx context.Context, url string, cfg OpenConfig) (Store, error)

var (
	openersMu sync.RWMutex
	openers   = map[string]Opener{}
)

// Register makes an engine available under a URL scheme. Engines call it in their init functions. It panics if the
// scheme is already registered.
func Register(scheme string, open Opener) {
	openersMu.Lock()
	defer openersMu.Unlock()
	if _, taken := openers[scheme]; taken {
		panic("later: Register called twice for scheme " + scheme)
	}
	openers[scheme] = open
}

// Open opens the store that a URL names, with the engine registered for its scheme.
func Open(ctx context.Context, url string, cfg OpenConfig) (Store, error) {
	scheme, _, ok := strings.Cut(url, "://")
	if path, isFile := strings.CutPrefix(url, "file:"); isFile && !strings.HasPrefix(path, "//") {
		scheme, ok = "file", true // file:directory, relative to the working directory
	}
	if !ok {
		return nil, Invalid("store URL has no scheme: give one such as redis://localhost:6379/0")
	}
	openersMu.RLock()
	open, ok := openers[scheme]
	known := slices.Sorted(maps.Keys(openers))
	openersMu.RUnlock()
	if !ok {
		if scheme == "file" {
			return nil, Invalid(
				`store URL has the scheme file: add import _ "github.com/laterq/later/diskstore" to the program`)
		}
		return nil, Invalid("store URL has the unknown scheme %q: use one of %s", scheme, strings.Join(known, ", "))
	}
	return open(ctx, url, cfg)
}

// A user's password ends at the last @, because one that was not percent-encoded may contain any character.
var (
	userPassword      = regexp.MustCompile(`^([^:]*://[^:/?@]*:).*@`)
	parameterPassword = regexp.MustCompile(`([?&][^=&]*password=)[^&]*`)
)

// RedactURL returns a store's URL without its passwords, for logs and error texts. In a malformed URL it hides too
// much rather than too little.
func RedactURL(url string) string {
	url = userPassword.ReplaceAllString(url, "${1}xxxxx@")
	return parameterPassword.ReplaceAllString(url, "${1}xxxxx")
}
