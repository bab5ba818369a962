//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/server"
)

// BenchmarkHTTP measures b.N sends of 100 bytes over 64 connections, in a process that collects garbage seldom as later
// serve does. The client costs next to nothing. The handler "empty" reads requests and does nothing.
func BenchmarkHTTP(b *testing.B) {
	defer (&Main{}).collectSeldom()()
	handlers := map[string]http.Handler{"empty": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
	})}
	for name, url := range map[string]string{
		"redis": redistest.Start(b, redistest.Args("--appendonly", "no")).URL(), "memory": "mem://",
		"embedded": "file://" + b.TempDir(),
	} {
		c, err := later.Open(b.Context(), url)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		api, err := server.New(c, server.Config{})
		if err != nil {
			b.Fatal(err)
		}
		defer api.Close()
		handlers[name] = api
	}
	body := fmt.Sprintf(`{"payload": %q, "in": "1h"}`, strings.Repeat("x", 100))
	for _, name := range []string{"empty", "redis", "memory", "embedded"} {
		b.Run(name, func(b *testing.B) {
			s := httptest.NewServer(handlers[name])
			defer s.Close()
			const connections = 64
			var all sync.WaitGroup
			for i := range connections {
				conn := post(b, s.Listener.Addr().String(), "/v1/queues/bench/messages", "")
				all.Go(func() {
					answers := textproto.NewReader(bufio.NewReader(conn))
					for n := i; n < b.N; n += connections {
						fmt.Fprint(conn, request("/v1/queues/bench/messages", body))
						skipAnswer(b, answers)
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

func request(path, body string) string {
	return fmt.Sprintf(
		"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, len(body), body)
}

// post connects to a server, and makes a request unless the body is empty.
func post(b *testing.B, address, path, body string) net.Conn {
	conn, err := net.Dial("tcp", address)
	if err == nil && body != "" {
		_, err = io.WriteString(conn, request(path, body))
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return conn
}

// skipAnswer reads an answer with a length.
func skipAnswer(b *testing.B, r *textproto.Reader) {
	status, err := r.ReadLine()
	if err != nil || !strings.Contains(status, " 20") {
		b.Errorf("%s, %v", status, err)
		return
	}
	header, err := r.ReadMIMEHeader()
	length, _ := strconv.Atoi(header.Get("Content-Length"))
	if _, skipped := r.R.Discard(length); err != nil || skipped != nil {
		b.Error(err, skipped)
	}
}

// BenchmarkServerWithWaits measures the memory of later serve, with a store in memory, while b.N requests wait.
func BenchmarkServerWithWaits(b *testing.B) {
	cmd := exec.CommandContext(b.Context(), os.Args[0], "serve", "--store", "mem://", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), runAsProgramEnv+"=1")
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	address := ""
	for lines := bufio.NewScanner(said); address == "" && lines.Scan(); {
		_, address, _ = strings.Cut(lines.Text(), "at=http://")
	}
	address, _, _ = strings.Cut(address, " ")
	for range b.N {
		post(b, address, "/v1/queues/waiting/receive", `{"wait": "5m"}`)
	}
	for end := time.Now().Add(time.Minute); ; {
		reply, err := http.Get("http://" + address + "/v1/server")
		if err != nil {
			b.Fatal(err)
		}
		text, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		if strings.Contains(string(text), fmt.Sprintf(`"waits":%d,`, b.N)) {
			break
		}
		if time.Now().After(end) {
			b.Fatalf("%s", text)
		}
	}
	mib, err := residentMiB(cmd.Process.Pid)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(mib, "MiB")
}
