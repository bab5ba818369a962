//go:build unix

package diskstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/doctor"
)

// sharedURL in the environment makes the test binary a process that shares a directory: it sends messages and handles
// them until it is told to stop.
const sharedURL = "LATER_SHARED_URL"

// sharedPatience limits every wait of the test. It is generous, because a busy machine must not fail a test.
const sharedPatience = time.Minute

// TestSharingProcess is not a test but one of the processes that TestKilledHoldersLoseNothing kills. It prints a line
// for each step: a verb and an id, and for a send the time at which it began. It stops sending at the line "quiet" of
// its input, prints "silent" when its last send has ended, and ends at "quit".
func TestSharingProcess(t *testing.T) {
	url := os.Getenv(sharedURL)
	if url == "" {
		t.Skip("runs only as a child")
	}
	client, err := later.Open(t.Context(), url, later.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	running, quit := context.WithCancel(t.Context())
	sending, quiet := context.WithCancel(running)
	var loops sync.WaitGroup
	loops.Go(func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan() && lines.Text() == "quiet"; {
			quiet()
		}
		quit()
	})
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() { sendUntil(t, sending, client.Queue("q")) })
	}
	loops.Go(func() {
		senders.Wait()
		fmt.Println("silent", os.Getpid())
	})
	worker := later.NewWorker(client, later.WorkerConfig{Lease: 3 * time.Second, Concurrency: 8})
	worker.Handle("q", func(_ context.Context, m *later.Message) error {
		if now := time.Now(); now.Before(m.Due) {
			fmt.Println("early", m.ID)
		}
		fmt.Println("handled", m.ID)
		return nil
	})
	if err := worker.Run(running); err != nil {
		t.Error(err)
	}
	loops.Wait()
}

func sendUntil(t *testing.T, ctx context.Context, q *later.Queue) {
	for ctx.Err() == nil {
		begun := time.Now()
		id, err := q.Send(context.WithoutCancel(ctx), []byte("x"), later.In(rand.N(200*time.Millisecond)))
		if err != nil {
			t.Error(err)
			fmt.Println("failed", err)
			return
		}
		fmt.Println("sent", id, begun.UnixMicro())
		time.Sleep(rand.N(20 * time.Millisecond)) // the load, not a wait for anything
	}
}

// sharer is a process that shares the directory.
type sharer struct {
	*exec.Cmd
	input  io.WriteCloser
	killed bool
}

// said is a line that a process printed.
type said struct {
	by       *sharer
	verb, id string
	begun    time.Time // of a send
	at       time.Time
}

// sharers are the processes of a test and the lines that they printed.
type sharers struct {
	t       *testing.T
	url     string
	lines   chan said
	reading sync.WaitGroup
	alive   []*sharer

	sent    map[string]bool
	handled map[string][]*sharer
}

func (s *sharers) start() {
	s.t.Helper()
	p := &sharer{Cmd: exec.Command(os.Args[0], "-test.run=^TestSharingProcess$")}
	p.Env = append(os.Environ(), sharedURL+"="+s.url)
	p.Stderr = os.Stderr
	var err error
	if p.input, err = p.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.alive = append(s.alive, p)
	s.reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			verb, rest, _ := strings.Cut(lines.Text(), " ")
			id, begun, _ := strings.Cut(rest, " ")
			us, _ := strconv.ParseInt(begun, 10, 64)
			s.lines <- said{p, verb, id, time.UnixMicro(us), time.Now()}
		}
	})
}

// hear notes printed lines until enough returns true. It calls enough after each line, and now and then without one.
func (s *sharers) hear(what string, enough func(line said) bool) {
	s.t.Helper()
	limit, tick := time.After(sharedPatience), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case line := <-s.lines:
			switch line.verb {
			case "sent":
				s.sent[line.id] = true
			case "handled":
				s.handled[line.id] = append(s.handled[line.id], line.by)
			case "early", "failed":
				s.t.Errorf("process %d: %s %s", line.by.Process.Pid, line.verb, line.id)
			}
			if enough(line) {
				return
			}
		case <-tick.C:
			if enough(said{}) {
				return
			}
		case <-limit:
			s.t.Fatalf("no %s within %v", what, sharedPatience)
		}
	}
}

