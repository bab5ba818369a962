package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// tlsFiles are the files of a self-signed certificate used as authority, server and client certificate.
type tlsFiles struct {
	cert, key string
}

// TLS makes the server accept only TLS connections with a client certificate. It generates a certificate for 127.0.0.1,
// which Server.URL and Server.Client use.
func TLS(t testing.TB) Option {
	t.Helper()
	files, err := makeCertificate(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return func(c *config) { c.tls = files }
}

func makeCertificate(dir string) (*tlsFiles, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "Later's tests"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	f := &tlsFiles{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	if err := writePEM(f.cert, "CERTIFICATE", cert); err != nil {
		return nil, err
	}
	return f, writePEM(f.key, "PRIVATE KEY", private)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// arguments returns the server arguments that replace its plain port by a TLS port.
func (f *tlsFiles) arguments(port string) []string {
	return []string{"--port", "0", "--tls-port", port,
		"--tls-ca-cert-file", f.cert, "--tls-cert-file", f.cert, "--tls-key-file", f.key}
}

// query returns the URL query that names the files.
func (f *tlsFiles) query() string {
	return url.Values{"tls_ca": {f.cert}, "tls_cert": {f.cert}, "tls_key": {f.key}}.Encode()
}

// config returns the configuration of a client.
func (f *tlsFiles) config() (*tls.Config, error) {
	authority, err := os.ReadFile(f.cert)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}
