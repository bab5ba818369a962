package remotestore

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"

	"github.com/laterq/later/store"
)

// parseURL returns the parts of a URL and the configuration of TLS, which changes the given one.
func parseURL(text string, config *tls.Config) (*url.URL, *tls.Config, error) {
	shown := store.RedactURL(text)
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.Fragment != "":
		return nil, nil, store.Invalid("store URL %s cannot be read: an example that can is https://later.example:7600",
			shown)
	case u.User != nil && !hasPassword(u.User): // which is not hidden in texts
		return nil, nil, store.Invalid("store URL at host %s has a user and no password: give "+
			"https://user:password@host, or https://:TOKEN@host", u.Host)
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, store.Invalid("store URL %s has parameters that cannot be read: join name=value by &", shown)
	}
	files := map[string]string{"tls_ca": "", "tls_cert": "", "tls_key": ""}
	for name, values := range parameters {
		if _, known := files[name]; !known || u.Scheme != "https" {
			return nil, nil, store.Invalid("store URL %s has the parameter %q: https has tls_ca, tls_cert and "+
				"tls_key, and http has none", shown, name)
		}
		if len(values) > 1 || values[0] == "" {
			return nil, nil, store.Invalid("store URL %s has the parameter %s empty or repeated: give one file",
				shown, name)
		}
		files[name] = values[0]
	}
	if len(parameters) > 0 {
		config, err = withFiles(config, files)
	}
	return u, config, err
}

func hasPassword(user *url.Userinfo) bool {
	password, given := user.Password()
	return given && (user.Username() != "" || password != "")
}

// withFiles returns a configuration with certificates from files.
func withFiles(config *tls.Config, files map[string]string) (*tls.Config, error) {
	config = cmp.Or(config, &tls.Config{MinVersion: tls.VersionTLS12}).Clone()
	if ca := files["tls_ca"]; ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, store.Invalid("tls_ca cannot be read: %v", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, store.Invalid("tls_ca %s has no certificate in PEM", ca)
		}
	}
	if cert, key := files["tls_cert"], files["tls_key"]; cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, store.Invalid("tls_cert and tls_key cannot be used: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
