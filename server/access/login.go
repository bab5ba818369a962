package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net/http"
	"time"

	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/store"
)

const (
	// LoginCookie is the name of the cookie that Login sets.
	LoginCookie = "later_login"
	// LoginAge is how long a login lasts. It also ends when its token is removed, and when the server does.
	LoginAge = 12 * time.Hour

	maxLogin = 4 << 10 // bytes of the body of a login
)

// Credentials are the body of a login.
type Credentials struct {
	Token string `json:"token" minLength:"1" doc:"As later token new prints it"`
}

// Login exchanges a token, as Credentials in JSON, for a cookie with which a page sends requests. Mount it at LoginPath
// for POST.
func (c *Control) Login(w http.ResponseWriter, r *http.Request) {
	var body Credentials
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLogin))
	if err == nil {
		err = jsonfields.Decode(text, map[string]any{"token": &body.Token})
	}
	if err != nil || jsonfields.CheckNames(text) != nil || body.Token == "" {
		problem.Write(w, 0, store.Invalid(`the body of a login is {"token": "..."}, of %d bytes at most`, maxLogin))
		return
	}
	hash := sha256.Sum256([]byte(body.Token))
	s := c.current()
	who, ok := s.owner(hash)
	if !ok {
		c.refuse(w, r, refuse(http.StatusUnauthorized, "the token is not one of this server's"))
		return
	}
	c.setCookie(w, r, c.newCookie(hash, time.Now().Add(LoginAge)), int(LoginAge/time.Second))
	c.cfg.Logger.Info("logged in", "who", who.Name, "from", r.RemoteAddr)
	w.WriteHeader(http.StatusNoContent)
}

// Logout removes the cookie of Login. Mount it at LogoutPath for POST.
func (c *Control) Logout(w http.ResponseWriter, r *http.Request) {
	c.setCookie(w, r, "", -1)
	w.WriteHeader(http.StatusNoContent)
}

func (c *Control) setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: LoginCookie, Value: value, Path: "/", MaxAge: age, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil || r.Header.Get(forwardedProto) == "https"})
}

// A cookie has when the login ends and the hash of its token, and a MAC of both.
const cookieSize = 8 + 2*sha256.Size

func (c *Control) newCookie(hash sum, ends time.Time) string {
	text := binary.BigEndian.AppendUint64(make([]byte, 0, cookieSize), uint64(ends.Unix()))
	text = append(text, hash[:]...)
	return base64.RawURLEncoding.EncodeToString(append(text, c.sign(text)...))
}

func (c *Control) sign(text []byte) []byte {
	h := hmac.New(sha256.New, c.key)
	h.Write([]byte("login\x00"))
	h.Write(text)
	return h.Sum(nil)
}

// byCookie returns whose login it is.
func (c *Control) byCookie(s *settings, cookie string) (Identity, error) {
	over := refuse(http.StatusUnauthorized, "the login is over: log in again")
	text, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil || len(text) != cookieSize {
		return Identity{}, over
	}
	text, mac := text[:cookieSize-sha256.Size], text[cookieSize-sha256.Size:]
	if !hmac.Equal(mac, c.sign(text)) || time.Now().Unix() >= int64(binary.BigEndian.Uint64(text)) {
		return Identity{}, over
	}
	who, ok := s.owner(sum(text[8:]))
	if !ok {
		return Identity{}, over
	}
	return who, nil
}
