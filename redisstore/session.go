package redisstore

import (
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"sync"
	"time"
)

// rememberRequests is how long the server remembers a request at least, and maxRetry how long a call is repeated after
// the first attempt that it may have executed. The difference is for attempts that arrive late: after a client has
// given up a connection, its kernel sends what is not delivered for less than 2 min (Linux: tcp_orphan_retries).
const (
	rememberRequests = 10 * time.Minute
	maxRetry         = 5 * time.Minute
)

// sessions hands out sessions, under which each call that changes something is executed once, however often it is
// repeated and in whatever order its attempts arrive. A script cannot infer that from the current state: since the
// first attempt, a sent message may have been acked, a nacked one claimed by another worker, a cancelled one sent
// again, or a paused queue resumed. A session makes one call at a time with increasing request numbers, so the server
// keeps one number per session (lua/_session.lua), and a process has as many sessions as it ever had calls in
// progress at once.
//
// A request is remembered for rememberRequests at least.
type sessions struct {
	mu    sync.Mutex
	name  string
	count int
	free  []*session
}

type session struct {
	name string
	last int64
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

func (s *sessions) release(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, sess)
}
