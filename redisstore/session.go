package redisstore

import (
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"sync"
	"time"
)

// sessions hands out sessions, under which each call that changes something is executed once, however often it is
// repeated and in whatever order its attempts arrive. A script cannot infer that from the current state: since the
// first attempt, a sent message may have been acked, a nacked one claimed by another worker, a cancelled one sent
// again, or a paused queue resumed. A session makes one call at a time with increasing request numbers, so the server
// keeps one number per session (lua/_session.lua), and a process has as many sessions as it ever had calls in
// progress at once.
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

// acquire returns a session that is not in use and the number of its next request: the time in microseconds, or more.
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
	sess.last = max(sess.last+1, time.Now().UnixMicro())
	return sess, sess.last
}

func (s *sessions) release(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, sess)
}
