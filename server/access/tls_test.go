package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/tlstest"
)

// serveTLS serves requests over TLS as later serve does, and returns the address.
func serveTLS(t *testing.T, c *Control) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: c.Handler(whoami), TLSConfig: c.TLS(),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.ServeTLS(listener, "", "")
	}()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return listener.Addr().String()
}

// dial makes a new connection for one request.
func dial(
	t *testing.T, address string, config *tls.Config, change ...func(*http.Request),
) (string, *x509.Certificate, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(r)
	}
	reply, err := transport.RoundTrip(r)
	if err != nil {
		return "", nil, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	return fmt.Sprint(reply.StatusCode, " ", string(text)), reply.TLS.PeerCertificates[0], err
}

func TestClientCertificatesSayWhoAsks(t *testing.T) {
	ca, other := tlstest.New(t), tlstest.New(t)
	server := ca.Issue(t, "server")
	for _, required := range []bool{false, true} {
		text := fmt.Sprintf(`
tls_server_config:
  cert_file: %s
  key_file: %s
  client_ca_file: %s
  min_version: TLS13
users:
  - {name: worker-7, role: work}
  - {name: alias.example, role: read}
tokens:
  - {name: shop, role: send, sha256: %s}
`, server.Cert, server.Key, ca.File, hashOf("t0ken"))
		if required {
			text = strings.Replace(text, "  min_version",
				"  client_auth_type: RequireAndVerifyClientCert\n  min_version", 1)
		}
		c, _ := control(t, text)
		address := serveTLS(t, c)
		config := func(certs ...tlstest.Pair) *tls.Config {
			config := &tls.Config{RootCAs: ca.Pool()}
			for _, pair := range certs { // also one from an authority that the server does not ask for
				cert := pair.Load(t)
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate,
					error) {
					return &cert, nil
				}
			}
			return config
		}
		known := ca.Issue(t, "worker-7")
		for name, test := range map[string]struct {
			config *tls.Config
			change []func(*http.Request)
			want   string
		}{
			"common name":        {config(known), nil, "200 worker-7 work"},
			"alternative name":   {config(ca.Issue(t, "x", "y", "alias.example")), nil, "200 alias.example read"},
			"common name first":  {config(ca.Issue(t, "worker-7", "alias.example")), nil, "200 worker-7 work"},
			"unknown name":       {config(ca.Issue(t, "stranger")), nil, `certificate of \"stranger\" has no role`},
			"token before":       {config(known), list(bearer("t0ken")), "200 shop send"},
			"wrong token before": {config(known), list(bearer("x")), "401 "},
			"other authority":    {config(other.Issue(t, "worker-7")), nil, "refused"},
			"an old version":     {&tls.Config{RootCAs: ca.Pool(), MaxVersion: tls.VersionTLS12}, nil, "refused"},
			"none":               {config(), nil, map[bool]string{true: "refused", false: "401 "}[required]},
		} {
			got, _, err := dial(t, address, test.config, test.change...)
			if err != nil {
				got = "refused: " + err.Error()
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("required %v, %s: %s, want %s", required, name, got, test.want)
			}
		}
	}
}

func TestConnectionsOfAReplacedAuthorityEnd(t *testing.T) {
	old, next := tlstest.New(t), tlstest.New(t)
	server := old.Issue(t, "server")
	for _, required := range []bool{false, true} {
		ca := filepath.Join(t.TempDir(), "ca.pem")
		text, err := os.ReadFile(old.File)
		if err != nil {
			t.Fatal(err)
		}
		rewrite(t, ca, string(text))
		config := fmt.Sprintf(
			"tls_server_config: {cert_file: %s, key_file: %s, client_ca_file: %s, client_auth_type: %s}\n"+
				"users: [{name: worker-7, role: work}]\ntokens: [{name: shop, role: send, sha256: %s}]", server.Cert,
			server.Key, ca,
			map[bool]string{false: "VerifyClientCertIfGiven", true: "RequireAndVerifyClientCert"}[required],
			hashOf("t0ken"))
		c, log := control(t, config)
		address := serveTLS(t, c)
		pair := old.Issue(t, "worker-7").Load(t)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: old.Pool(),
			Certificates: []tls.Certificate{pair}}}
		defer transport.CloseIdleConnections()
		ask := func(change ...func(*http.Request)) (int, bool) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range change {
				f(r)
			}
			reply, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Body.Close()
			if _, err := io.Copy(io.Discard, reply.Body); err != nil {
				t.Fatal(err)
			}
			return reply.StatusCode, reply.Close
		}
		if status, _ := ask(); status != http.StatusOK {
			t.Fatal(status)
		}
		if text, err = os.ReadFile(next.File); err != nil {
			t.Fatal(err)
		}
		rewrite(t, ca, string(text))
		if err := c.Reload(); err != nil {
			t.Fatal(err, log)
		}
		if !required { // the token counts, on the same connection
			if status, closed := ask(bearer("t0ken")); status != http.StatusOK || closed {
				t.Error(status, closed)
			}
		}
		change := []func(*http.Request){}
		if required {
			change = append(change, bearer("t0ken")) // which does not replace the certificate
		}
		if status, closed := ask(change...); status != http.StatusUnauthorized || !closed {
			t.Errorf("required %v: %d, closed %v", required, status, closed)
		}
	}
}

func TestCertificatesAreReadAgainWhenTheyChange(t *testing.T) {
	ca := tlstest.New(t)
	pair, next := ca.Issue(t, "first"), ca.Issue(t, "second")
	c, log := control(t, fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s}", pair.Cert, pair.Key))
	address := serveTLS(t, c)
	served := func() string {
		t.Helper()
		_, cert, err := dial(t, address, &tls.Config{RootCAs: ca.Pool()})
		if err != nil {
			t.Fatal(err)
		}
		return cert.Subject.CommonName
	}
	if got := served(); got != "first" {
		t.Errorf("served %s", got)
	}
	for from, to := range map[string]string{next.Cert: pair.Cert, next.Key: pair.Key} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		rewrite(t, to, string(text)) // for a moment, certificate and key do not match
	}
	for limit := time.Now().Add(time.Minute); served() != "second"; {
		if time.Now().After(limit) {
			t.Fatalf("the new certificate is not served; log:\n%s", log)
		}
	}
}
