//go:build unix

package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

func TestChangesThroughServersAreListed(t *testing.T) {
	c := newCLI(t)
	if r := c.run("changes"); r.exit != 0 || r.stdout != "" || !strings.Contains(r.stderr, "nothing was changed") {
		t.Errorf("without changes: %+v", r)
	}
	c.ok("send", "mail", "x", "--id", "1", "--in", "1h")
	c.ok("pause", "other") // not through a server
	p, url := c.startServe()
	defer http.DefaultClient.CloseIdleConnections()
	for _, path := range []string{"/v1/queues/mail/pause", "/v1/queues/mail/messages/1/run"} {
		reply, err := http.Post(url+path, "", nil)
		if err != nil || reply.StatusCode != http.StatusOK {
			t.Fatal(reply, err)
		}
		reply.Body.Close()
	}
	(&cli{t, url}).ok("changes") // over the network
	p.signal(syscall.SIGTERM)
	if exit := p.exit(); exit != 0 {
		t.Fatalf("exit %d", exit)
	}
	all := objects(t, c.ok("changes", "--json"))
	if len(all) != 2 || all[0]["what"] != "message run now" || all[0]["queue"] != "mail" || all[0]["who"] != "anyone" ||
		all[1]["what"] != "queue paused" || all[1]["attributes"] == nil {
		t.Errorf("%v", all)
	}
	contains(t, c.ok("changes"), "TIME  ", "WHO     WHAT ", "message run now  mail   id=1\n", "queue paused     mail")
	if got := c.ok("changes", "--limit", "1"); strings.Contains(got, "paused") {
		t.Error(got)
	}
	contains(t, c.fails(2, "changes", "--limit", "0"), "must be 1 to 1000")
	if got := c.ok("queues"); strings.Contains(got, "changes") {
		t.Error(got)
	}
}
