package page

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api stands for the handler of all requests that are not for the page.
var api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "api "+r.URL.Path) })

// ask returns the reply to a request with headers, which are names and values.
func ask(t *testing.T, h http.Handler, method, target string, headers ...string) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, r)
	reply := recorder.Result()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply, string(body)
}

func TestPageIsAtTheRootAndTheAPIElsewhere(t *testing.T) {
	h := Handler(api)
	for target, want := range map[string]string{"/": "<!doctype html>", "/?queue=mail": "<!doctype html>",
		"/v1/queues": "api /v1/queues", "/assets": "api /assets", "/index.html": "api /index.html"} {
		if reply, body := ask(t, h, "GET", target); reply.StatusCode != http.StatusOK ||
			!strings.HasPrefix(body, want) {
			t.Errorf("%s: %s %.40q", target, reply.Status, body)
		}
	}
	for target, want := range map[string]int{"/assets/none.js": 404, "/assets/": 404, "/assets/../page.go": 404} {
		if reply, body := ask(t, h, "GET", target); reply.StatusCode != want {
			t.Errorf("%s: %s %.40q", target, reply.Status, body)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		reply, _ := ask(t, h, method, "/")
		if reply.StatusCode != http.StatusMethodNotAllowed || reply.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %s", method, reply.Status)
		}
	}
}

func TestPageMayLoadItsOwnFilesOnly(t *testing.T) {
	for _, target := range []string{"/", "/assets/index.html", "/assets/none.js"} {
		reply, _ := ask(t, Handler(api), "GET", target)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
				"connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
			"Cross-Origin-Opener-Policy": "same-origin",
			"Referrer-Policy":            "no-referrer",
			"X-Content-Type-Options":     "nosniff",
		} {
			if got := reply.Header.Get(name); got != want {
				t.Errorf("%s: %s: %q", target, name, got)
			}
		}
	}
}

func TestPageIsCompressedForThoseWhoAcceptIt(t *testing.T) {
	h := Handler(api)
	_, plain := ask(t, h, "GET", "/")
	tags := map[string]bool{}
	for accept, compressed := range map[string]bool{"": false, "br": false, "gzip;q=0": false, "br, gzip;q=0.0": false,
		"gzip": true, "br;q=1.0, GZIP;q=0.5": true, "deflate, gzip, br": true} {
		reply, body := ask(t, h, "GET", "/", "Accept-Encoding", accept)
		if got := reply.Header.Get("Content-Encoding") == "gzip"; got != compressed {
			t.Fatalf("%q: compressed %v, want %v", accept, got, compressed)
		}
		if compressed {
			r, err := gzip.NewReader(strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			body = string(text)
		}
		if body != plain || reply.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: header %v: %.40q", accept, reply.Header, body)
		}
		tags[reply.Header.Get("ETag")] = true
	}
	if len(tags) != 2 {
		t.Errorf("tags %v, want one for each encoding", tags)
	}
}

func TestPageIsSentAgainOnlyWhenItHasChanged(t *testing.T) {
	h := Handler(api)
	first, body := ask(t, h, "GET", "/")
	tag := first.Header.Get("ETag")
	if body == "" || !strings.HasPrefix(tag, `"`) || first.Header.Get("Cache-Control") != "no-cache" {
		t.Fatalf("header %v", first.Header)
	}
	again, body := ask(t, h, "GET", "/", "If-None-Match", tag)
	if again.StatusCode != http.StatusNotModified || body != "" || again.Header.Get("ETag") != tag {
		t.Errorf("%s, header %v: %.40q", again.Status, again.Header, body)
	}
	if other, _ := ask(t, h, "GET", "/", "If-None-Match", `"other"`); other.StatusCode != http.StatusOK {
		t.Errorf("with another tag: %s", other.Status)
	}
	head, body := ask(t, h, "HEAD", "/")
	if head.StatusCode != http.StatusOK || body != "" || head.Header.Get("ETag") != tag {
		t.Errorf("HEAD: %s %.40q", head.Status, body)
	}
}

func TestFilesOfAVersionAreKeptForGood(t *testing.T) {
	h, version := Handler(api), load().version
	for name, f := range load().files {
		for folder, caching := range map[string]string{"": "no-cache",
			version + "/": "public, max-age=31536000, immutable", versionPrefix + "other/": "no-cache"} {
			reply, body := ask(t, h, "GET", assetsPath+folder+name)
			if reply.StatusCode != http.StatusOK || body != string(f.plain) ||
				reply.Header.Get("Cache-Control") != caching || reply.Header.Get("Content-Type") != f.contentType {
				t.Errorf("%s%s: %s, header %v", folder, name, reply.Status, reply.Header)
			}
		}
	}
}

func TestPageWorksUnderAPrefix(t *testing.T) {
	h := http.StripPrefix("/a/later", Handler(api))
	for target, want := range map[string]string{"/a/later": "./later/", "/a/later?queue=mail": "./later/?queue=mail"} {
		reply, _ := ask(t, h, "GET", target)
		if got := reply.Header.Get("Location"); reply.StatusCode != http.StatusPermanentRedirect || got != want {
			t.Errorf("%s: %s to %q", target, reply.Status, got)
		}
	}
	if reply, body := ask(t, h, "GET", "/a/later/"); !strings.HasPrefix(body, "<!doctype html>") {
		t.Errorf("%s %.40q", reply.Status, body)
	}
	if _, body := ask(t, h, "GET", "/a/later/v1/queues"); body != "api /v1/queues" {
		t.Error(body)
	}
}
