package access

import (
	"context"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/laterq/later/internal/problem"
)

// errRevoked ends requests that wait.
var errRevoked = refuse(http.StatusUnauthorized, "access has changed: repeat the request")

// OnRevoke has end called, once and within about two seconds, when a change of the configuration or the end of a login
// takes the identity or a right from the sender of the request of ctx. It is for requests that last, and does nothing
// without access control. The caller calls stop when the request is answered; end can still be called while stop runs.
func OnRevoke(ctx context.Context, end func(error)) (stop func()) {
	from, _ := ctx.Value(contextKey{}).(*caller)
	if from == nil || from.control == nil {
		return func() {}
	}
	return from.control.lasting.add(from, end)
}

// EndRevoked returns a handler that aborts its requests in the cases of OnRevoke. An aborted connection tells clients
// that the reply is not complete.
func EndRevoked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer OnRevoke(ctx, cancel)()
		next.ServeHTTP(w, r.WithContext(ctx))
		if context.Cause(ctx) == errRevoked {
			panic(http.ErrAbortHandler)
		}
	})
}

// lasting are the requests under way that end with the access of their senders. While there are some, the configuration
// is checked regularly.
type lasting struct {
	mu       sync.Mutex
	requests map[*lastingRequest]struct{}
	ticking  *time.Timer // nil unless there are requests
}

type lastingRequest struct {
	*caller
	settings *settings // that the sender was last checked with
	end      func(error)
}

func (l *lasting) add(from *caller, end func(error)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.requests == nil {
		l.requests = map[*lastingRequest]struct{}{}
	}
	one := &lastingRequest{from, from.settings, end}
	l.requests[one] = struct{}{}
	if l.ticking == nil {
		l.ticking = time.AfterFunc(checkEvery, from.control.endRevoked)
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.requests, one)
	}
}

// before returns the requests that were last checked with other settings, and the requests of logins, because a login
// can be ended without a change of settings. It stops the timer when there is no request.
func (l *lasting) before(s *settings) (before []*lastingRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.requests) == 0 {
		l.ticking = nil
		return nil
	}
	l.ticking.Reset(checkEvery)
	for one := range l.requests {
		if _, err := one.request.Cookie(LoginCookie); one.settings != s || err == nil {
			one.settings = s
			before = append(before, one)
		}
	}
	return before
}

// endRevoked ends the requests of senders whose access has changed.
func (c *Control) endRevoked() {
	s, ended := c.current(), 0
	for _, one := range c.lasting.before(s) {
		if !c.holds(s, one.caller) {
			one.end(errRevoked)
			ended++
		}
	}
	if ended > 0 {
		c.cfg.Logger.Info("requests ended, because access has changed", "count", ended)
	}
}

// holds reports whether a request would come from the same sender with the same rights now.
func (c *Control) holds(s *settings, from *caller) bool {
	r := s.withoutForgery(from.request)
	if user, text, ok := r.BasicAuth(); ok && user != "" && r.Header.Get(forwardedUser) == "" {
		// A password that changed is not checked, since that could take minutes for all requests, and none is a guess.
		p := s.passwords[user]
		return p != nil && c.guesses.isRight(attempt{p, c.guesses.mac("password", text)}) &&
			reflect.DeepEqual(s.users[user], from.Identity)
	}
	who, err := c.authenticate(s, r)
	if problem.StatusOf(err) == http.StatusServiceUnavailable {
		return true // the store may have been away
	}
	return err == nil && reflect.DeepEqual(who, from.Identity)
}

// keepRight remembers the passwords that were right and have not changed.
func (s *settings) keepRight(before *settings) {
	for user, p := range s.passwords {
		if old := before.passwords[user]; old != nil && string(old.hash) == string(p.hash) {
			p.right.Store(old.right.Load())
		}
	}
}
