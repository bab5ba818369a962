package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// benchClients is the number of connections at a time.
const benchClients = 64

// post makes b.N requests over 64 connections, with a client that costs next to nothing.
func post(b *testing.B, url, path, body string) {
	b.Helper()
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", path, len(body), body)
	b.SetParallelism(benchClients / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	var used syscall.Rusage
	syscall.Getrusage(0, &used)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		answers := textproto.NewReader(bufio.NewReader(conn))
		for pb.Next() {
			if _, err := conn.Write(request); err != nil {
				b.Error(err)
				return
			}
			if err := skipAnswer(answers); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	var used2 syscall.Rusage
	syscall.Getrusage(0, &used2)
	b.ReportMetric(float64(used2.Utime.Nano()+used2.Stime.Nano()-used.Utime.Nano()-used.Stime.Nano())/float64(b.N)/1000, "cpu-µs/op")
}

// skipAnswer reads an answer with the status 201.
func skipAnswer(r *textproto.Reader) error {
	status, err := r.ReadLine()
	if err != nil || !strings.Contains(status, " 201 ") {
		return fmt.Errorf("%s: %w", status, err)
	}
	length := 0
	for {
		line, err := r.ReadLineBytes()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			_, err := r.R.Discard(length)
			return err
		}
		if name, value, _ := bytes.Cut(line, []byte(": ")); string(name) == "Content-Length" {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		}
	}
}

// BenchmarkSend compares single sends over 64 connections with requests to a handler that reads their bodies and does
// nothing.
func BenchmarkSend(b *testing.B) {
	const body = `{"payload": "hello, this is a message of about a hundred bytes, as a reminder would have it", "in": "30m"}`
	b.Run("empty handler", func(b *testing.B) {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusCreated)
		}))
		defer h.Close()
		post(b, h.URL, "/", body)
	})
	for _, engine := range []struct{ name, url string }{
		{"memory", "mem://"}, {"Redis", redistest.Start(b).URL()},
	} {
		b.Run(engine.name, func(b *testing.B) {
			c, err := later.Open(b.Context(), engine.url)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			s, err := New(c, Config{})
			if err != nil {
				b.Fatal(err)
			}
			h := httptest.NewServer(s)
			defer h.Close()
			defer s.Close()
			post(b, h.URL, mail, body)
		})
	}
}
