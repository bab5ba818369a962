package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/laterq/later/internal/nearest"
)

// The headers in which a trusted proxy names the user who sends a request.
const (
	forwardedUser   = "X-Forwarded-User"
	forwardedGroups = "X-Forwarded-Groups"
	forwardedProto  = "X-Forwarded-Proto"
)

// withoutForgery returns a request without the headers of trusted proxies, unless it comes from one.
func (s *settings) withoutForgery(r *http.Request) *http.Request {
	if s.trusts(r) || !slices.ContainsFunc(forwarded, func(name string) bool { return r.Header[name] != nil }) {
		return r
	}
	clean := *r
	clean.Header = maps.Clone(r.Header)
	for _, name := range forwarded {
		delete(clean.Header, name)
	}
	return &clean
}

var forwarded = []string{forwardedUser, forwardedGroups, forwardedProto}

// trusts reports whether a request comes from a trusted proxy.
func (s *settings) trusts(r *http.Request) bool {
	if len(s.proxies) == 0 {
		return false
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	address := from.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(s.proxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// authenticate returns the sender of a request: by the headers of a trusted proxy, else by the credentials in it, else
// by its login, else by the client's certificate. The first of these that the request has decides alone.
func (c *Control) authenticate(s *settings, r *http.Request) (Identity, error) {
	certificate := s.certificate(r)
	if s.tls != nil && s.tls.ClientAuth == tls.RequireAndVerifyClientCert && certificate == nil {
		return Identity{}, refuse(http.StatusUnauthorized,
			"the client certificate of this connection is not valid any more: connect again, with one of "+
				"client_ca_file")
	}
	for _, name := range []string{forwardedUser, forwardedGroups} { // the headers of others were removed
		if len(r.Header.Values(name)) > 1 {
			return Identity{}, refuse(http.StatusUnauthorized,
				"the header %s is there twice: the proxy must remove the headers of its clients, and send one", name)
		}
	}
	if user := r.Header.Get(forwardedUser); user != "" {
		return s.forwarded(user, r.Header.Get(forwardedGroups))
	}
	if len(r.Header.Values("Authorization")) > 1 {
		return Identity{}, refuse(http.StatusUnauthorized, "the header Authorization is there twice: give it once")
	}
	if text := r.Header.Get("Authorization"); text != "" {
		return c.credentials(s, r, text)
	}
	if cookie, err := r.Cookie(LoginCookie); err == nil {
		return c.byCookie(r.Context(), s, cookie.Value)
	}
	if certificate != nil {
		return s.certified(namesOf(certificate))
	}
	return Identity{}, refuse(http.StatusUnauthorized, "this server must know who you are: give %s", s.ways())
}

// ways describes how to authenticate.
func (s *settings) ways() string {
	var ways []string
	if len(s.tokens) > 0 {
		ways = append(ways, "a token as Authorization: Bearer TOKEN, or in a store URL as https://:TOKEN@host")
	}
	if len(s.passwords) > 0 {
		ways = append(ways, "user and password")
	}
	if s.verifiesClients() {
		ways = append(ways, "a client certificate")
	}
	if len(s.proxies) > 0 {
		ways = append(ways, "a login at the proxy before it")
	}
	return strings.Join(ways, ", or ")
}

// challenge sets the headers of a 401.
func (s *settings) challenge(h http.Header) {
	h.Add("WWW-Authenticate", `Bearer realm="later"`)
	if len(s.passwords) > 0 {
		h.Add("WWW-Authenticate", `Basic realm="later", charset="UTF-8"`)
	}
}

// credentials returns the owner of the credentials in the header Authorization. The password of the empty user is a
// token.
func (c *Control) credentials(s *settings, r *http.Request, text string) (Identity, error) {
	scheme, rest, _ := strings.Cut(text, " ")
	if strings.EqualFold(scheme, "Bearer") {
		return s.byToken(strings.TrimSpace(rest))
	}
	user, password, ok := r.BasicAuth()
	switch {
	case !ok:
		return Identity{}, refuse(http.StatusUnauthorized, "the header Authorization cannot be read: give %s", s.ways())
	case user == "":
		return s.byToken(password)
	}
	return c.byPassword(s, r, user, password)
}

func (s *settings) byToken(text string) (Identity, error) {
	if who, ok := s.owner(sha256.Sum256([]byte(text))); ok {
		return who, nil
	}
	return Identity{}, refuse(http.StatusUnauthorized,
		"the token is not one of this server's: later token new makes one")
}

// owner returns the owner of the token with a hash. The time that it takes does not depend on the hash.
func (s *settings) owner(hash sum) (who Identity, ok bool) {
	found := -1
	for i := range s.tokens {
		if subtle.ConstantTimeCompare(s.tokens[i].sum[:], hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Identity{}, false
	}
	return s.tokens[found].who, true
}

func (c *Control) byPassword(s *settings, r *http.Request, user, text string) (Identity, error) {
	wrong := refuse(http.StatusUnauthorized, "user or password is wrong")
	p, known := s.passwords[user]
	if !known {
		hash := s.decoy()
		if hash == nil {
			return Identity{}, wrong
		}
		p = &password{hash: hash} // as slow as for a user that exists
	}
	right, err := c.guesses.check(r, user, p, text)
	switch {
	case err != nil:
		return Identity{}, err
	case !known || !right:
		return Identity{}, wrong
	}
	return s.users[user], nil
}

// certified returns the user of a certificate with these names.
func (s *settings) certified(names []string) (Identity, error) {
	for _, name := range names {
		if who, known := s.users[name]; known {
			return who, nil
		}
	}
	return Identity{}, refuse(http.StatusForbidden,
		"the client certificate of %q has no role: add one of its names to users", nearest.Clip(names[0]))
}

// forwarded returns the identity of a user that a trusted proxy names: the user's entry in users, or else the first
// entry in groups that names one of the user's groups.
func (s *settings) forwarded(user, groups string) (Identity, error) {
	if who, known := s.users[user]; known {
		return who, nil
	}
	member := map[string]bool{}
	for group := range strings.SplitSeq(groups, ",") {
		member[strings.TrimSpace(group)] = true
	}
	for _, who := range s.groups {
		if member[who.Name] && checkName(user) == nil {
			who.Name = user
			return who, nil
		}
	}
	return Identity{}, refuse(http.StatusForbidden,
		"%q has no role: add the name to users, or one of its groups to groups", nearest.Clip(user))
}
