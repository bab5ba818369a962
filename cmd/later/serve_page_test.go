//go:build unix

package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// visit returns the status, the final URL and the body of a page.
func visit(t *testing.T, url string) (status int, at, body string) {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	reply, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, reply.Request.URL.String(), string(text)
}

// isPage fails the test unless the page is at a URL.
func isPage(t *testing.T, url string) {
	t.Helper()
	if status, _, body := visit(t, url); status != http.StatusOK || !strings.HasPrefix(body, "<!doctype html>") {
		t.Errorf("%s: %d %.80q", url, status, body)
	}
}

func TestServeHasThePageAndTheAPI(t *testing.T) {
	c := newDiskCLI(t)
	_, url := c.startServe()
	isPage(t, url)
	status, _, body := visit(t, url+"/elsewhere")
	if status != http.StatusNotFound || !strings.Contains(body, "no route") {
		t.Errorf("%d %s", status, body)
	}
}

func TestServeWithoutThePageHasTheAPIOnly(t *testing.T) {
	_, url := newDiskCLI(t).startServe("--no-page")
	if status, _, body := visit(t, url); status != http.StatusNotFound || !strings.Contains(body, "no route /") {
		t.Errorf("%d %s", status, body)
	}
}

func TestServeAnswersUnderAPrefix(t *testing.T) {
	c := newDiskCLI(t)
	_, url := c.startServe("--path-prefix", "/tools/later")
	under := url + "/tools/later"
	isPage(t, url)
	isPage(t, under+"/")
	if _, at, body := visit(t, under+"?queue=mail"); at != under+"/?queue=mail" ||
		!strings.HasPrefix(body, "<!doctype") {
		t.Errorf("at %s: %.80q", at, body)
	}
	for _, path := range []string{"/v1/server", "/healthz", "/metrics"} {
		if status, _, body := visit(t, under+path); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	remote := &cli{t, under}
	remote.ok("send", "mail", "hello")
	contains(t, remote.ok("stats"), "mail")
	for _, wrong := range []string{"/later/", "/a b", "/{x}"} {
		contains(t, c.fails(2, "serve", "--path-prefix", wrong), "--path-prefix", "such as /later")
	}
}

func TestPageNeedsNoTokenButItsDataDoes(t *testing.T) {
	config := filepath.Join(t.TempDir(), "web.yml")
	(&site{t: t, config: config}).configure("tokens:\n" + tokenOf("a", "admin"))
	_, url := newDiskCLI(t).startServe("--web-config", config, "--path-prefix", "/later")
	isPage(t, url)
	isPage(t, url+"/later/")
	for _, path := range []string{"/v1/server", "/metrics", "/later/v1/server"} {
		if status, _, body := visit(t, url+path); status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
