//go:build unix

package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyASIGTERMWithinTwoSecondsOfAnotherIsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r stopRequests
		for i, step := range []struct {
			after  time.Duration
			signal syscall.Signal
			want   bool
		}{
			{0, syscall.SIGINT, false}, {0, syscall.SIGINT, false},
			{0, syscall.SIGTERM, false}, {0, syscall.SIGTERM, true}, {0, syscall.SIGINT, false},
			{copyWithin - 1, syscall.SIGTERM, true}, {1, syscall.SIGTERM, false}, {time.Hour, syscall.SIGTERM, false},
		} {
			time.Sleep(step.after)
			if got := r.isCopy(step.signal); got != step.want {
				t.Errorf("step %d: isCopy(%v) returned %v", i, step.signal, got)
			}
		}
	})
}

// The command may be done before the copy comes. With the signal's default action this would end the tests.
func TestACopyOfSIGTERMDoesNotKillACommandThatIsDone(t *testing.T) {
	ctx, stop := interruptible(t.Context())
	terminate := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	terminate()
	<-ctx.Done()
	stop()
	terminate()
}

// timeout(1) sends SIGTERM twice. The call under way is answered all the same, and the exit code is that of a drain.
func TestServeIgnoresACopyOfSIGTERM(t *testing.T) {
	c := newDiskCLI(t)
	server, url := c.startServe()
	address := strings.TrimPrefix(url, "http://")
	call, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	const payload = `{"payload":"x"}`
	fmt.Fprintf(call, "POST /v1/queues/q/messages HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", address, len(payload))
	reply := bufio.NewReader(call)
	expect := func(status string) {
		t.Helper()
		call.SetReadDeadline(time.Now().Add(eventTimeout))
		for line := ""; !strings.HasPrefix(line, "HTTP/1.1"); {
			if line, err = reply.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(line, "HTTP/1.1") && !strings.Contains(line, status) {
				t.Fatalf("reply is %q, want %s", line, status)
			}
		}
	}
	expect("100 Continue")
	server.signal(syscall.SIGTERM)
	for begin := time.Now(); ; { // until the first signal has taken effect
		other, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		other.Close()
		if time.Since(begin) > eventTimeout {
			t.Fatal("the server still listens")
		}
	}
	server.signal(syscall.SIGTERM)
	fmt.Fprint(call, payload)
	expect("20")
	if exit := server.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestServeIsKilledByASecondCtrlC(t *testing.T) {
	c := newDiskCLI(t)
	server, url := c.startServe()
	call, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	fmt.Fprint(call, "POST /v1/queues/q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
	call.SetReadDeadline(time.Now().Add(eventTimeout))
	if _, err := bufio.NewReader(call).ReadString('\n'); err != nil { // 100 Continue: the call is under way
		t.Fatal(err)
	}
	server.signal(syscall.SIGINT)
	for {
		other, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			break
		}
		other.Close()
	}
	server.signal(syscall.SIGINT)
	if exit := server.exit(); exit != 130 {
		t.Errorf("exit %d, want 130", exit)
	}
}
