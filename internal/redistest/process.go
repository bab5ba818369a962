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

// errPortTaken: another process was faster to bind the port that was free a moment ago.
var errPortTaken = errors.New("port was taken by another process")

// process is one running server program.
type process struct {
	cmd    *exec.Cmd
	output *output
	exited chan struct{} // closed when the program has ended and its output is complete
}

// startProcess runs a server and returns when it serves: when it has printed one of the lines that say so.
// They are printed after the port was bound, so no other server can be mistaken for this one.
func startProcess(binary, dir string, args, env []string, apart bool) (*process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	if len(env) > 0 {
		cmd.Env = append(os.Environ(), env...)
	}
	cmd.WaitDelay = time.Second // a forked child of the server may hold the output open
	inGroup(cmd, apart)
	dieWithParent(cmd)
	p := &process{cmd: cmd, output: newOutput(), exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.output, p.output

	started := make(chan error, 1)
	go func() {
		// Linux ends the server with the thread that started it, so that thread is kept until then.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // how it ended is of no interest: most servers are killed
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s does not start (make setup installs it): %w", binary, err)
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
		return nil, fmt.Errorf("%s ended at once and printed:\n%s", cmd, p.output.lastLines(20))
	case <-limit.C:
		p.end(syscall.SIGKILL)
		return nil, fmt.Errorf("%s does not serve after %v and printed:\n%s", cmd, startLimit, p.output.lastLines(20))
	}
}

// end sends a signal and waits until the program has ended, however it takes it.
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

// readyLines are what a server prints when it serves: Redis and Valkey the first, Sentinel the second.
var readyLines = [][]byte{[]byte("Ready to accept connections"), []byte("Sentinel ID is")}

// maxOutput is how many bytes of a server's output are kept, the last ones.
const maxOutput = 64 << 10

// output keeps what a server prints and tells when it is ready.
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

// lastLines gives what was printed last, at most n lines.
func (o *output) lastLines(n int) string {
	lines := strings.Split(strings.TrimSpace(o.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
