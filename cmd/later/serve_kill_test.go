//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// Clients repeat the requests that a killed server left without reply, at the next server.
func TestRequestsWithAKeyAreSentOnceThoughServersAreKilled(t *testing.T) {
	const clients, kills, between = 8, 5, 40
	for name, c := range map[string]*cli{"Redis": newCLI(t), "embedded": newDiskCLI(t)} {
		t.Run(name, func(t *testing.T) {
			c.t = t
			defer http.DefaultClient.CloseIdleConnections()
			var repeated atomic.Int64
			ask := func(url, key string) bool {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/queues/mail/messages",
					strings.NewReader(`{"payload": "x", "in": "1h"}`))
				if err != nil {
					t.Error(err)
					return false
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Idempotency-Key", key)
				reply, err := http.DefaultClient.Do(r)
				if err != nil {
					return false
				}
				defer reply.Body.Close()
				var sent struct{ Outcome string }
				if err := json.NewDecoder(reply.Body).Decode(&sent); err != nil {
					return false
				}
				if sent.Outcome == "duplicate" {
					repeated.Add(1)
				}
				return reply.StatusCode == http.StatusCreated
			}
			var next [clients]int // the key that each client asks with
			for kill := range kills {
				server, url := c.startServe()
				var asked atomic.Int64
				enough := make(chan struct{})
				var asking sync.WaitGroup
				for client := range clients {
					asking.Go(func() {
						for ask(url, fmt.Sprint(client, " ", next[client])) {
							next[client]++
							if asked.Add(1) == between {
								close(enough)
							}
						}
					})
				}
				<-enough
				server.signal(syscall.SIGKILL)
				asking.Wait()
				server.exit()
				t.Logf("after kill %d: %v, %d repeated", kill, next, repeated.Load())
			}
			_, url := c.startServe()
			want := 0
			for client, n := range next {
				if !ask(url, fmt.Sprint(client, " ", n)) {
					t.Errorf("client %d is not answered", client)
				}
				want += n + 1
			}
			contains(t, c.ok("stats", "mail", "--json"), fmt.Sprintf(`"scheduled":%d,`, want))
		})
	}
}
