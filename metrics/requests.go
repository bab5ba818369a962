package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Routes of requests that match no pattern of a mux, and of requests that were refused before.
const (
	unknownRoute = "unknown"
	refusedRoute = "refused"
)

var requestBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30, 60, 300}

// Requests returns a handler that counts the requests for a mux by its patterns, and the requests that guard refuses
// before they reach it. guard can be the Handler of an access.Control, or nil.
func (m *Metrics) Requests(mux http.Handler, guard func(http.Handler) http.Handler) http.Handler {
	routed := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, ok := w.(*answer); ok {
			defer func() { a.route = routeOf(r.Pattern) }()
		}
		mux.ServeHTTP(w, r)
	}))
	if guard != nil {
		routed = guard(routed)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w, route: refusedRoute}
		begin, ended := time.Now(), false
		defer func() {
			if a.code == 0 && ended {
				a.code = http.StatusOK
			}
			m.request(requestKey{a.route, methodOf(r.Method), a.code}).observe(time.Since(begin))
		}()
		routed.ServeHTTP(a, r)
		ended = true
	})
}

// routeOf returns the path of a pattern.
func routeOf(pattern string) string {
	_, path, hasMethod := strings.Cut(pattern, " ")
	switch {
	case hasMethod:
		return path
	case pattern == "" || pattern == "/":
		return unknownRoute
	}
	return pattern
}

// methodOf returns a method, or "other" for one that a client has made up.
func methodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return method
	}
	return "other"
}

// answer notes the status of a reply.
type answer struct {
	http.ResponseWriter
	route string
	code  int // 0 before the reply has begun
}

func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= http.StatusOK {
		a.code = code
	}
	a.ResponseWriter.WriteHeader(code)
}

func (a *answer) Write(text []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	return a.ResponseWriter.Write(text)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// requestKey are the labels of a request. Its fields have few values, since values that clients make up are left out.
type requestKey struct {
	route, method string
	code          int
}

type requestMetrics struct {
	count prometheus.Counter
	took  prometheus.Observer
}

func (m *Metrics) request(key requestKey) *requestMetrics {
	if known, ok := m.requests.Load(key); ok {
		return known.(*requestMetrics)
	}
	code := strconv.Itoa(key.code)
	if key.code == 0 { // its handler panicked, or cut the connection
		code = "aborted"
	}
	added, _ := m.requests.LoadOrStore(key, &requestMetrics{
		m.requestCount.WithLabelValues(key.route, key.method, code),
		m.requestTook.WithLabelValues(key.route, key.method),
	})
	return added.(*requestMetrics)
}

func (r *requestMetrics) observe(took time.Duration) {
	r.count.Inc()
	r.took.Observe(took.Seconds())
}