// killHolder kills the process that has the directory open, and returns how long it takes until another one answers a
// send.
func (s *sharers) killHolder(dir string) time.Duration {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "HOLDER"))
	if err != nil {
		s.t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.Fields(string(text))[1])
	i := slices.IndexFunc(s.alive, func(p *sharer) bool { return p.Process.Pid == pid })
	if i < 0 {
		s.t.Fatalf("the holder is %s", text)
	}
	holder := s.alive[i]
	s.alive = slices.Delete(s.alive, i, i+1)
	holder.killed = true
	killed := time.Now()
	if err := holder.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	var answered time.Time
	s.hear("send after the holder was killed", func(line said) bool {
		answered = line.at
		return line.verb == "sent" && line.begun.After(killed)
	})
	return answered.Sub(killed)
}

func (s *sharers) tell(text string) {
	for _, p := range s.alive {
		if _, err := io.WriteString(p.input, text+"\n"); err != nil {
			s.t.Error(err)
		}
	}
}

func TestKilledHoldersLoseNothing(t *testing.T) {
	processes, kills, pause := 6, 5, time.Duration(0)
	if os.Getenv("LATER_LONG") != "" {
		processes, kills, pause = 20, 60, time.Second
	}
	dir := t.TempDir()
	s := &sharers{t: t, url: "file://" + dir, lines: make(chan said, 1000), sent: map[string]bool{},
		handled: map[string][]*sharer{}}
	t.Cleanup(func() {
		for _, p := range s.alive {
			p.Process.Kill()
			p.Wait()
		}
	})
	for range processes {
		s.start()
	}
	var took []time.Duration
	for range kills {
		begun := time.Now()
		speakers := map[*sharer]bool{}
		s.hear("work of all processes", func(line said) bool {
			if line.by != nil {
				speakers[line.by] = true
			}
			return len(speakers) >= processes && time.Since(begun) >= pause
		})
		took = append(took, s.killHolder(dir))
		s.start()
	}
	s.tell("quiet")
	client, err := later.Open(t.Context(), s.url, later.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	silent := map[*sharer]bool{}
	s.hear("end of all sends", func(line said) bool {
		if line.verb == "silent" {
			silent[line.by] = true
		}
		return len(silent) == len(s.alive)
	})
	s.hear("empty queue", func(said) bool {
		stats, err := client.Queue("q").Stats(t.Context())
		return err != nil || stats.Scheduled+stats.Ready+stats.Leased == 0 && len(s.lines) == 0
	})
	s.tell("quit")
	for _, p := range s.alive {
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	s.alive = nil
	stats, err := client.Queue("q").Stats(t.Context())
	if err != nil || stats.Scheduled+stats.Ready+stats.Leased+stats.Dead > 0 {
		t.Errorf("left: %+v, %v", stats, err)
	}
	err = doctor.Check(t.Context(), client, doctor.Config{}, func(r doctor.Result) {
		if r.IsIssue() {
			t.Errorf("the store has an issue: %+v", r)
		}
	})
	if err != nil {
		t.Error(err)
	}
	s.verify(took)
}

func (s *sharers) verify(took []time.Duration) {
	s.t.Helper()
	again := 0
	for id := range s.sent {
		if len(s.handled[id]) == 0 {
			s.t.Errorf("message %s is lost", id)
		}
	}
	for id, by := range s.handled {
		for _, p := range by[1:] {
			again++
			if !slices.ContainsFunc(by, func(other *sharer) bool { return other != p && other.killed }) {
				s.t.Errorf("message %s was handled %d times, and nobody who handled it was killed", id, len(by))
			}
		}
	}
	slices.Sort(took)
	s.t.Logf("%d messages, %d handled again after a kill; take-over in %v (median) to %v", len(s.sent), again,
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
}
