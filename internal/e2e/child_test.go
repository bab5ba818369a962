package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// child is a process with a role.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	exited chan struct{} // closed when it has exited and all its events are in the journal
}

// start starts a child and adds its events to the journal under its name. It is killed when the test ends.
func start(t *testing.T, j *journal, name string, r role) *child {
	t.Helper()
	config, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), configEnv+"="+string(config), roleEnv+"="+reflect.TypeOf(r).Name(),
		"GORACE=atexit_sleep_ms=0") // otherwise each child would exit a second late
	dieWithParent(cmd)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, stdin: stdin, exited: make(chan struct{})}

	started := make(chan error, 1)
	go func() {
		// Linux kills the child when the thread that started it exits, so keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			j.read(name, stdout)
			cmd.Wait() // the exit status is in ProcessState
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-c.exited
		if t.Failed() {
			t.Logf("child %s (%v) printed:\n%s", name, cmd.ProcessState, stderr.String())
		}
	})
	return c
}

// startConsumer starts a consumer and returns when it is about to run its worker.
func startConsumer(t *testing.T, j *journal, name string, r consumer) *child {
	t.Helper()
	before := len(j.find(event{From: name, Kind: ready}))
	c := start(t, j, name, r)
	j.await(t, before+1, event{From: name, Kind: ready})
	return c
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// release unblocks all blocking handlers of a consumer, now and in the future.
func (c *child) release() {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, "go\n"); err != nil {
		c.t.Fatal(err)
	}
}

// awaitExit waits for the child to exit.
func (c *child) awaitExit() {
	c.t.Helper()
	select {
	case <-c.exited:
	case <-time.After(patience):
		c.t.Fatalf("the child did not exit within %v", patience)
	}
}

// kill kills the child, as in a crash.
func (c *child) kill() {
	c.t.Helper()
	c.signal(syscall.SIGKILL)
	c.awaitExit()
}

// drain stops a consumer gracefully, as in a deployment.
func (c *child) drain() {
	c.t.Helper()
	c.signal(syscall.SIGTERM)
	c.awaitExit()
	if !c.cmd.ProcessState.Success() {
		c.t.Errorf("the drained child exited with %v", c.cmd.ProcessState)
	}
}
