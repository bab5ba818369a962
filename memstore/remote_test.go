package memstore_test

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/laterq/later/remotestore"
	"github.com/laterq/later/store/storetest"
)

// serve returns the function that opens a store in memory behind a server, which begin starts.
func serve(begin func(h http.Handler) *httptest.Server) func(t *testing.T) storetest.Harness {
	return func(t *testing.T) storetest.Harness {
		h := open(t)
		handler, err := remotestore.NewHandler(h.Store, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		server := begin(handler)
		t.Cleanup(server.Close)
		t.Cleanup(handler.Close)
		client := func() *remotestore.Store {
			var config *tls.Config
			if server.TLS != nil {
				trusted := x509.NewCertPool()
				trusted.AddCert(server.Certificate())
				config = &tls.Config{RootCAs: trusted}
			}
			s, err := remotestore.New(server.URL, remotestore.WithTLS(config))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
		h.Store, h.Peer = client(), client()
		return h
	}
}

// newTLSServer does not log that a client closes a connection that it began and does not need.
func newTLSServer(h http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	return server
}

func TestConformanceOverTheNetwork(t *testing.T) { storetest.Run(t, serve(httptest.NewServer)) }

func TestConformanceOverTLS(t *testing.T) { storetest.Run(t, serve(newTLSServer)) }

func TestStateMachineOverTheNetwork(t *testing.T) {
	if os.Getenv("LATER_LONG") == "" {
		f := flag.Lookup("rapid.checks")
		defer f.Value.Set(f.Value.String())
		f.Value.Set("8") // TestStateMachine runs the same histories, 100 of them
	}
	t.Run("http", func(t *testing.T) { storetest.RunStateMachine(t, serve(httptest.NewServer)) })
	t.Run("https", func(t *testing.T) {
		if os.Getenv("LATER_LONG") == "" {
			t.Skip("the bytes are those of http; LATER_LONG=1 runs it")
		}
		storetest.RunStateMachine(t, serve(newTLSServer))
	})
}
