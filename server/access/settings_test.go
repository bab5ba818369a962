package access

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/tlstest"
	"github.com/laterq/later/store"
)

const (
	someHash   = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	someBcrypt = "$2a$10$ljYzf.OTLtUrj4jK5S4wzu/8HTCM8g3BZs0SlSmCxJnfkMSOmJ4/y"
)

func TestWrongFileIsRefusedWithItsLineAndField(t *testing.T) {
	const (
		token = "tokens:\n  - name: a\n    role: send\n    sha256: " + someHash + "\n"
		user  = "users: [{name: ann, role: read}]\n"
	)
	for _, c := range []struct{ text, want string }{
		{"tokens: [", "not YAML"},
		{"a: 1\n---\nb: 2", "2 YAML documents"},
		{"just a text", "line 1: the file is a text: give an object"},
		{"tokns: []", "line 1: tokns is unknown: did you mean tokens?"},
		{"\n\nx: 1", "line 3: x is unknown: give some of"},
		{"something_long: 1",
			"line 1: something_long is unknown: give some of basic_auth_users, groups, hosts,"},
		{"tokens: x", "line 1: tokens is a text: give a list"},
		{"tokens: [x]", "line 1: tokens[0] is a text: give an object"},
		{"tokens:\n  - name: a\n",
			"line 2: tokens[0] has no role: give one of read, send, work, operate, admin"},
		{"tokens:\n  - {name: a, role: send}\n", "tokens[0] has no sha256: later token new"},
		{"tokens: [{role: send, sha256: x}]", "tokens[0].sha256 is not the SHA-256 of a token in 64"},
		{strings.Replace(token, "send", "sned", 1), `line 3: tokens[0].role is "sned": did you mean send?`},
		{strings.Replace(token, "send", "42", 1), "line 3: tokens[0].role is a number: give a text"},
		{strings.Replace(token, "a\n", "''\n", 1), "line 2: tokens[0].name is empty"},
		{strings.Replace(token, "a\n", "\"a\\nb\"\n", 1), "line 2: tokens[0].name is"},
		{strings.Replace(token, "name: a", "nme: a", 1),
			"line 2: tokens[0].nme is unknown: did you mean name?"},
		{token + "    queue: mail\n", "line 5: tokens[0].queue is unknown: did you mean queues?"},
		{token + "    queues: mail\n", "line 5: tokens[0].queues is a text: give a list"},
		{token + "    queues: []\n", "tokens[0] has an empty list of queues"},
		{token + "    queues: [\"topic-history:a*\"]\n",
			`tokens[0].queues[0] is "topic-history:a*": the history of a topic ` +
				`belongs to it: give "topic:a"`},
		{token + "    queues: [\"worker:a\"]\n",
			`tokens[0].queues[0] is "worker:a": these queues are of the whole server`},
		{token + "    queues: [a*b]\n", `tokens[0].queues[0] is "a*b": a * can only be at the end`},
		{token + "    queues:\n      - a\n      - 'x{'\n",
			"line 7: tokens[0].queues[1] is wrong: queue name \"x{\" holds a brace"},
		{token + "    hide_payloads: maybe\n", "line 5: tokens[0].hide_payloads is a text: give true or false"},
		{token + "    role: read\n", "not YAML"},
		{token + strings.TrimPrefix(token, "tokens:\n"),
			"line 5: tokens[1] has the name or the sha256 of another"},
		{"tokens: [{name: a, role: admin, hide_payloads: true, sha256: " + someHash + "}]",
			"hides payloads from the role admin"},
		{"basic_auth_users: {ann: secret}", "basic_auth_users.ann is no bcrypt hash"},
		{"basic_auth_users:\n  ann: $2y$10$tooshort", "line 2: basic_auth_users.ann is no bcrypt hash"},
		{"basic_auth_users:\n  ann: " + someBcrypt, "line 2: basic_auth_users.ann has no role"},
		{"basic_auth_users:\n  ann: " + strings.Replace(someBcrypt, "10", "15", 1),
			"is a bcrypt hash of cost 15: give one of 4 to 14"},
		{"basic_auth_users: [ann]", "basic_auth_users is a list: give an object"},
		{user, "line 1: users have no way to say who they are"},
		{user + "users: []\n", "not YAML"},
		{"users: [{name: a, role: read}, {name: a, role: send}]",
			`users[1] has the name "a" for the second time`},
		{"groups: [{name: a, role: read}]", "groups come from trusted proxies"},
		{"trusted_proxies: [10.0.0.0/8]", "trusted_proxies say who sends a request, but no user has a role"},
		{user + "trusted_proxies: [10.0.0.0/99]", `trusted_proxies[0] is "10.0.0.0/99": give an address`},
		{user + "trusted_proxies: [proxy.example]", `line 2: trusted_proxies[0] is "proxy.example"`},
		{user + "trusted_proxies: [fe80::1%eth0]", "give an address"},
		{"hosts: ['queue.example:7600']", `hosts[0] is "queue.example:7600": give the name of a host alone`},
		{"hosts: ['']", "hosts[0] is empty"},
		{"hosts: &a [x]", "hosts is an alias, an anchor or a tag"},
		{"tls_server_config: {}", "tls_server_config has no cert_file or no key_file"},
		{"tls_server_config:\n  certfile: x",
			"line 2: tls_server_config.certfile is unknown: did you mean cert_file?"},
	} {
		_, err := New(Config{File: write(t, c.text)})
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "web.yml: ") {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), someHash)) {
			t.Errorf("%q: the error repeats what may be secret: %v", c.text, err)
		}
	}
	if _, err := New(Config{File: filepath.Join(t.TempDir(), "none.yml")}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a file that does not exist: %v", err)
	}
	if _, err := New(Config{Hosts: []string{"http://x"}}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a wrong host: %v", err)
	}
	if _, err := New(Config{File: write(t, strings.Repeat("#", maxFile+1))}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a large file: %v", err)
	}
}

