//go:build unix

package main

import (
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/laterq/later/remotestore"
)

// startServe starts later serve and returns it with the URL that it says.
func (c *cli) startServe(args ...string) (p *process, url string) {
	c.t.Helper()
	if !slices.Contains(args, "--listen") {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	p = c.start(append([]string{"serve"}, args...)...)
	line := p.await(p.stderr, "serving")
	_, url, ok := strings.Cut(line, "at=")
	if !ok {
		c.t.Fatalf("no address in %q", line)
	}
	return p, strings.TrimSpace(url)
}

func TestServeSharesAStoreOverTheNetwork(t *testing.T) {
	for name, c := range map[string]*cli{"Redis": newCLI(t), "embedded": newDiskCLI(t)} {
		t.Run(name, func(t *testing.T) {
			c.t = t
			server, url := c.startServe()
			remote := &cli{t, url}
			worker := remote.start("work", "mail")
			worker.await(worker.stderr, "working on mail")
			remote.ok("send", "mail", "hello")
			worker.await(worker.stdout, "hello")
			for _, p := range []*process{worker, server} {
				p.signal(syscall.SIGTERM)
				if exit := p.exit(); exit != 0 {
					t.Errorf("exit %d", exit)
				}
			}
			remote.fails(18, "send", "mail", "nobody is there")
		})
	}
}

func TestServeRefusesAnAddressThatOthersReach(t *testing.T) {
	c := newDiskCLI(t)
	contains(t, c.fails(2, "serve", "--listen", "0.0.0.0:0"), "can be reached by other machines", "--insecure-no-auth")
	contains(t, c.fails(2, "serve", "--listen", "127.0.0.1:99999"), `--listen is "127.0.0.1:99999"`)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	contains(t, c.fails(18, "serve", "--listen", taken.Addr().String()), "listening at "+taken.Addr().String())
}

func TestWrongServerIsNamed(t *testing.T) {
	c := newDiskCLI(t)
	_, url := c.startServe()
	contains(t, (&cli{t, url + "/elsewhere"}).fails(22, "stats"), "404 Not Found")
	contains(t, (&cli{t, "http://127.0.0.1:1"}).fails(18, "stats"), "does not answer")
	contains(t, (&cli{t, url + "?x=1"}).fails(2, "stats"), "http has none")
}

func TestServeAnswersForItsOwnHostsOnly(t *testing.T) {
	for _, args := range [][]string{{}, {"--listen", "0.0.0.0:0", "--insecure-no-auth"}} {
		c := newDiskCLI(t)
		_, url := c.startServe(append(args, "--host", "queue.example")...)
		for host, want := range map[string]int{
			"": http.StatusMethodNotAllowed, "localhost": http.StatusMethodNotAllowed,
			"LOCALHOST:7600": http.StatusMethodNotAllowed, "[::1]:7600": http.StatusMethodNotAllowed,
			"queue.example": http.StatusMethodNotAllowed, "10.0.0.1": http.StatusMethodNotAllowed,
			"evil.example": http.StatusMisdirectedRequest, "evil.example:7600": http.StatusMisdirectedRequest,
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+remotestore.Path+"send", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			reply, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			reply.Body.Close()
			if reply.StatusCode != want {
				t.Errorf("%q: host %q: %s, want %d", args, host, reply.Status, want)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestServeHasProbesAndMetrics(t *testing.T) {
	c := newDiskCLI(t)
	_, url := c.startServe()
	defer http.DefaultClient.CloseIdleConnections()
	get := func(path string) string {
		reply, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		body, err := io.ReadAll(reply.Body)
		if err != nil || reply.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, reply.Status, err)
		}
		return string(body)
	}
	reply, err := http.Post(url+"/v1/queues/mail/messages", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	reply.Body.Close()
	contains(t, get("/healthz"), "ok")
	contains(t, get("/readyz"), "ok")
	contains(t, get("/metrics"), `later_messages_sent_total{queue="mail"} 1`,
		`later_queue_messages{queue="mail",state="ready"} 1`)
	contains(t, get("/v1/openapi.json"), `"/v1/queues/{queue}/messages"`)
	contains(t, get("/v1/server"), `"store":"embedded"`)
	(&cli{t, url}).ok("pause", "mail")
	contains(t, get("/v1/changes"), `"who":"anyone","what":"pause","queue":"mail"`)
}

func TestServeNeverMakesAPathShorter(t *testing.T) {
	c := newDiskCLI(t)
	c.ok("send", "victim", "hello")
	_, url := c.startServe("--path-prefix", "/later")
	defer http.DefaultClient.CloseIdleConnections()
	for _, path := range []string{"/v1/queues/victim/messages/%2E%2E", "/v1/queues/victim/messages/..",
		"/later/v1/queues/victim/messages/%2E%2E", "/later/v1/queues/victim/messages/.."} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := http.DefaultClient.Do(r) // which follows redirects
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if reply.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", path, reply.Status)
		}
	}
	contains(t, (&cli{t, url}).ok("stats", "victim"), "1")
}
