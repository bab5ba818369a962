package access

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

// Limits of a configuration file.
const (
	maxFile   = 1 << 20 // bytes of each file
	maxTokens = 1000    // each request with a token is compared with all
	maxCost   = 14      // of a bcrypt hash: a second of CPU for each guess
	maxName   = 128     // bytes of a name
)

// settings are the parsed configuration file.
type settings struct {
	tls         *tls.Config         // nil: none
	authorities []*x509.Certificate // of client_ca_file
	passwords   map[string]*password
	users       map[string]Identity
	groups      []Identity // in the file's order
	tokens      []token
	proxies     []netip.Prefix
	hosts       []string
	sessionKey  []byte // signs the cookies of logins; nil: each process has its own
}

// token is the hash of a token, and its owner.
type token struct {
	sum [sha256.Size]byte
	who Identity
}

// authenticates reports whether the sender of a request must authenticate.
func (s *settings) authenticates() bool {
	return len(s.tokens)+len(s.passwords)+len(s.proxies) > 0 || s.verifiesClients()
}

// decoy returns the hash of any user's password, for users that do not exist.
func (s *settings) decoy() []byte {
	for _, p := range s.passwords {
		return p.hash
	}
	return nil
}

func (s *settings) verifiesClients() bool {
	return s.tls != nil && s.tls.ClientAuth != tls.NoClientCert
}

// parseSettings parses the text of a file. Errors name the field and its line.
func parseSettings(text []byte, read reader) (*settings, error) {
	root, err := parseYAML(text)
	if err != nil {
		return nil, err
	}
	s := &settings{passwords: map[string]*password{}, users: map[string]Identity{}}
	if root.node == nil {
		return s, nil
	}
	fields := map[string]func(value) error{
		"tls_server_config": func(v value) (err error) {
			s.tls, s.authorities, err = parseTLS(v, read)
			return err
		},
		"basic_auth_users": func(v value) error {
			return v.each(func(name string, hash value) (err error) {
				s.passwords[name], err = parsed(hash, parsePassword)
				return err
			})
		},
		"users":           func(v value) error { return v.list(s.addUser) },
		"groups":          func(v value) error { return v.list(s.addGroup) },
		"tokens":          func(v value) error { return v.list(s.addToken) },
		"trusted_proxies": setList(&s.proxies, parseProxy),
		"hosts":           setList(&s.hosts, checked(checkHostName)),
		"session_key":     set(&s.sessionKey, parseSessionKey),
	}
	at := map[string]value{}
	for name, read := range fields {
		fields[name] = func(v value) error {
			at[name] = v
			return read(v)
		}
	}
	if err := root.object(fields); err != nil {
		return nil, err
	}
	return s, s.check(at)
}

// check returns an error for parts that are of no use without others.
func (s *settings) check(at map[string]value) error {
	if hashes, given := at["basic_auth_users"]; given {
		err := hashes.each(func(name string, hash value) error {
			if _, known := s.users[name]; known {
				return nil
			}
			return hash.errorf("has no role: add {name: %s, role: read} to users, with a role of %s", name, roleNames)
		})
		if err != nil {
			return err
		}
	}
	switch {
	case len(s.groups) > 0 && len(s.proxies) == 0:
		return at["groups"].errorf("come from trusted proxies: add trusted_proxies")
	case len(s.proxies) > 0 && len(s.users)+len(s.groups) == 0:
		return at["trusted_proxies"].errorf("say who sends a request, but no user has a role: add users or groups")
	case s.verifiesClients() && len(s.users)+len(s.tokens) == 0:
		return at["tls_server_config"].errorf("asks for certificates of clients, but no user has a role: add users")
	case len(s.users) > 0 && len(s.passwords)+len(s.proxies) == 0 && !s.verifiesClients():
		return at["users"].errorf("have no way to say who they are: add basic_auth_users, client_ca_file or " +
			"trusted_proxies")
	}
	return nil
}

func (s *settings) addUser(v value) error {
	who, err := parseIdentity(v, nil)
	if _, twice := s.users[who.Name]; err == nil && twice {
		err = v.errorf("has the name %q for the second time: give each user once", who.Name)
	}
	s.users[who.Name] = who
	return err
}

func (s *settings) addGroup(v value) error {
	who, err := parseIdentity(v, nil)
	if err == nil && slices.ContainsFunc(s.groups, func(g Identity) bool { return g.Name == who.Name }) {
		err = v.errorf("has the name %q for the second time: give each group once", who.Name)
	}
	s.groups = append(s.groups, who)
	return err
}

func (s *settings) addToken(v value) error {
	if len(s.tokens) == maxTokens {
		return v.errorf("is one too many: the limit is %d tokens", maxTokens)
	}
	var t token
	who, err := parseIdentity(v, map[string]func(value) error{"sha256": set(&t.sum, parseHash)})
	switch {
	case err != nil:
		return err
	case t.sum == sum{}:
		return v.errorf("has no sha256: later token new makes a token and this entry")
	case slices.ContainsFunc(s.tokens, func(o token) bool { return o.sum == t.sum || o.who.Name == who.Name }):
		return v.errorf("has the name or the sha256 of another token: give each its own")
	}
	who.isToken = true
	t.who = who
	s.tokens = append(s.tokens, t)
	return nil
}

// parseHash returns the hash of a token from its digits.
func parseHash(text string) (hash sum, err error) {
	digits, err := hex.DecodeString(text)
	if err != nil || len(digits) != len(hash) {
		return hash, store.Invalid("is not the SHA-256 of a token in %d hexadecimal digits: later token new makes both",
			2*len(hash))
	}
	return sum(digits), nil
}

