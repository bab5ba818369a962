package access

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

var (
	clientAuthTypes = map[string]tls.ClientAuthType{
		"NoClientCert":               tls.NoClientCert,
		"VerifyClientCertIfGiven":    tls.VerifyClientCertIfGiven,
		"RequireAndVerifyClientCert": tls.RequireAndVerifyClientCert,
	}
	tlsVersions = map[string]uint16{"TLS12": tls.VersionTLS12, "TLS13": tls.VersionTLS13}
)

// parseTLS reads tls_server_config, which has the fields of Prometheus' exporter-toolkit.
func parseTLS(v value, read reader) (_ *tls.Config, authorities []*x509.Certificate, err error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	var cert, key, ca, auth value
	set := func(field *value) func(value) error {
		return func(v value) error {
			*field = v
			return nil
		}
	}
	err = v.object(map[string]func(value) error{
		"cert_file": set(&cert), "key_file": set(&key), "client_ca_file": set(&ca), "client_auth_type": set(&auth),
		"min_version": func(v value) (err error) {
			config.MinVersion, err = choose(v, tlsVersions, "TLS12, TLS13")
			return err
		},
	})
	switch {
	case err != nil:
		return nil, nil, err
	case cert.node == nil || key.node == nil:
		return nil, nil, v.errorf("has no cert_file or no key_file: give both")
	}
	if err := readCertificate(config, cert, key, read); err != nil {
		return nil, nil, err
	}
	if ca.node != nil {
		config.ClientAuth = tls.VerifyClientCertIfGiven
		if authorities, err = readAuthorities(config, ca, read); err != nil {
			return nil, nil, err
		}
	}
	if auth.node != nil {
		if config.ClientAuth, err = choose(auth, clientAuthTypes,
			"NoClientCert, VerifyClientCertIfGiven, RequireAndVerifyClientCert"); err != nil {
			return nil, nil, err
		}
		if ca.node == nil && config.ClientAuth != tls.NoClientCert {
			return nil, nil, auth.errorf("needs client_ca_file: the authorities that certificates of clients are from")
		}
	}
	return config, authorities, nil
}

func readCertificate(config *tls.Config, cert, key value, read reader) error {
	certPEM, err := read(cert)
	if err != nil {
		return err
	}
	keyPEM, err := read(key)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return cert.errorf("and key_file are no pair: %v", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}

// readAuthorities reads the certificates of the authorities that sign the certificates of clients.
func readAuthorities(config *tls.Config, ca value, read reader) (authorities []*x509.Certificate, err error) {
	text, err := read(ca)
	if err != nil {
		return nil, err
	}
	config.ClientCAs = x509.NewCertPool()
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); block.Type == "CERTIFICATE" && err == nil {
			config.ClientCAs.AddCert(cert)
			authorities = append(authorities, cert)
		}
	}
	if len(authorities) == 0 {
		return nil, ca.errorf("has no certificate in PEM")
	}
	return authorities, nil
}

// certificate returns the certificate of the client that sent a request, or nil without a valid one. The connection can
// be older than the settings, and last longer than the certificate.
func (s *settings) certificate(r *http.Request) *x509.Certificate {
	if r.TLS == nil || !s.verifiesClients() {
		return nil
	}
	now := time.Now()
	for _, chain := range r.TLS.VerifiedChains {
		expired := slices.ContainsFunc(chain, func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
		if !expired && slices.ContainsFunc(s.authorities, chain[len(chain)-1].Equal) {
			return chain[0]
		}
	}
	return nil
}

// choose returns the choice that a value names.
func choose[T any](v value, choices map[string]T, names string) (T, error) {
	return parsed(v, func(name string) (T, error) {
		chosen, known := choices[name]
		if !known {
			return chosen, store.Invalid("is %q%s", nearest.Clip(name),
				nearest.DidYouMean(name, strings.Split(names, ", "), "give one of "+names))
		}
		return chosen, nil
	})
}

// namesOf returns the names in a certificate: the common name first, then the alternative ones.
func namesOf(cert *x509.Certificate) []string {
	names := append([]string{cert.Subject.CommonName}, cert.DNSNames...)
	names = append(names, cert.EmailAddresses...)
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	return names
}
