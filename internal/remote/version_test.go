package remote

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// clientsOf returns clients of an HTTP server, one as of another machine and one as of a socket.
func clientsOf(t *testing.T, h http.Handler) map[string]*Client {
	at := httptest.NewServer(h)
	clients := map[string]*Client{
		"http": NewClient(router{&Target{url: at.URL + Path, http: newClient(newTransport())}}, silent, time.Minute),
		"socket": NewClient(router{NewSocketTarget(func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", at.Listener.Addr().String())
		}, nil)}, silent, time.Minute),
	}
	t.Cleanup(func() {
		for _, c := range clients {
			c.Close()
		}
		at.Close()
	})
	return clients
}

func TestAServerOfAnotherVersionIsUnsupported(t *testing.T) {
	var server *Server
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"version 2": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "bodies have the type application/vnd.later.store.v2", http.StatusUnsupportedMediaType)
		}, "speaks version 3 of the store protocol and the server version 2: use the same version of Later"},
		"versions to come": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(versionsHeader, "5-7")
			http.Error(w, "refused", http.StatusUnsupportedMediaType)
		}, "and the server version 5-7"},
		"a proxy": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "of a proxy", http.StatusUnsupportedMediaType)
		}, "and the server another one"},
		"this one, for a client of version 1": {func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Content-Type", mediaTypes+"1")
			r.Header.Del(versionsHeader)
			server.ServeHTTP(w, r)
		}, "this server speaks version 3 of the store protocol and the client version 1"},
	} {
		server = NewServer(memstore.New(), silent, true)
		for way, client := range clientsOf(t, c.handler) {
			_, err := client.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
			if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v, want ErrUnsupported with %q", name, way, err, c.want)
			}
		}
		server.Close()
	}
}

func TestAConnectionIsMadeIfAVersionIsCommonToBoth(t *testing.T) {
	for theirs, common := range map[string]bool{
		"3": true, "3-3": true, "2-9": true, "1-3": true, "3-9": true, "1-2": false, "4-9": false, "2": false,
		"x": true, // without versions the media type is theirs
	} {
		server := NewServer(memstore.New(), silent, true)
		c := clientsOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set(versionsHeader, theirs)
			server.ServeHTTP(w, r)
		}))["socket"]
		if _, err := c.Stats(t.Context(), "q"); (err == nil) != common {
			t.Errorf("a client of versions %s: %v", theirs, err)
		}
		server.Close()
	}
}
