// Package page serves Later's web page: hand-written files in static/, which are embedded in the program as they are.
// They need no build step, hold no secrets, and call the HTTP API of package server at relative URLs. It imports
// nothing of Later.
//
// Start with Handler. files.go prepares the files.
package page

import (
	"bytes"
	"net/http"
	"path"
	"strings"
	"time"
)

// Package access lets everybody read these files.
const (
	rootPath   = "/"
	assetsPath = "/assets/"
)

// securityHeaders let the page load its own files and call its own server, and nothing else.
var securityHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
		"connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
}

// Handler returns a handler that serves the page at / and its files below /assets/, and has api answer all other
// requests. The page works under any path, so the handler can be mounted with http.StripPrefix or behind a proxy that
// strips a prefix. Both must pass on the slash after the prefix; a request without it is redirected.
func Handler(api http.Handler) http.Handler {
	s := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := r.URL.Path; path != "" && path != rootPath && !strings.HasPrefix(path, assetsPath) {
			api.ServeHTTP(w, r)
			return
		}
		for name, value := range securityHeaders {
			w.Header().Set(name, value)
		}
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, r.Method+" is no method of the page: use GET", http.StatusMethodNotAllowed)
		case r.URL.Path == "":
			addSlash(w, r)
		default:
			s.serve(w, r)
		}
	})
}

// addSlash redirects a request for the prefix itself, where relative URLs would be relative to its parent. The target
// is relative because only the browser knows the whole path.
func addSlash(w http.ResponseWriter, r *http.Request) {
	whole, query, _ := strings.Cut(r.RequestURI, "?")
	target := "./" + path.Base(whole) + "/"
	if query != "" {
		target += "?" + query
	}
	w.Header().Set("Location", target)
	w.WriteHeader(http.StatusPermanentRedirect)
}

// serve answers with a file.
func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	name, caching := "index.html", "no-cache" // ask whether it has changed
	if r.URL.Path != rootPath {
		name = strings.TrimPrefix(r.URL.Path, assetsPath)
		if version, rest, ok := strings.Cut(name, "/"); ok && strings.HasPrefix(version, versionPrefix) {
			name = rest // of another version, it is better than nothing: other servers may run that one
			if version == s.version {
				caching = "public, max-age=31536000, immutable"
			}
		}
	}
	f, ok := s.files[name]
	if !ok {
		http.Error(w, "the page has no such file", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", caching)
	h.Set("Content-Type", f.contentType)
	h.Set("Vary", "Accept-Encoding")
	content, etag := f.plain, `"`+f.hash+`"`
	if f.gzipped != nil && acceptsGzip(r) {
		content, etag = f.gzipped, `"`+f.hash+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// acceptsGzip reports whether a reply may be compressed.
func acceptsGzip(r *http.Request) bool {
	for _, list := range r.Header.Values("Accept-Encoding") {
		for item := range strings.SplitSeq(list, ",") {
			coding, weight, weighted := strings.Cut(item, ";")
			if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				return !weighted || strings.ContainsAny(weight, "123456789") // a weight of 0 refuses
			}
		}
	}
	return false
}
