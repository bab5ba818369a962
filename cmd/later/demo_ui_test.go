//go:build unix

package main

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/laterq/later"
)

func TestDemoOnThePageGoesOnAndRemovesItsQueues(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	within, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	p := c.start("demo", "--ui", "--no-open")
	url := p.await(p.stdout, "http://127.0.0.1:")
	watch, err := c.client().Watch(t.Context()) // the demo's queues exist by now
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	isPage(t, url)
	seen := map[later.EventKind]bool{}
	for !seen[later.EventBuried] || !seen[later.EventNacked] || !seen[later.EventAcked] {
		e, err := watch.Next(within)
		if err != nil {
			t.Fatalf("after %v: %v", seen, err)
		}
		seen[e.Kind] = true
	}
	for path, want := range map[string]string{"v1/queues": `"paused":true`, "v1/topics": "-paid",
		"v1/schedules": "taxes", "v1/workers": `"demo"`} {
		if _, _, body := visit(t, url+path); !strings.Contains(body, want) {
			t.Errorf("%s: %s", path, body)
		}
	}
	p.signal(syscall.SIGINT)
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
	for what, want := range map[string]string{"queues": "schedules:\n", "topic list": "", "schedule list": ""} {
		if got := c.ok(strings.Fields(what)...); got != want {
			t.Errorf("%s: left: %s", what, got)
		}
	}
}

func TestDemoOnThePageNeedsNoStore(t *testing.T) {
	t.Setenv("LATER_STORE", "")
	t.Setenv("HOME", t.TempDir())
	p := (&cli{t, ""}).start("demo", "--ui", "--no-open")
	isPage(t, p.await(p.stdout, "http://127.0.0.1:"))
	p.signal(syscall.SIGTERM)
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}
