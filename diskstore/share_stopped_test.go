//go:build linux

package diskstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// stoppedDir in the environment makes the test binary a process that shares a directory and is stopped by a test, and
// stoppedGets makes the process get large messages all the time.
const (
	stoppedDir  = "LATER_STOPPED_DIR"
	stoppedGets = "LATER_STOPPED_GETS"
	// stoppedPatience limits every wait of these tests. It is generous, because a busy machine must not fail a test.
	stoppedPatience = time.Minute
)

// TestStoppedProcess is not a test but a process of one. It says "open" and ends with its input.
func TestStoppedProcess(t *testing.T) {
	dir := os.Getenv(stoppedDir)
	if dir == "" {
		t.Skip("runs only as a child")
	}
	s := share(t, dir)
	s.Stats(t.Context(), "q") // which connects
	if os.Getenv(stoppedGets) != "" {
		got := make(chan bool, 8)
		for range cap(got) {
			go func() {
				for first := true; ; first = false {
					s.Get(context.Background(), "q", []string{"a", "b", "c", "d"})
					if first {
						got <- true
					}
				}
			}()
		}
		for range cap(got) {
			<-got
		}
	}
	fmt.Println("open")
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0) // as a process that is killed
}

// stoppable starts a process that shares a directory, and returns when it has opened it.
func stoppable(t testing.TB, dir string, env ...string) *exec.Cmd {
	t.Helper()
	p := exec.Command(os.Args[0], "-test.run=^TestStoppedProcess$")
	p.Env = append(append(os.Environ(), stoppedDir+"="+dir), env...)
	input, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		p.Process.Kill()
		p.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "open" {
	}
	if lines.Text() != "open" {
		t.Fatal("the process does not open the directory")
	}
	return p
}

func stop(t *testing.T, p *exec.Cmd) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v, %v", status, err)
	}
}

func TestAStoppedClientDoesNotHoldUpATakeOver(t *testing.T) {
	dir := t.TempDir()
	holder := share(t, dir)
	for _, id := range []string{"a", "b", "c", "d"} {
		m := plain(id)
		m.Payload = make([]byte, store.MaxPayload)
		if sent, err := holder.Send(t.Context(), "q", []store.Outgoing{m}); err != nil || sent[0].Err != nil {
			t.Fatal(sent, err)
		}
	}
	heir := share(t, dir)
	client := stoppable(t, dir, stoppedGets+"=yes")
	stop(t, client)
	closed := make(chan error, 1)
	go func() { closed <- holder.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(stoppedPatience):
		t.Fatal("the holder waits for a client that is stopped")
	}
	sendTo(t, heir, "e")
	wantReady(t, heir, 5)
}

