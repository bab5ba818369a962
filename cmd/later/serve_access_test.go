//go:build unix

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/laterq/later/internal/tlstest"
)

// site is later serve with TLS and access control.
type site struct {
	*process
	t      *testing.T
	config string // name of the file
	url    string // without a token
}

func tokenOf(name, role string) string {
	sum := sha256.Sum256([]byte("secret of " + name))
	return fmt.Sprintf("  - {name: %s, role: %s, sha256: %s}\n", name, role, hex.EncodeToString(sum[:]))
}

// startSite starts later serve at an address that others reach, with tokens for the names a and b.
func startSite(t *testing.T) (s *site, ca *tlstest.Authority) {
	t.Helper()
	ca = tlstest.New(t)
	pair := ca.Issue(t, "server")
	hash, err := bcrypt.GenerateFromPassword([]byte("secret of ann"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	s = &site{t: t, config: filepath.Join(t.TempDir(), "web.yml")}
	s.configure(fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s, client_ca_file: %s}\n"+
		"tokens:\n%s%sbasic_auth_users: {ann: %s}\nusers:\n  - {name: ann, role: admin}\n  - {name: worker-7, role: admin}\n",
		pair.Cert, pair.Key, ca.File, tokenOf("a", "admin"), tokenOf("b", "send"), hash))
	s.process = newDiskCLI(t).start("serve", "--listen", "0.0.0.0:0", "--web-config", s.config)
	line := s.await(s.stderr, "serving")
	_, at, _ := strings.Cut(line, "at=")
	u, err := url.Parse(strings.TrimSpace(at))
	if err != nil || u.Scheme != "https" {
		t.Fatalf("%s: %v", line, err)
	}
	_, port, _ := net.SplitHostPort(u.Host)
	s.url = "https://127.0.0.1:" + port + "?tls_ca=" + ca.File
	return s, ca
}

// configure replaces the configuration file.
func (s *site) configure(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.config+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.config+".new", s.config); err != nil {
		s.t.Fatal(err)
	}
}

// as returns a cli that uses the site with a user and a secret in the URL.
func (s *site) as(user, secret string) *cli {
	u, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	u.User = url.UserPassword(user, secret)
	return &cli{s.t, u.String()}
}

func TestServeLetsAdministratorsUseItsStore(t *testing.T) {
	s, ca := startSite(t)
	client := ca.Issue(t, "worker-7")
	for name, c := range map[string]*cli{
		"token":       s.as("", "secret of a"),
		"password":    s.as("ann", "secret of ann"),
		"certificate": {t, s.url + "&tls_cert=" + client.Cert + "&tls_key=" + client.Key},
	} {
		c.ok("send", "mail", "hello", "--id", name)
		contains(t, c.ok("get", "mail", name), "hello")
	}
	worker := s.as("", "secret of a").start("work", "mail", "--max", "3")
	worker.await(worker.stdout, "hello")
	if exit := worker.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
	untrusted, _, _ := strings.Cut(s.as("", "secret of a").store, "?")
	var said []string
	for name, c := range map[string]*cli{
		"401 Unauthorized: this server must know who you are":       {t, s.url},
		"401 Unauthorized: the token is not one of this server's":   s.as("", "secret of x"),
		"401 Unauthorized: user or password is wrong":               s.as("ann", "secret of x"),
		"403 Forbidden: b has the role send and may not administer": s.as("", "secret of b"),
		"certificate signed by unknown authority":                   {t, untrusted},
		"has a user and no password: give https://user:password@host, or": {t,
			strings.Replace(s.url, "//", "//secret@", 1)},
	} {
		code := 22
		switch {
		case strings.Contains(name, "no password"):
			code = 2
		case strings.HasPrefix(name, "401"):
			code = 24
		case strings.HasPrefix(name, "403"):
			code = 25
		}
		text := c.fails(code, "stats")
		contains(t, text, name)
		said = append(said, text)
	}
	t.Setenv("LATER_TOKEN", "secret of a")
	c := &cli{t, s.url}
	contains(t, c.ok("version"), "https://:xxxxx@127.0.0.1")
	c.ok("stats")
	s.as("", "secret of b").fails(25, "stats") // the URL has another
	c.ok("pause", "mail")
	s.await(s.stderr, "changed who=a what=pause queue=mail")
	c.ok("send", "mail", "x")
	s.as("ann", "secret of ann").ok("purge", "mail", "--state", "ready", "--yes")
	s.await(s.stderr, "changed who=ann what=purge queue=mail count=1")
	s.signal(syscall.SIGTERM)
	if exit := s.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
	said = slices.AppendSeq(said, s.rest(s.stderr))
	if text := strings.Join(said, "\n"); strings.Contains(text, "secret") {
		t.Errorf("a secret is shown:\n%s", text)
	}
}

func TestServeReadsItsConfigurationAgain(t *testing.T) {
	m := newManager(t)
	s, _ := startSite(t)
	if got := m.await("READY=1"); !strings.HasPrefix(got[1], "STATUS=serving file:///") {
		t.Errorf("status is %q", got)
	}
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	late := s.as("", "secret of late")
	late.fails(24, "stats")
	s.configure(strings.Replace(string(text), "tokens:\n", "tokens:\n"+tokenOf("late", "admin"), 1))
	for limit := time.Now().Add(eventTimeout); late.run("stats").exit != 0; { // within a second, without a signal
		if time.Now().After(limit) {
			t.Fatal("the new configuration is not used")
		}
	}
	s.configure("tokens: x")
	s.signal(syscall.SIGHUP)
	if got := m.await("RELOADING=1"); !strings.HasPrefix(got[1], "MONOTONIC_USEC=") {
		t.Errorf("got %q", got)
	}
	if got := m.await("READY=1"); !strings.Contains(got[1], "the new configuration is refused") ||
		!strings.Contains(got[1], "tokens is a text") {
		t.Errorf("status is %q", got)
	}
	s.await(s.stderr, "access control stays as it was")
	late.ok("stats")
	s.configure(string(text))
	s.signal(syscall.SIGHUP)
	m.await("RELOADING=1")
	m.await("READY=1")
	late.fails(24, "stats")
	s.signal(syscall.SIGTERM)
	m.await("STOPPING=1")
	if exit := s.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestServeRefusesAWrongConfigurationBeforeItListens(t *testing.T) {
	c := newDiskCLI(t)
	file := filepath.Join(t.TempDir(), "web.yml")
	text := "hosts: [queue.example]\ntokens:\n  - name: a\n    role: x\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(t, c.fails(2, "serve", "--web-config", file), file+": line 4: tokens[0].role is \"x\"")
	contains(t, c.fails(2, "serve", "--web-config", file+".none"), "no such file")
	if err := os.WriteFile(file, []byte("hosts: [queue.example]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(t, c.fails(2, "serve", "--web-config", file, "--listen", ":0"), "there is no authentication")
	contains(t, c.fails(2, "serve", "--host", "http://x"), `a host is "http://x"`)
	contains(t, c.fails(2, "serve", "--listen", "7600"), `--listen is "7600"`)
}
