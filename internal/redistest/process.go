package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// errPortTaken is returned when another process binds a free port first.
var errPortTaken = errors.New("port was taken by another process")

// process is one running server program.
type process struct {
	cmd    *exec.Cmd
	output *output
	exited chan struct{} // closed when the program has exited and its output is complete
}

// startProcess starts a server and returns when it serves, which is when it prints one of readyLines. It prints them
// after binding its port, so another server at that port cannot be mistaken for it.
func startProcess(binary, dir string, args, env []string, ownGroup bool) (*process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	if len(env) > 0 {
		cmd.Env = append(os.Environ(), env...)
	}
	cmd.WaitDelay = time.Second // a forked child of the server may hold the output open
	inGroup(cmd, ownGroup)
	dieWithParent(cmd)
	p := &process{cmd: cmd, output: newOutput(), exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.output, p.output

	started := make(chan error, 1)
	go func() {
		// Linux kills the server when the thread that started it exits, so keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // most servers are killed, so the status does not matter
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s did not start (make setup installs it): %w", binary, err)
	}

	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-p.output.ready:
		return p, nil
	case <-p.exited:
		if strings.Contains(p.output.String(), "Address already in use") {
			return nil, errPortTaken
		}
		return nil, fmt.Errorf("%s exited at once and printed:\n%s", cmd, p.output.lastLines(20))
	case <-limit.C:
		p.end(syscall.SIGKILL)
		return nil, fmt.Errorf("%s did not serve within %v and printed:\n%s", cmd, startLimit, p.output.lastLines(20))
	}
}

// end sends a signal and waits until the program has exited.
func (p *process) end(signal syscall.Signal) {
	p.cmd.Process.Signal(signal)
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-p.exited:
	case <-limit.C:
		p.cmd.Process.Kill()
		<-p.exited
	}
}

// readyLines are printed by a server when it serves: the first by Redis and Valkey, the second by Sentinel.
var readyLines = [][]byte{[]byte("Ready to accept connections"), []byte("Sentinel ID is")}

// maxOutput is how many bytes of a server's output are kept. Older output is dropped.
const maxOutput = 64 << 10

// output keeps the output of a server and signals when it is ready.
type output struct {
	mu      sync.Mutex
	text    []byte
	ready   chan struct{}
	isReady bool
}

func newOutput() *output { return &output{ready: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	for _, line := range readyLines {
		if !o.isReady && bytes.Contains(o.text, line) {
			o.isReady = true
			close(o.ready)
		}
	}
	if len(o.text) > maxOutput {
		o.text = append([]byte(nil), o.text[len(o.text)-maxOutput/2:]...)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// lastLines returns at most the last n lines.
func (o *output) lastLines(n int) string {
	lines := strings.Split(strings.TrimSpace(o.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