func parseProxy(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if address, single := netip.ParseAddr(text); single == nil && address.Zone() == "" {
		prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
	}
	if err != nil {
		return prefix, store.Invalid("is %q: give an address such as 10.0.0.7 or 10.0.0.0/8", nearest.Clip(text))
	}
	return prefix.Masked(), nil
}

func parseSessionKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) < minSessionKey {
		return nil, store.Invalid("is not base64 of %d random bytes or more: openssl rand -base64 %d makes it",
			minSessionKey, minSessionKey)
	}
	return key, nil
}

// checkHostName returns an ErrInvalid unless a name can be one of Config.Hosts.
func checkHostName(host string) error {
	if net.ParseIP(host) == nil && (host == "" || strings.ContainsAny(host, ":/ *?@#[]")) {
		return store.Invalid("is %q: give the name of a host alone, such as queue.example", nearest.Clip(host))
	}
	return nil
}

// parseIdentity parses an identity with its role. more are fields in addition to the fields of an Identity.
func parseIdentity(v value, more map[string]func(value) error) (who Identity, err error) {
	fields := map[string]func(value) error{
		"name": set(&who.Name, checked(checkName)),
		"role": set(&who.Role, parseRole),
		"queues": func(v value) error {
			who.Queues = []string{}
			return setList(&who.Queues, checked(checkPattern))(v)
		},
		"hide_payloads": func(v value) (err error) {
			who.HidePayloads, err = v.boolean()
			return err
		},
	}
	maps.Copy(fields, more)
	if err := v.object(fields); err != nil {
		return who, err
	}
	switch {
	case who.Name == "":
		return who, v.errorf("has no name: logs need one")
	case who.Role == "":
		return who, v.errorf("has no role: give one of %s", roleNames)
	case who.Queues != nil && len(who.Queues) == 0:
		return who, v.errorf("has an empty list of queues: name some, or leave queues out for all")
	}
	if err := who.checkHiding(); err != nil {
		return who, v.errorf("%v", err)
	}
	return who, nil
}

// Check returns an ErrInvalid unless a configuration file can have the identity.
func (i Identity) Check() error {
	if err := checkName(i.Name); err != nil {
		return store.Invalid("name %v", err)
	}
	if _, err := parseRole(string(i.Role)); err != nil {
		return store.Invalid("role %v", err)
	}
	for _, pattern := range i.Queues {
		if err := checkPattern(pattern); err != nil {
			return store.Invalid("queue %v", err)
		}
	}
	return i.checkHiding()
}

func (i Identity) checkHiding() error {
	if i.HidePayloads && i.Role == RoleAdmin {
		return store.Invalid("hides payloads from the role admin, which reads them with the server as its store: " +
			"give another role")
	}
	return nil
}

// checkName returns an ErrInvalid unless an Identity can have the name.
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return store.Invalid("has %d bytes: must have 1 to %d", len(name), maxName)
	}
	if strconv.Quote(name) != `"`+name+`"` {
		return store.Invalid("is %q: leave out quotes, backslashes and characters that cannot be printed",
			nearest.Clip(name))
	}
	return nil
}

// parseRole returns the role with a name.
func parseRole(name string) (Role, error) {
	if _, known := rights[Role(name)]; !known {
		return "", store.Invalid("is %q%s", nearest.Clip(name),
			nearest.DidYouMean(name, roles, "give one of "+roleNames))
	}
	return Role(name), nil
}

// checkPattern returns an ErrInvalid unless a text can be one of Identity.Queues.
func checkPattern(pattern string) error {
	name := strings.TrimSuffix(pattern, "*")
	if strings.Contains(name, "*") {
		return store.Invalid("is %q: a * can only be at the end, for all queues with the prefix before it",
			nearest.Clip(pattern))
	}
	if name == "" && pattern != "" {
		return nil
	}
	if err := store.CheckQueue(name); err != nil {
		return store.Invalid("is wrong: %v", err)
	}
	switch prefix, topic := reserved.Cut(name); prefix {
	case reserved.History:
		return store.Invalid("is %q: the history of a topic belongs to it: give %q", nearest.Clip(pattern),
			nearest.Clip(reserved.Topic+topic))
	case reserved.Worker, reserved.Logouts, reserved.Changes:
		return store.Invalid("is %q: these queues are of the whole server: leave out queues, for a role on all of them",
			nearest.Clip(pattern))
	case reserved.Topic:
		if pattern == prefix {
			return store.Invalid("is %q: the name of the topic is missing: give %sNAME, or %s* for all topics",
				pattern, prefix, prefix)
		}
	case reserved.Schedules:
		if name != prefix {
			return store.Invalid("is %q: the schedules are one name: give %q", nearest.Clip(pattern), prefix)
		}
	}
	return nil
}

// bcryptHash is a hash by bcrypt as htpasswd -B and others write it.
var bcryptHash = regexp.MustCompile(`^\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}$`)

func parsePassword(hash string) (*password, error) {
	parts := bcryptHash.FindStringSubmatch(hash)
	if parts == nil {
		return nil, store.Invalid("is no bcrypt hash: htpasswd -nBC 10 NAME makes one")
	}
	if cost, _ := strconv.Atoi(parts[1]); cost < 4 || cost > maxCost {
		return nil, store.Invalid("is a bcrypt hash of cost %d: give one of 4 to %d", cost, maxCost)
	}
	return &password{hash: []byte(hash)}, nil
}
