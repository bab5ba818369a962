//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestServeSendsEventsToManyClients(t *testing.T) {
	clients, messages := 20, 5
	if os.Getenv("LATER_LONG") != "" {
		clients, messages = 1000, 100
	}
	c := newDiskCLI(t)
	c.store = "mem://"
	p, url := c.startServe()
	post := func(id string) {
		t.Helper()
		reply, err := http.Post(url+"/v1/queues/mail/messages", "application/json",
			strings.NewReader(fmt.Sprintf(`{"id": %q, "payload": "x", "in": "1h"}`, id)))
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
	}
	post("first") // so that the queue is there to be watched
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	before, err := residentMiB(p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	var open, all sync.WaitGroup
	begin, sent := time.Now(), make([]atomic.Int64, messages) // when each was sent, since begin
	delays := make([][]time.Duration, clients)
	for i := range clients {
		open.Add(1)
		all.Go(func() {
			lines, err := openEvents(ctx, url)
			open.Done()
			if err != nil {
				t.Error(err)
				return
			}
			for len(delays[i]) < messages && lines.Scan() {
				if n := len(delays[i]); strings.Contains(lines.Text(), fmt.Sprintf(`"id":"m%d"`, n)) {
					delays[i] = append(delays[i], time.Since(begin)-time.Duration(sent[n].Load()))
				}
			}
		})
	}
	open.Wait()
	with, err := residentMiB(p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	paced := time.NewTicker(100 * time.Millisecond)
	defer paced.Stop()
	for n := range messages {
		<-paced.C
		sent[n].Store(int64(time.Since(begin)))
		post(fmt.Sprint("m", n))
	}
	all.Wait()
	for i := range delays {
		if len(delays[i]) != messages {
			t.Errorf("client %d saw %d of %d messages", i, len(delays[i]), messages)
		}
	}
	sorted := slices.Sorted(slices.Values(slices.Concat(delays...)))
	if len(sorted) > 0 {
		t.Logf("%d clients: %.0f MiB more; from a send to its event at a client: half within %v, 99 %% within %v, "+
			"all within %v", clients, with-before, sorted[len(sorted)/2], sorted[len(sorted)*99/100],
			sorted[len(sorted)-1])
	}
}

// openEvents opens a stream of events and returns its lines, when it has begun. The stream ends with ctx.
func openEvents(ctx context.Context, url string) (*bufio.Scanner, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/events?kind=sent", nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{}}
	reply, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(reply.Body)
	if reply.StatusCode != http.StatusOK || !lines.Scan() {
		return nil, fmt.Errorf("events: %s, %v", reply.Status, lines.Err())
	}
	context.AfterFunc(ctx, func() { reply.Body.Close() })
	return lines, nil
}
