package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/server"
	"github.com/laterq/later/store"
)

const (
	httpConnections = 64
	httpFor         = 5 * time.Second
	httpWaits       = 10_000
)

type benchHTTPJSON struct {
	Workload    string   `json:"workload"`
	Connections int      `json:"connections"`
	Empty       float64  `json:"empty_per_second"`
	Sends       float64  `json:"sends_per_second"`
	Ratio       float64  `json:"ratio"`
	Waits       int      `json:"waits"`
	WaitingMiB  *float64 `json:"waiting_mib,omitempty"`
}

// http measures sends over HTTP, and requests that wait.
func (b *bench) http(ctx context.Context, q benchQueue) error {
	name := fmt.Sprintf("http, %d connections", httpConnections)
	b.progress(name)
	defer b.main.collectSeldom()() // as later serve does
	body := fmt.Sprintf(`{"payload": %q, "in": "1h"}`, strings.Repeat("x", b.o.size))
	var rates [2]float64
	for i, h := range []http.Handler{benchmark.Empty, nil} {
		var err error
		if rates[i], err = b.postTo(ctx, h, "/v1/queues/"+benchmark.NameOf(q)+"/messages", body); err != nil {
			return err
		}
	}
	j := benchHTTPJSON{Workload: "http", Connections: httpConnections, Empty: round3(rates[0]), Sends: round3(rates[1]),
		Ratio: round3(rates[1] / rates[0]), Waits: httpWaits}
	b.progress("requests that wait")
	mib, err := waitingMemory(ctx)
	if err != nil {
		return err
	}
	waiting := "not measured on this system"
	if mib > 0 {
		j.WaitingMiB = &mib
		waiting = fmt.Sprintf("%.0f MiB", mib)
	}
	return b.result(j, name, "%9.0f sends/s, %.2f of the %.0f requests/s of an empty handler  a server with %d waiting "+
		"requests: %s", j.Sends, j.Ratio, j.Empty, httpWaits, waiting)
}

// postTo measures requests to a handler, or to the API of this client if it is nil.
func (b *bench) postTo(ctx context.Context, h http.Handler, path, body string) (float64, error) {
	if h == nil {
		api, err := server.New(b.client, server.Config{Logger: b.main.logger()})
		if err != nil {
			return 0, err
		}
		defer api.Close()
		h = api
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	site := &http.Server{Handler: h, ReadHeaderTimeout: headTimeout}
	ended := make(chan error, 1)
	go func() { ended <- site.Serve(listener) }()
	defer func() {
		site.Close()
		<-ended
	}()
	return benchmark.Post(ctx, listener.Addr().String(), path, body, httpConnections, httpFor)
}

// waitingMemory returns how much more memory a server takes, with a store in memory, when many requests wait.
func waitingMemory(ctx context.Context) (mib float64, err error) {
	if runtime.GOOS != "linux" {
		return 0, nil
	}
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program, "serve", "--store", "mem://", "--listen", "127.0.0.1:0")
	said, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	address := ""
	for lines := bufio.NewScanner(said); address == "" && lines.Scan(); {
		if found := regexp.MustCompile(`at=http://(\S+)`).FindStringSubmatch(lines.Text()); found != nil {
			address = found[1]
		}
	}
	if address == "" {
		return 0, fmt.Errorf("later serve did not start: %w", store.ErrUnavailable)
	}
	url := "http://" + address
	end, err := benchmark.Waits(ctx, address, "/v1/queues/waiting/receive", httpWaits)
	if err != nil {
		return 0, fmt.Errorf("%d requests that wait need as many files in each of two processes, see ulimit -n: %w",
			httpWaits, err)
	}
	defer end()
	if err := serverWaits(ctx, url, httpWaits); err != nil {
		return 0, err
	}
	return residentMiB(cmd.Process.Pid)
}

// residentMiB returns the memory of a process in MiB.
func residentMiB(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		return 0, errors.New("no VmRSS in /proc")
	}
	kb, err := strconv.ParseFloat(string(found[1]), 64)
	return round3(kb / 1024), err
}

// serverWaits returns when a server has n requests that wait.
func serverWaits(ctx context.Context, url string, n int) error {
	for {
		reply, err := http.Get(url + "/v1/server")
		if err != nil {
			return err
		}
		var info server.ServerInfo
		err = json.NewDecoder(reply.Body).Decode(&info)
		reply.Body.Close()
		if err != nil || info.Waits >= n {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