func TestAStoppedHolderIsNamedAndExecutesNoClaimsOfCallersThatHaveGone(t *testing.T) {
	dir := t.TempDir()
	holder := stoppable(t, dir)
	s := share(t, dir)
	m := plain("a")
	m.MaxAttempts = 1
	if sent, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil || sent[0].Err != nil {
		t.Fatal(sent, err)
	}
	var connecting sync.WaitGroup
	for range 8 { // so that there are connections for the claims
		connecting.Go(func() { s.Stats(t.Context(), "q") })
	}
	connecting.Wait()
	stop(t, holder)
	claim := store.ClaimRequest{Max: 1, Lease: time.Minute}
	var claiming sync.WaitGroup
	began := time.Now()
	for range 8 {
		claiming.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			_, err := s.Claim(ctx, "q", claim)
			want := fmt.Sprintf("process %d on ", holder.Process.Pid)
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), fmt.Sprintf("is stopped: continue it with kill -CONT %d", holder.Process.Pid)) {
				t.Errorf("%v, want ErrUnavailable and the process", err)
			}
		})
	}
	claiming.Wait()
	t.Logf("the claims failed after %v", time.Since(began))
	if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if stats, err := s.Stats(t.Context(), "q"); err != nil || stats.Ready != 1 {
			t.Fatalf("%+v, %v, want one message that is ready", stats, err)
		}
	}
	c, err := s.Claim(t.Context(), "q", claim)
	if err != nil || len(c.Messages) != 1 || c.Messages[0].Attempt != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestWaitsAndWatchesNoticeAStoppedHolder(t *testing.T) {
	dir := t.TempDir()
	holder := stoppable(t, dir)
	s := share(t, dir)
	w, err := s.Watch(t.Context(), []string{"q"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	stop(t, holder)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	if err := s.Wait(ctx, "q"); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("the wait ends with %v", err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	sendTo(t, s, "a") // this process takes over
	if err := w.Add(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Report(t.Context(), []store.Report{{Queue: "q", Events: []byte("x"), Number: 1}}); err != nil {
		t.Fatal(err)
	}
	if event, err := w.Next(t.Context()); err != nil || !event.Gap {
		t.Errorf("%+v, %v, want a gap", event, err)
	}
}

func TestTheStateOfAHolderIsKnown(t *testing.T) {
	if isStopped(os.Getpid()) || isStopped(1<<30) {
		t.Error("a process that runs, or none, is stopped")
	}
	host, _ := os.Hostname()
	for text, want := range map[string]int{
		holder(): os.Getpid(), "process 12 on " + host + ", later work": 12, "process 12 on elsewhere, later": 0, "x": 0,
	} {
		if pid, ok := pidOf(text); ok != (want > 0) || ok && pid != want {
			t.Errorf("%q is of process %d, %t, want %d", text, pid, ok, want)
		}
	}
	s := &sharing{dir: t.TempDir()}
	if text := s.describeHolder(); text != "the process that has "+s.dir+" open does not answer" {
		t.Error(text)
	}
	if err := os.WriteFile(s.dir+"/"+holderFile, []byte(holder()), 0o600); err != nil {
		t.Fatal(err)
	}
	if text := s.describeHolder(); !strings.HasSuffix(text, "has "+s.dir+" open and does not answer") {
		t.Error(text)
	}
}

func TestABackupWhoseHolderIsKilledIsMadeAnew(t *testing.T) {
	dir, to := filepath.Join(t.TempDir(), "store"), t.TempDir()
	killed := 0
	for i := range 3 {
		holder := stoppable(t, dir)
		s := share(t, dir)
		sendTo(t, s, fmt.Sprint("m", i))
		backup := filepath.Join(to, fmt.Sprint("backup", i))
		made := make(chan error, 1)
		go func() { made <- s.Backup(t.Context(), backup) }()
		for under := true; under; { // no event tells when it begins
			_, err := os.Stat(backup + partialSuffix)
			_, ended := os.Stat(backup)
			if under = err != nil && ended != nil; err == nil {
				killed++
			}
		}
		if err := holder.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-made:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(stoppedPatience):
			t.Fatal("the backup does not end")
		}
		b := share(t, backup)
		wantReady(t, b, int64(i+1))
		if names, err := os.ReadDir(to); err != nil || len(names) != i+1 {
			t.Errorf("%v, %v, want the backups only", names, err)
		}
		s.Close()
	}
	t.Logf("%d of 3 backups were interrupted", killed)
}

// BenchmarkMemoryOfTheHolder measures the memory that 150 sends of 4 MB at a time take in the process that has the
// directory open.
func BenchmarkMemoryOfTheHolder(b *testing.B) {
	dir := b.TempDir()
	holder := stoppable(b, dir)
	s := share(b, dir)
	for n := range b.N {
		var sending sync.WaitGroup
		for i := range 150 {
			sending.Go(func() {
				var batch []store.Outgoing
				for k := range 4 {
					m := plain(fmt.Sprint(n, i, k))
					m.Payload = make([]byte, store.MaxPayload-100)
					batch = append(batch, m)
				}
				if _, err := s.Send(b.Context(), "q", batch); err != nil {
					b.Error(err)
				}
			})
		}
		sending.Wait()
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", holder.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, text, _ := strings.Cut(string(status), "VmHWM:")
	var kb int
	fmt.Sscan(text, &kb)
	b.ReportMetric(float64(kb)/1000, "MB-peak")
	b.ReportMetric(0, "ns/op")
}
