package benchmark

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Post makes POST requests for a time over several connections of their own, and returns how many were answered with a
// status below 300 in a second. The client costs next to nothing, so that the rate is the server's.
func Post(ctx context.Context, address, path, body string, connections int, d time.Duration) (float64, error) {
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", path, len(body), body)
	begin := time.Now()
	counts, errs := make([]int, connections), make([]error, connections)
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() {
			var conn net.Conn
			if conn, errs[i] = new(net.Dialer).DialContext(ctx, "tcp", address); errs[i] != nil {
				return
			}
			defer conn.Close()
			answers := textproto.NewReader(bufio.NewReader(conn))
			for time.Since(begin) < d && ctx.Err() == nil {
				if _, errs[i] = conn.Write(request); errs[i] != nil {
					return
				}
				if errs[i] = skipAnswer(answers); errs[i] != nil {
					return
				}
				counts[i]++
			}
		})
	}
	all.Wait()
	took, total := time.Since(begin), 0
	for i, err := range errs {
		if err != nil {
			return 0, err
		}
		total += counts[i]
	}
	return float64(total) / took.Seconds(), context.Cause(ctx)
}

// skipAnswer reads an answer with a length.
func skipAnswer(r *textproto.Reader) error {
	status, err := r.ReadLine()
	if err != nil {
		return err
	}
	if !strings.Contains(status, " 20") {
		return fmt.Errorf("the server answered %s", status)
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

// Waits opens requests at a server that wait for messages of a queue, until the function that it returns is called.
func Waits(ctx context.Context, address, path string, n int) (end func(), err error) {
	const body = `{"wait": "5m"}`
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", path, len(body), body)
	conns := make([]net.Conn, 0, n)
	end = func() {
		for _, conn := range conns {
			conn.Close()
		}
	}
	for range n {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			conns = append(conns, conn)
			_, err = conn.Write(request)
		}
		if err != nil {
			end()
			return nil, err
		}
	}
	return end, nil
}

// Empty is a handler that reads requests and does nothing, to compare with.
var Empty = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusCreated)
})
