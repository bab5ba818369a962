//go:build unix

package main

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// withBrowser has BROWSER name a program that says which URL it opens, and returns a function that waits for that.
func withBrowser(t *testing.T) (opened func() string) {
	t.Helper()
	dir := t.TempDir()
	fifo, program := filepath.Join(dir, "opened"), filepath.Join(dir, "browser")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$*\" >"+fifo+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BROWSER", program+" --new %s")
	return func() string {
		t.Helper()
		r.SetReadDeadline(time.Now().Add(eventTimeout))
		line, err := bufio.NewReader(r).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line)
	}
}

func TestUIOpensThePageOfTheStore(t *testing.T) {
	opened := withBrowser(t)
	c := newDiskCLI(t)
	p := c.start("ui", "--listen", "127.0.0.1:0")
	url := p.await(p.stdout, "http://127.0.0.1:")
	if got := opened(); got != "--new "+url {
		t.Errorf("%q was opened, want %s", got, url)
	}
	isPage(t, url)
	c.ok("send", "mail", "hello") // the store is shared
	if _, _, body := visit(t, url+"v1/queues"); !strings.Contains(body, `"mail"`) {
		t.Error(body)
	}
	p.signal(syscall.SIGINT)
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestUIListensElsewhereIfItsPortIsTaken(t *testing.T) {
	one, other := newDiskCLI(t).start("ui", "--no-open"), newDiskCLI(t).start("ui", "--no-open")
	first, second := one.await(one.stdout, "http://"), other.await(other.stdout, "http://")
	if first == second {
		t.Errorf("both are at %s", first)
	}
	isPage(t, first)
	isPage(t, second)
	c := newDiskCLI(t)
	taken := strings.TrimSuffix(strings.TrimPrefix(first, "http://"), "/")
	contains(t, c.fails(18, "ui", "--no-open", "--listen", taken), "listening at "+taken)
}

func TestUIOpensThePageOfAServer(t *testing.T) {
	opened := withBrowser(t)
	_, url := newDiskCLI(t).startServe("--path-prefix", "/later")
	remote := &cli{t, strings.Replace(url, "http://", "http://:secret@", 1) + "/later/"}
	if got, want := remote.ok("ui"), url+"/later/\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := opened(); got != "--new "+url+"/later/" {
		t.Errorf("%q was opened", got)
	}
	contains(t, (&cli{t, "http://127.0.0.1:1"}).fails(18, "ui"), "does not answer")
	_, url = newDiskCLI(t).startServe("--no-page")
	contains(t, (&cli{t, url}).fails(11, "ui"), "has no page")
	if got := (&cli{t, "https://127.0.0.1:1?tls_ca=x"}).ok("ui", "--no-open"); got != "https://127.0.0.1:1/\n" {
		t.Error(got)
	}
}

func TestUISaysThatThereIsNoBrowser(t *testing.T) {
	t.Setenv("BROWSER", "/nowhere/browser")
	_, url := newDiskCLI(t).startServe()
	r := (&cli{t, url}).run("ui")
	if r.exit != 0 || r.stdout != url+"/\n" {
		t.Errorf("exit %d: %s", r.exit, r.stdout)
	}
	contains(t, r.stderr, "no browser was opened: ", "/nowhere/browser")
}

func TestBrowserIsTheSystemsOrTheNamedOne(t *testing.T) {
	for _, test := range []struct {
		goos, browser string
		want          []string
	}{
		{"linux", "", []string{"xdg-open", "URL"}},
		{"darwin", " ", []string{"open", "URL"}},
		{"windows", "", []string{"rundll32", "url.dll,FileProtocolHandler", "URL"}},
		{"linux", "firefox --new-tab", []string{"firefox", "--new-tab", "URL"}},
		{"darwin", "chrome --app=%s -x", []string{"chrome", "--app=URL", "-x"}},
	} {
		if got := browserCommand(test.goos, test.browser, "URL"); !slices.Equal(got, test.want) {
			t.Errorf("%s, %q: %q, want %q", test.goos, test.browser, got, test.want)
		}
	}
}
