package server

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// BenchmarkFind searches 1,000 queues on Redis for a message with an id, and for a word that no message has. It reports
// the median and the 99th percentile of the time over HTTP until the message, until the first line of progress, until
// all names were looked at, and until 50,000 messages were looked at.
//
//	go test ./server -run '^$' -bench Find -benchtime 100x -timeout 30m
//
// LATER_PAGES_PENDING sets another number of messages than 20,000. 10,000,000 take 2.4 GB and some minutes to send.
func BenchmarkFind(b *testing.B) {
	pending := pendingOf(b)
	c, h := newBenchServer(b)
	queues := fillThousand(b, c, pending)
	// find makes a search, and notes when the first line with each of some texts came.
	find := func(query string, texts []string, took map[string][]time.Duration) {
		begin := time.Now()
		reply, err := http.Get(h.URL + "/v1/find?preview=300&q=" + url.QueryEscape(query))
		if err != nil || reply.StatusCode != http.StatusOK {
			b.Fatal(reply, err)
		}
		defer reply.Body.Close()
		lines := bufio.NewScanner(reply.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() && len(texts) > 0 {
			if strings.Contains(lines.Text(), texts[0]) {
				took[texts[0]] = append(took[texts[0]], time.Since(begin))
				texts = texts[1:]
			}
		}
		if len(texts) > 0 {
			b.Fatalf("%s: no line has %q, %v", query, texts[0], lines.Err())
		}
	}
	const message, progress, names, end = `"message":`, `{"stage":"id","progress"`, `{"stage":"name","progress"`, `"next":`
	units := map[string]string{message: "message-", progress: "progress-", names: "names-", end: "looked-"}
	for name, search := range map[string]struct {
		text  func() string
		lines []string
	}{
		"id":   {func() string { return "last-of-" + queues[rand.N(len(queues))] }, []string{message}},
		"word": {func() string { return "no such message" }, []string{progress, names, end}},
	} {
		if pending <= 50_000 && name == "word" {
			search.lines = search.lines[:2]
		}
		b.Run(fmt.Sprintf("%s/pending=%d", name, pending), func(b *testing.B) {
			took := map[string][]time.Duration{}
			for b.Loop() {
				find(search.text(), search.lines, took)
			}
			for line, times := range took {
				reportTimes(b, times, units[line])
			}
		})
	}
}
