package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestServeKeepsFinishedMessages(t *testing.T) {
	t.Parallel()
	c := newDiskCLI(t)
	c.store = "mem://"
	_, url := c.startServe("--keep-finished", "mail*", "--finished-age", "7d", "--finished-count", "5")
	c.store = url
	c.ok("send", "mail-1", "secret", "--id", "a", "--in", "1h")
	c.ok("cancel", "mail-1", "a")
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	for text := ""; !strings.Contains(text, `"outcome":"cancelled"`); {
		text = finishedOf(ctx, t, url+"/v1/queues/mail-1/finished")
		if !strings.Contains(text, `"max_count":5,"max_age":"168h0m0s"`) || strings.Contains(text, "secret") {
			t.Fatal(text)
		}
	}
	if text := finishedOf(ctx, t, url+"/v1/server"); !strings.Contains(text, `"keeps_finished":["mail*"]`) {
		t.Error(text)
	}
}

// finishedOf returns a reply.
func finishedOf(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
