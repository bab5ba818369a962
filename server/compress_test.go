package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLongRepliesAreCompressedForThoseWhoAsk(t *testing.T) {
	a := newAPI(t)
	a.send("mail", strings.Fields("a b c d e f g h i j k l m n o p")...)
	get := func(path, accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if accept != "" {
			r.Header.Set("Accept-Encoding", accept)
		}
		w := httptest.NewRecorder()
		a.server.ServeHTTP(w, r)
		return w
	}
	const ready = mail + "?state=ready"
	plain := get(ready, "")
	for _, accept := range []string{"gzip", "br, gzip;q=0.5", "deflate,GZIP"} {
		w := get(ready, accept)
		if w.Header().Get("Content-Encoding") != "gzip" || w.Header().Get("Vary") != "Accept-Encoding" ||
			w.Header().Get("ETag") != plain.Header().Get("ETag") || w.Body.Len()*2 > plain.Body.Len() ||
			w.Code != http.StatusOK {
			t.Fatalf("%s: %d %v, %d of %d bytes", accept, w.Code, w.Header(), w.Body.Len(), plain.Body.Len())
		}
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(z); err != nil || string(text) != plain.Body.String() {
			t.Errorf("%v: %s", err, text)
		}
	}
	for path, accept := range map[string]string{
		ready: "gzip;q=0", ready + "&preview=1": "identity, br", mail + "/a": "gzip", "/v1/queues/mail/export": "gzip",
		"/v1/queues/none": "gzip",
	} {
		w := get(path, accept)
		if w.Header().Get("Content-Encoding") != "" || w.Body.Len() == 0 || w.Code != get(path, "").Code {
			t.Errorf("%s with %q: %d %v", path, accept, w.Code, w.Header())
		}
	}
}

func TestStreamsAreNotHeldBackByCompression(t *testing.T) {
	a := newAPI(t)
	r := a.watch("/v1/events?queue=new", "Accept-Encoding", "gzip")
	a.send("new", "a")
	r.expects("sent", "a")
}
