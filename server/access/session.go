package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/store"
)

// Revocations has the logins that were ended before their time, for all servers that share it. Its methods can be
// called at the same time.
type Revocations interface {
	// Revoke ends a session, which would otherwise last until a time.
	Revoke(ctx context.Context, session string, until time.Time) error
	// Revoked reports whether a session was ended.
	Revoked(ctx context.Context, session string) (bool, error)
}

const (
	// revokedFor is how long a session that was not ended counts as such without asking again, and revokedWithin how
	// long an answer may take. Together they are less than the 2 s within which all servers refuse it.
	revokedFor    = time.Second
	revokedWithin = 900 * time.Millisecond
	// maxSessions is the number of sessions that are remembered.
	maxSessions = 10_000
	// minSessionKey is how many bytes a session_key has at least.
	minSessionKey = 32
)

// session is the content of a login's cookie.
type session struct {
	ends  time.Time
	id    string
	token sum // the hash of the token
}

// A cookie has when the login ends, a random id, the hash of its token, and a MAC of these.
const (
	idSize     = 16
	cookieSize = 8 + idSize + 2*sha256.Size
)

func newSession(token sum, ends time.Time) session {
	id := make([]byte, idSize)
	rand.Read(id)
	return session{ends, hex.EncodeToString(id), token}
}

// cookie returns the session as a cookie.
func (c *Control) cookie(s *settings, one session) string {
	id, _ := hex.DecodeString(one.id) // which newSession encoded
	text := binary.BigEndian.AppendUint64(make([]byte, 0, cookieSize), uint64(one.ends.Unix()))
	text = append(append(text, id...), one.token[:]...)
	return base64.RawURLEncoding.EncodeToString(append(text, c.sign(s, text)...))
}

// sign returns the MAC of a cookie, which all servers with the same session_key make.
func (c *Control) sign(s *settings, text []byte) []byte {
	key := s.sessionKey
	if key == nil {
		key = c.key
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte("login\x00"))
	h.Write(text)
	return h.Sum(nil)
}

// session returns the session of a cookie, and reports whether the cookie is genuine and has not ended by itself.
func (c *Control) session(s *settings, cookie string) (one session, ok bool) {
	text, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil || len(text) != cookieSize {
		return one, false
	}
	text, mac := text[:cookieSize-sha256.Size], text[cookieSize-sha256.Size:]
	one = session{time.Unix(int64(binary.BigEndian.Uint64(text)), 0), hex.EncodeToString(text[8 : 8+idSize]),
		sum(text[8+idSize:])}
	return one, hmac.Equal(mac, c.sign(s, text)) && time.Now().Before(one.ends)
}

// byCookie returns the identity of a login.
func (c *Control) byCookie(ctx context.Context, s *settings, cookie string) (Identity, error) {
	over := refuse(http.StatusUnauthorized, "the login is over: log in again")
	one, ok := c.session(s, cookie)
	if !ok {
		return Identity{}, over
	}
	who, ok := s.owner(one.token)
	if !ok {
		return Identity{}, over
	}
	switch revoked, err := c.sessions.revoked(ctx, one); {
	case err != nil:
		return Identity{}, err
	case revoked:
		return Identity{}, over
	}
	return who, nil
}

// sessions knows which sessions were ended. Without Revocations, these are the ones that this server ended.
type sessions struct {
	shared Revocations

	mu   sync.Mutex
	seen map[string]seenSession
}

// seenSession is a cached answer about a session.
type seenSession struct {
	asked   time.Time
	revoked bool // which it stays
	ends    time.Time
}

// ShareLogouts has all servers with the same Revocations refuse a login that one of them ended. Call it before the
// first request.
func (c *Control) ShareLogouts(r Revocations) { c.sessions.shared = r }

// revoke ends a session.
func (ss *sessions) revoke(ctx context.Context, one session) error {
	ss.note(one, true)
	if ss.shared == nil {
		return nil
	}
	return ss.shared.Revoke(ctx, one.id, one.ends)
}

// revoked reports whether a session was ended. It returns an ErrUnavailable if that is unknown.
func (ss *sessions) revoked(ctx context.Context, one session) (bool, error) {
	ss.mu.Lock()
	known := ss.seen[one.id]
	ss.mu.Unlock()
	if known.revoked || ss.shared == nil || time.Since(known.asked) < revokedFor {
		return known.revoked, nil
	}
	ctx, cancel := context.WithTimeout(ctx, revokedWithin)
	defer cancel()
	revoked, err := ss.shared.Revoked(ctx, one.id)
	if err != nil {
		return false, &problem.Error{Status: http.StatusServiceUnavailable,
			Err: fmt.Errorf("the store cannot be asked whether the login was ended: %w: %w", store.ErrUnavailable, err)}
	}
	ss.note(one, revoked)
	return revoked, nil
}

// note remembers whether a session was ended, as of now.
func (ss *sessions) note(one session, revoked bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	now := time.Now()
	if len(ss.seen) >= maxSessions {
		for id, known := range ss.seen {
			if now.After(known.ends) || !known.revoked && now.Sub(known.asked) >= revokedFor {
				delete(ss.seen, id)
			}
		}
	}
	if ss.seen == nil {
		ss.seen = map[string]seenSession{}
	}
	ss.seen[one.id] = seenSession{now, revoked || ss.seen[one.id].revoked, one.ends}
}
