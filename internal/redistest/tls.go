package redistest

import (
	"crypto/tls"
	"net/url"
	"testing"

	"github.com/laterq/later/internal/tlstest"
)

// tlsFiles are the files of a certificate that the server and its clients use, and of its authority.
type tlsFiles struct {
	ca string
	tlstest.Pair
	config *tls.Config // of a client
}

// TLS makes the server accept only TLS connections with a client certificate. It generates a certificate for 127.0.0.1,
// which Server.URL and Server.Client use.
func TLS(t testing.TB) Option {
	t.Helper()
	ca := tlstest.New(t)
	pair := ca.Issue(t, "redis")
	files := &tlsFiles{ca.File, pair, &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair.Load(t)}}}
	return func(c *config) { c.tls = files }
}

// arguments returns the server arguments that replace its plain port by a TLS port.
func (f *tlsFiles) arguments(port string) []string {
	return []string{"--port", "0", "--tls-port", port,
		"--tls-ca-cert-file", f.ca, "--tls-cert-file", f.Cert, "--tls-key-file", f.Key}
}

// query returns the URL query that names the files.
func (f *tlsFiles) query() string {
	return url.Values{"tls_ca": {f.ca}, "tls_cert": {f.Cert}, "tls_key": {f.Key}}.Encode()
}
