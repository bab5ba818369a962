package outbox

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/laterq/later"
)

// childEnv has the configuration of a child: this test binary, which then is a process with a relay.
const childEnv = "LATER_OUTBOX_CHILD"

// child is the configuration of a process with a relay.
type child struct {
	Driver, DSN string
	Dialect     Dialect
	Redis       string
	Batch       int
	StopAt      string // the point of a round where it stops for ever; "" to run on
	Skip        int    // how often it passes that point before
}

// runChild relays until it is killed. It prints each point of its rounds, and "stopped" when it stops.
func runChild(config string) error {
	var c child
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	ctx := context.Background()
	db, err := sql.Open(c.Driver, c.DSN)
	if err != nil {
		return err
	}
	client, err := later.Open(ctx, c.Redis, later.WithLogger(quiet))
	if err != nil {
		return err
	}
	r := New(c.Dialect).Relay(db, client, RelayConfig{Poll: time.Millisecond, Batch: c.Batch, Logger: quiet})
	passed := 0
	r.hook = func(point string) {
		fmt.Println(point)
		if point != c.StopAt {
			return
		}
		if passed++; passed > c.Skip {
			fmt.Println("stopped")
			select {}
		}
	}
	return r.Run(ctx)
}

// process is a running child.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  chan string
	exited chan struct{}
}

// start starts a child, which is killed when the test ends.
func (c child) start(t *testing.T) *process {
	t.Helper()
	config, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(config), "GORACE=atexit_sleep_ms=0")
	dieWithParent(cmd)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, lines: make(chan string, 1<<16), exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Linux kills the child when the thread that started it exits, so keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		defer close(p.lines)
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
		cmd.Wait() // it is killed
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("child printed:\n%s", stderr.String())
		}
	})
	return p
}

// await waits until the child has printed a line n times.
func (p *process) await(line string, n int) {
	p.t.Helper()
	limit := time.After(patience)
	for n > 0 {
		select {
		case got, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("child ended before it printed %q", line)
			}
			if got == line {
				n--
			}
		case <-limit:
			p.t.Fatalf("child did not print %q within %v", line, patience)
		}
	}
}

// kill kills the child with SIGKILL and returns when it has exited.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.exited
}
