package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
	// LoginAge is how long a login lasts. It also ends with Logout, when its token is removed, and when the server ends
	// unless its configuration file has a session_key.
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
	if err := checkHeaders(r); err != nil {
		problem.Write(w, 0, err)
		return
	}
	var body Credentials
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLogin))
	if err == nil {
		err = jsonfields.Decode(text, &body)
	}
	if err != nil || body.Token == "" {
		problem.Write(w, 0, &problem.Error{Field: "body",
			Err: store.Invalid(`the body of a login is {"token": "..."}, of %d bytes at most`, maxLogin)})
		return
	}
	hash := sha256.Sum256([]byte(body.Token))
	s := c.current()
	who, ok := s.owner(hash)
	if !ok {
		c.refuse(w, r, refuse(http.StatusUnauthorized, "the token is not one of this server's"))
		return
	}
	c.setCookie(w, r, c.cookie(s, newSession(hash, time.Now().Add(LoginAge))), int(LoginAge/time.Second))
	c.cfg.Logger.Info("logged in", "who", who.Name, "from", r.RemoteAddr)
	w.WriteHeader(http.StatusNoContent)
}

// Logout removes the cookie of Login, and ends the login at all servers; see ShareLogouts. Mount it at LogoutPath for
// POST.
func (c *Control) Logout(w http.ResponseWriter, r *http.Request) {
	if err := checkHeaders(r); err != nil {
		problem.Write(w, 0, err)
		return
	}
	if cookie, err := r.Cookie(LoginCookie); err == nil {
		if one, ok := c.session(c.current(), cookie.Value); ok {
			if err := c.sessions.revoke(r.Context(), one); err != nil {
				problem.Write(w, 0, fmt.Errorf("the login has ended at this server only, try again: %w: %w",
					store.ErrUnavailable, err))
				return
			}
		}
	}
	c.setCookie(w, r, "", -1)
	w.WriteHeader(http.StatusNoContent)
}

// checkHeaders refuses headers that promise a conditional request or one that is safe to repeat: a login is neither.
func checkHeaders(r *http.Request) error {
	for _, name := range []string{"Idempotency-Key", "If-Match", "If-None-Match"} {
		if r.Header[name] != nil {
			return &problem.Error{Field: "header." + name,
				Err: store.Invalid("header.%s: is not for logins: leave it out of this request", name)}
		}
	}
	return nil
}

func (c *Control) setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: LoginCookie, Value: value, Path: "/", MaxAge: age, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil || r.Header.Get(forwardedProto) == "https"})
}

// NewToken returns a token with 130 random bits, and its SHA-256 in hexadecimal digits for the configuration file.
func NewToken() (token, hash string) {
	token = "later_" + rand.Text()
	digits := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(digits[:])
}