func TestTLSFilesAreChecked(t *testing.T) {
	ca := tlstest.New(t)
	pair, other := ca.Issue(t, "a"), ca.Issue(t, "b")
	good := "tls_server_config:\n  cert_file: " + pair.Cert + "\n  key_file: " + pair.Key + "\n"
	for _, c := range []struct{ text, want string }{
		{good + "  client_auth_type: RequireAnyClientCert", "did you mean RequireAndVerifyClientCert?"},
		{good + "  client_auth_type: NoClientCrt", "did you mean NoClientCert?"},
		{good + "  client_auth_type: VerifyClientCertIfGiven",
			"line 4: tls_server_config.client_auth_type needs client_ca_file"},
		{good + "  min_version: TLS10", "line 4: tls_server_config.min_version is \"TLS10\""},
		{good + "  client_ca_file: " + ca.File,
			"line 1: tls_server_config asks for certificates of clients, but no user"},
		{good + "  client_ca_file: " + pair.Key,
			"line 4: tls_server_config.client_ca_file has no certificate in PEM"},
		{good + "  client_ca_file: missing.pem",
			"line 4: tls_server_config.client_ca_file cannot be read: open "},
		{strings.Replace(good, pair.Key, other.Key, 1),
			"line 2: tls_server_config.cert_file and key_file are no pair"},
		{strings.Replace(good, pair.Key, "no.key", 1), "line 3: tls_server_config.key_file cannot be read"},
	} {
		if _, err := New(Config{File: write(t, c.text)}); !errors.Is(err, store.ErrInvalid) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestFileNamesAreRelativeToTheFile(t *testing.T) {
	pair := tlstest.New(t).Issue(t, "server")
	dir := t.TempDir()
	for from, to := range map[string]string{pair.Cert: "server.crt", pair.Key: "server.key"} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "web.yml")
	rewrite(t, file, "tls_server_config: {cert_file: server.crt, key_file: server.key, min_version: TLS13}")
	c, err := New(Config{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if c.TLS() == nil || c.Authenticates() {
		t.Error("TLS alone is not there, or authenticates")
	}
}

// TestExampleInTheDocsIsRead reads the file that docs/access.md shows.
func TestExampleInTheDocsIsRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "```yaml\n")
	text, _, closed := strings.Cut(text, "```")
	if !ok || !closed {
		t.Fatal("no example")
	}
	ca := tlstest.New(t)
	pair := ca.Issue(t, "queue.example")
	text = strings.NewReplacer("server.crt", pair.Cert, "server.key", pair.Key, "clients.crt", ca.File).Replace(text)
	c, err := New(Config{File: write(t, text)})
	if err != nil {
		t.Fatal(err)
	}
	if c.TLS() == nil || !c.Authenticates() {
		t.Error("the example has no TLS or does not authenticate")
	}
}

func FuzzParseSettings(f *testing.F) {
	for _, text := range []string{
		"", "tokens:\n  - {name: a, role: send, queues: [x*], sha256: " + someHash + "}\n",
		"basic_auth_users: {ann: " + someBcrypt + "}\nusers: [{name: ann, role: read, hide_payloads: true}]\n",
		"trusted_proxies: [10.0.0.1, 'fd00::/8']\ngroups: [{name: g, role: work}]\nhosts: [a.example]\n",
		"tls_server_config:\n  cert_file: a\n  key_file: b\n  client_auth_type: NoClientCert\n  min_version: TLS13\n",
		"a: &x [*x]", "- |\n  text\n", "{", "? a\n: b\n", "!!str tokens: []", "<<: {tokens: []}",
	} {
		f.Add([]byte(text))
	}
	none := func(v value) ([]byte, error) { return nil, v.errorf("cannot be read") }
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseSettings(text, none)
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%v is no ErrInvalid", err)
			}
			return
		}
		for _, who := range s.groups {
			check(t, who)
		}
		for _, who := range s.users {
			check(t, who)
		}
		for _, token := range s.tokens {
			check(t, token.who)
		}
		for name := range s.passwords {
			check(t, s.users[name])
		}
	})
}

// check checks an identity from a file.
func check(t *testing.T, who Identity) {
	if _, known := rights[who.Role]; !known || checkName(who.Name) != nil || who.Queues != nil && len(who.Queues) == 0 {
		t.Errorf("a file has %+v", who)
	}
}

// TestNameInQueuesIsRefusedOrHasAnEffect tries names of queues that Later keeps for itself.
func TestNameInQueuesIsRefusedOrHasAnEffect(t *testing.T) {
	for _, prefix := range reserved.Prefixes {
		for _, pattern := range []string{prefix, prefix + "*", prefix + "x", prefix + "x*"} {
			who := Identity{Name: "n", Role: RoleAdmin, Queues: []string{pattern}}
			works := who.MaySchedules(Operate)
			for _, queue := range []string{prefix, prefix + "x", prefix + "xy"} {
				for _, right := range []Right{Look, Get, Send, Work, Operate, Administer} {
					works = works || who.May(right, queue)
				}
			}
			if err := who.Check(); (err == nil) != works {
				t.Errorf("%q has an effect: %v, and is refused: %v", pattern, works, err)
			}
		}
	}
}
