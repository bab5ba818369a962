package redisstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

// rememberRequests is how long the server remembers a request at least, and maxRetry how long a call is repeated after
// the first attempt that it may have executed. The difference is for attempts that arrive late: after a client has
// given up a connection, its kernel sends undelivered data for less than 2 min (Linux: tcp_orphan_retries).
const (
	rememberRequests = 10 * time.Minute
	maxRetry         = 5 * time.Minute
)

// sessions hands out sessions. A call that changes something is executed once in its session, even if it is repeated
// and its attempts arrive in any order. A script cannot infer that from the current state: since the first attempt, a
// sent message may have been acked, a nacked one claimed by another worker, a cancelled one sent again, or a paused
// queue resumed. A session makes one call at a time with increasing request numbers, so the server keeps one number per
// session (lua/_session.lua), and a process has as many sessions as it ever had calls in progress at once.
//
// A server that calls on behalf of others names their sessions and requests by store.WithRequest. Then a call that is
// repeated through another server on the same Redis is executed once, too.
//
// A request is remembered for rememberRequests at least.
type sessions struct {
	mu    sync.Mutex
	name  string
	count int
	free  []*session
}

type session struct {
	name   string
	last   int64
	looked *queueKeys // the queue in which a script of the common case last looked whether the sessions turn
	at     time.Time  // when that call began
	wall   time.Time  // the same by the wall clock, which goes on while the machine is suspended
}

// lookAgainAfter is how long the calls of a session in a queue need not look whether the sessions of the queue turn,
// after one of them has looked. lateTurn is how late the sessions may turn because of that: such a call may itself
// arrive 2 min late, see rememberRequests.
const (
	lookAgainAfter = 10 * time.Second
	lateTurn       = 3 * time.Minute
)

// look notes that a call that began at a time has found that the sessions of a queue need not turn. It ignores nil.
func (s *session) look(queue *queueKeys, at time.Time) {
	if s != nil {
		s.looked, s.at, s.wall = queue, at, at.Round(0)
	}
}

// hasLookedAt reports whether calls for a queue need not look. They find the session in SESSIONS, or the sessions have
// turned since.
func (s *session) hasLookedAt(queue *queueKeys) bool {
	if s == nil || s.looked != queue {
		return false
	}
	now := time.Now()
	return now.Sub(s.at) < lookAgainAfter && now.Round(0).Sub(s.wall) < lookAgainAfter
}

// acquire returns a session that is not in use and the number of its next request.
func (s *sessions) acquire() (sess *session, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		sess, s.free = s.free[n-1], s.free[:n-1]
	} else {
		if s.name == "" {
			var b [9]byte
			rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
			s.name = base64.RawURLEncoding.EncodeToString(b[:])
		}
		s.count++
		sess = &session{name: s.name + ":" + strconv.Itoa(s.count)}
	}
	sess.last++
	return sess, sess.last
}

// release makes a session available to other calls. It ignores nil.
func (s *sessions) release(sess *session) {
	if sess == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, sess)
}

// requestPrefix precedes the session of a store.Request, so that no such session has the name of one of ours.
const requestPrefix = ">"

// part returns the context of one of the calls into which a call of the store is divided, so that each is a request of
// a session of its own.
func part(ctx context.Context, name string) context.Context {
	r, ok := store.RequestOf(ctx)
	if !ok {
		return ctx
	}
	return store.WithRequest(ctx, store.Request{Session: r.Session + "/" + name, Number: r.Number})
}

// partFrom returns the context of the call for the items of a call of the store from an index on.
func partFrom(ctx context.Context, index int) context.Context {
	if index == 0 {
		return ctx
	}
	return part(ctx, strconv.Itoa(index))
}

// leaseOf returns the id of a claim's lease: that of the store.Request if there is one, or else a new one.
func leaseOf(ctx context.Context) string {
	r, ok := store.RequestOf(ctx)
	if !ok {
		return newLease()
	}
	sum := sha256.Sum256([]byte(strconv.FormatInt(r.Number, 10) + requestPrefix + r.Session))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}
