//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// soakPhase is how long a soak measures the good client, first alone and then with the bad ones.
const soakPhase = 20 * time.Second

// badClient is a client that takes as much as it can get. Its function next waits for its own pace.
type badClient struct {
	net.Conn
	replies *bufio.Reader
	next    func() bool
}

// ask sends a request of the token of all bad clients.
func (c *badClient) ask(method, path, more, body string) bool {
	_, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret of bad\r\n%s"+
		"Content-Length: %d\r\n\r\n%s", method, path, more, len(body), body)
	return err == nil
}

// asksAgain reads a reply, as a client does that goes on with the same connection.
func (c *badClient) asksAgain() bool {
	reply, err := http.ReadResponse(c.replies, nil)
	if err != nil {
		return false
	}
	defer reply.Body.Close()
	_, err = io.Copy(io.Discard, reply.Body)
	return err == nil && !reply.Close
}

// trickle sends a text for as long as the server takes it, a byte at a time.
func (c *badClient) trickle(text string) {
	for c.next() {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// hold holds the connection, and reads nothing.
func (c *badClient) hold() {
	for c.next() {
		if _, err := c.Write(nil); err != nil {
			return
		}
	}
}

// badClients are the kinds of bad clients, each with its use of a connection.
var badClients = map[string]func(*badClient){
	"slow head": func(c *badClient) {
		io.WriteString(c, "GET / HTTP/1.1\r\nX: ")
		c.trickle("x")
	},
	"slow body": func(c *badClient) {
		io.WriteString(c, "POST /v1/queues/mail/messages HTTP/1.1\r\nHost: localhost\r\n"+
			"Authorization: Bearer secret of bad\r\nContent-Length: 8000000\r\n\r\n")
		c.trickle(" ")
	},
	"slow body of nobody": func(c *badClient) {
		io.WriteString(c, "POST /v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n")
		c.trickle(" ")
	},
	"lines that stop": func(c *badClient) {
		io.WriteString(c, "POST /v1/queues/bad/messages/batch HTTP/1.1\r\nHost: localhost\r\n"+
			"Authorization: Bearer secret of bad\r\nContent-Type: application/x-ndjson\r\nContent-Length: 100000\r\n\r\n{}\n{")
		c.hold()
	},
	"unread list": func(c *badClient) {
		c.ask("GET", "/v1/queues/large/messages?state=ready&limit=500", "", "")
		c.hold()
	},
	"unread refusals": func(c *badClient) {
		for c.next() {
			requests := strings.Repeat("GET /v1/queues HTTP/1.1\r\nHost: localhost\r\n\r\n", 20)
			if _, err := io.WriteString(c, requests); err != nil {
				return
			}
		}
	},
	"unread events": func(c *badClient) {
		c.ask("GET", "/v1/events", "", "")
		c.hold()
	},
	"unread overviews": func(c *badClient) {
		c.ask("GET", "/v1/overview/watch", "", "")
		c.hold()
	},
	"waits": func(c *badClient) {
		for c.ask("POST", "/v1/queues/nothing/receive", "", `{"wait": "5m"}`) && c.asksAgain() && c.next() {
		}
	},
	"logins": func(c *badClient) {
		for c.ask("POST", "/v1/login", "", `{"token": "guess"}`) && c.asksAgain() && c.next() {
		}
	},
	"passwords": func(c *badClient) {
		for c.next() {
			if _, err := io.WriteString(c, "GET /v1/queues HTTP/1.1\r\nHost: localhost\r\n"+
				"Authorization: Basic YW5uOmd1ZXNz\r\n\r\n"); err != nil || !c.asksAgain() {
				return
			}
		}
	},
	"lists": func(c *badClient) {
		for c.ask("GET", "/v1/queues/large/messages?state=ready&limit=500", "", "") && c.asksAgain() && c.next() {
		}
	},
	"hostile JSON": func(c *badClient) {
		body := `{"messages": [{"payload": [` + strings.Repeat(`{"":0},`, 20_000) + `0]}]}`
		for c.ask("POST", "/v1/queues/bad/messages/batch", "", body) && c.asksAgain() && c.next() {
		}
	},
}

// soak is a server with bad clients.
type soak struct {
	t       *testing.T
	address string
}

// fill sends messages that are large, and six times as large as JSON.
func (s *soak) fill() {
	for range 20 {
		body := strings.NewReader(strings.Repeat("\x01", 200_000))
		r, err := http.NewRequest(http.MethodPost, "http://"+s.address+"/v1/queues/large/messages", body)
		if err != nil {
			s.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer secret of good")
		r.Header.Set("Content-Type", "text/plain")
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			s.t.Fatal(err)
		}
		reply.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
}

// soakBad is a variable that has the test's program be n bad clients of a server, each with a pace: "n pace address".
const soakBad = "LATER_SOAK_BAD"

// TestBadClients is the process of the bad clients. It prints a line when all of them have had a connection. When its
// input ends, it prints the number of rounds of each kind.
func TestBadClients(t *testing.T) {
	if os.Getenv(soakBad) == "" {
		t.Skip("only for TestServeWithBadClients")
	}
	var n int
	var pace, address string
	if _, err := fmt.Sscan(os.Getenv(soakBad), &n, &pace, &address); err != nil {
		t.Fatal(err)
	}
	every, err := time.ParseDuration(pace)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var all, open sync.WaitGroup
	rounds := map[string]*atomic.Int64{}
	kinds := slices.Sorted(maps.Keys(badClients))
	if only := os.Getenv("LATER_SOAK_KINDS"); only != "" {
		kinds = strings.Split(only, ",")
	}
	for _, kind := range kinds {
		rounds[kind] = new(atomic.Int64)
	}
	open.Add(n)
	for i := range n {
		kind := kinds[i%len(kinds)]
		all.Go(func() {
			opened := sync.OnceFunc(open.Done)
			defer opened()
			pace := time.NewTicker(every + time.Duration(i%100)*every/100)
			defer pace.Stop()
			next := func() bool {
				select {
				case <-pace.C:
					return true
				case <-ctx.Done():
					return false
				}
			}
			for next() {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				opened()
				badClients[kind](&badClient{conn, bufio.NewReader(conn), next})
				stop()
				conn.Close()
				rounds[kind].Add(1)
			}
		})
	}
	open.Wait()
	fmt.Println("open")
	all.Wait()
	for _, kind := range kinds {
		fmt.Printf("%s: %d\n", kind, rounds[kind].Load())
	}
}

// bad starts bad clients, in a process of the lowest priority, because real ones would not run on the server's machine.
// It returns when all have a connection. The function that it returns ends them, and returns the rounds of each kind.
func (s *soak) bad(n int, every time.Duration) (end func() string) {
	p := exec.Command("nice", "-n", "19", os.Args[0], "-test.run", "^TestBadClients$")
	p.Env = append(os.Environ(), fmt.Sprintf("%s=%d %v %s", soakBad, n, every, s.address))
	in, err := p.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { p.Process.Kill() })
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "open" {
		s.t.Log(lines.Text())
	}
	return func() string {
		in.Close()
		var did []string
		for lines.Scan() && strings.Contains(lines.Text(), ": ") {
			did = append(did, lines.Text())
		}
		io.Copy(io.Discard, out)
		p.Wait()
		return strings.Join(did, ", ")
	}
}

// good sends, receives and acks a message for each tick until done, and returns how long each request took.
func (s *soak) good(done <-chan struct{}, atLeast int) (took []time.Duration) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	token := regexp.MustCompile(`"token":"([^"]+)"`)
	ask := func(path, body string, want int) string {
		r, err := http.NewRequest(http.MethodPost, "http://"+s.address+path, strings.NewReader(body))
		if err != nil {
			s.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer secret of good")
		r.Header.Set("Content-Type", "application/json")
		begin := time.Now()
		reply, err := client.Do(r)
		if err != nil {
			s.t.Error(err)
			return ""
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		took = append(took, time.Since(begin))
		if err != nil || reply.StatusCode != want {
			s.t.Errorf("%s: %s %.300s, %v", path, reply.Status, text, err)
		}
		return string(text)
	}
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for ended := false; !ended || len(took) < atLeast; {
		select {
		case <-pace.C:
		case <-done:
			ended = true
		}
		ask("/v1/queues/good/messages", `{"payload": "x"}`, http.StatusCreated)
		got := token.FindStringSubmatch(ask("/v1/queues/good/receive", `{"wait": "10s"}`, http.StatusOK))
		if got == nil {
			s.t.Error("no message was received")
			return took
		}
		ask("/v1/leases/"+got[1]+"/ack", "", http.StatusNoContent)
	}
	return took
}

// TestServeWithBadClients has a good client use a server that hundreds of slow, greedy and half-dead ones use too.
// LATER_SOAK=5000 is a soak with so many, which compares how long the requests of the good client take;
// LATER_SOAK_KINDS=waits,lists has only clients of these kinds.
func TestServeWithBadClients(t *testing.T) {
	n, phase, every := 300, time.Duration(0), 200*time.Millisecond
	if text := os.Getenv("LATER_SOAK"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		phase, every = soakPhase, time.Second
	}
	config := filepath.Join(t.TempDir(), "web.yml")
	(&site{t: t, config: config}).configure("tokens:\n" + tokenOf("good", "admin") + tokenOf("bad", "admin") +
		"basic_auth_users: {ann: $2y$10$ljYzf.OTLtUrj4jK5S4wzu/8HTCM8g3BZs0SlSmCxJnfkMSOmJ4/y}\n" +
		"users: [{name: ann, role: admin}]\n")
	c := newDiskCLI(t)
	c.store = "mem://"
	p, url := c.startServe("--web-config", config)
	s := &soak{t: t, address: strings.TrimPrefix(url, "http://")}
	s.fill()
	measure := func() []time.Duration {
		done := make(chan struct{})
		time.AfterFunc(phase, func() { close(done) })
		took := s.good(done, 300)
		slices.Sort(took)
		return took
	}
	idle := measure()
	end := s.bad(n, every)
	loaded := measure()
	did := end()
	peak := peakMiB(t, p.cmd.Process.Pid)
	before, after := percentile(idle, 99), percentile(loaded, 99)
	t.Logf("%d bad clients: half of %d requests of the good one took up to %v, 99 %% up to %v; alone %v and %v; the "+
		"server took %d MiB at most; connections of bad clients that ended: %s", n, len(loaded), percentile(loaded, 50),
		after,
		percentile(idle, 50), before, peak, did)
	if peak > 512 {
		t.Errorf("the server took %d MiB", peak)
	}
	if phase > 0 && after > 2*before {
		t.Errorf("99 %% of the requests took up to %v, and alone %v", after, before)
	}
}

// peakMiB returns the most memory that a process has had.
func peakMiB(t *testing.T, pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no peak in %s", text)
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}
