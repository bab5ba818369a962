//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package diskstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// ownerMode in the environment makes the test binary a process that opens and uses a directory: alone or shared.
const ownerMode = "LATER_DISKSTORE_OWNER"

// TestOwnerChild is not a test but that process. It reads one command from each line, and answers each with one line.
func TestOwnerChild(t *testing.T) {
	mode := os.Getenv(ownerMode)
	if mode == "" {
		t.Skip("runs only as a child")
	}
	var s store.Store
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		verb, what, _ := strings.Cut(in.Text(), " ")
		var err error
		switch verb {
		case "open":
			s, err = openAs(mode, what)
		case "send":
			_, err = s.Send(t.Context(), "q", []store.Outgoing{plain(what)})
		case "ping":
			err = s.(store.Pinger).Ping(t.Context())
		case "stop": // waits until the store has stopped by itself
			<-s.(*Store).failed
		case "close":
			err = s.Close()
		}
		answer := "done"
		if err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println("answer:", answer)
	}
}

func openAs(mode, dir string) (store.Store, error) {
	if mode == "shared" {
		return openShared(context.Background(), dir, slog.New(slog.DiscardHandler))
	}
	s, err := Open(dir)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// owner is a process that opens a directory.
type owner struct {
	t       *testing.T
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

func startOwner(t *testing.T, mode string) *owner {
	t.Helper()
	p := childProcess(t, "TestOwnerChild", ownerMode, mode)
	in, err := p.StdinPipe()
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
	o := &owner{t, p, in, bufio.NewScanner(out)}
	t.Cleanup(o.end)
	return o
}

// end kills the process, unless it has ended.
func (o *owner) end() {
	o.in.Close()
	o.process.Process.Kill()
	o.process.Wait()
}

// tell has the process do something, and returns "done" or an error.
func (o *owner) tell(what ...string) (answer string) {
	o.t.Helper()
	if _, err := io.WriteString(o.in, strings.Join(what, " ")+"\n"); err != nil {
		o.t.Fatal(err)
	}
	for o.out.Scan() {
		if answer, ok := strings.CutPrefix(o.out.Text(), "answer: "); ok {
			return answer
		}
	}
	o.t.Fatalf("the process ended at %s", what)
	return ""
}

func (o *owner) want(what ...string) {
	o.t.Helper()
	if answer := o.tell(what...); answer != "done" {
		o.t.Errorf("%s gives %s, want done", what, answer)
	}
}

// wantStopped checks that a process no longer takes messages, and that its error names the cause and the remedy.
func (o *owner) wantStopped() {
	o.t.Helper()
	answer := o.tell("send", "refused")
	happened := strings.Contains(answer, "removed or moved away") || strings.Contains(answer, "replaced by another")
	if !happened || !strings.Contains(answer, "start the program again") {
		o.t.Errorf("a send in the process that lost its directory gives %q, want what happened and what to do", answer)
	}
}

// openWithin has a process open a directory that another one is about to give up.
func (o *owner) openWithin(dir string, limit time.Duration) {
	o.t.Helper()
	for until := time.Now().Add(limit); ; {
		answer := o.tell("open", dir)
		if answer == "done" {
			return
		}
		if !strings.Contains(answer, "one process at a time") || time.Now().After(until) {
			o.t.Fatalf("open gives %s", answer)
		}
	}
}

// wantKept checks that a directory has the acknowledged messages. The refused message may be there too, as its error
// says.
func wantKept(t *testing.T, dir string, want []string) {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := slices.DeleteFunc(listed(t, s, "q", store.StateReady), func(id string) bool { return id == "refused" })
	slices.Sort(got) // messages of one millisecond are in order of their ids
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s has the messages %v, want %v", dir, got, want)
	}
}

// disturbances are changes that people make to the directory of a store that is open.
var disturbances = map[string]struct {
	disturb func(t *testing.T, dir, backup string)
	kept    []string // messages that are in the directory afterwards
}{
	"LOCK is removed": {func(t *testing.T, dir, _ string) { try(t, os.Remove(filepath.Join(dir, lockFile))) },
		[]string{"before"}},
	"the directory is removed and made anew": {func(t *testing.T, dir, _ string) {
		try(t, os.RemoveAll(dir))
		try(t, os.Mkdir(dir, 0o700))
	}, nil},
	"a backup takes the directory's place": {func(t *testing.T, dir, backup string) {
		try(t, os.Rename(dir, dir+".away"))
		try(t, os.Rename(backup, dir))
	}, []string{"in backup"}},
}

func TestDirectoryHasOneOwnerWhateverHappensToIt(t *testing.T) {
	for name, d := range disturbances {
		t.Run(name, func(t *testing.T) {
			for _, secondFirst := range []bool{false, true} {
				above := t.TempDir()
				dir, backup := filepath.Join(above, "store"), filepath.Join(above, "backup")
				made, err := Open(backup)
				try(t, err)
				send(t, made, "in backup")
				try(t, made.Close())
				first, second := startOwner(t, "alone"), startOwner(t, "alone")
				first.want("open", dir)
				first.want("send", "before")
				d.disturb(t, dir, backup)
				if !secondFirst {
					first.wantStopped()
				}
				second.openWithin(dir, 10*time.Second)
				second.want("send", "second")
				first.wantStopped()
				second.want("send", "third")
				first.want("close")
				second.want("close")
				wantKept(t, dir, append(slices.Clone(d.kept), "second", "third"))
			}
		})
	}
}

func TestIdleStoreNoticesThatItsDirectoryIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	first := startOwner(t, "alone")
	first.want("open", dir)
	try(t, os.Remove(filepath.Join(dir, holderFile)))
	first.want("stop")
	if answer := first.tell("ping"); !strings.Contains(answer, holderFile) {
		t.Errorf("ping gives %s, want that %s is gone", answer, holderFile)
	}
}

func TestDirectoryThatIsMovedAwayAndBackHasOneOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	first, second := startOwner(t, "alone"), startOwner(t, "alone")
	first.want("open", dir)
	first.want("send", "before")
	try(t, os.Rename(dir, dir+".away"))
	first.wantStopped()
	try(t, os.Rename(dir+".away", dir))
	first.wantStopped() // it may have missed another owner
	second.openWithin(dir, 10*time.Second)
	second.want("send", "second")
	first.want("close")
	second.want("close")
	wantKept(t, dir, []string{"before", "second"})
}

func TestProcessesTakeOverFromOneThatStopped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	first, second := startOwner(t, "shared"), startOwner(t, "shared")
	first.want("open", dir)
	second.want("open", dir)
	second.want("send", "before")
	try(t, os.Remove(filepath.Join(dir, lockFile)))
	second.want("send", "after")
	for _, verb := range []string{"send lost", "ping"} {
		if answer := first.tell(verb); !strings.Contains(answer, "stopped") {
			t.Errorf("%s in the process that stopped gives %s, want that the store stopped", verb, answer)
		}
	}
	first.want("close") // and leaves the socket of the second one
	third := startOwner(t, "shared")
	third.want("open", dir)
	third.want("send", "third")
	second.want("send", "fourth")
	third.want("close")
	second.want("close")
	wantKept(t, dir, []string{"before", "after", "third", "fourth"})
}
