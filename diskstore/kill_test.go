package diskstore

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// childDir in the environment makes the test binary the child that is killed: it works in that directory. childSync is
// its SyncEvery.
const (
	childDir  = "LATER_DISKSTORE_CHILD"
	childSync = "LATER_DISKSTORE_CHILD_SYNC"
)

// TestChildProcess is not a test but the process that TestNothingAcknowledgedIsLostByKill kills. It prints each step
// once it knows the outcome, and an ack also before.
func TestChildProcess(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("runs only as a child")
	}
	every, err := time.ParseDuration(os.Getenv(childSync))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, SyncEvery(every))
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprint(os.Getpid())
	fmt.Println("open")
	for i := 0; ; i++ {
		id := fmt.Sprintf("%s-%d", name, i)
		m := store.Outgoing{Message: store.Message{ID: id, Payload: []byte(id)}}
		if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
		fmt.Println("sent", id)
		if i%2 == 0 {
			continue
		}
		c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
		if err != nil || len(c.Messages) != 1 {
			t.Fatal(err, c)
		}
		fmt.Println("acking", c.Messages[0].ID)
		r, err := s.Settle(t.Context(), "q", []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}})
		if err != nil || r[0].Err != nil {
			t.Fatal(err, r)
		}
		fmt.Println("acked", c.Messages[0].ID)
	}
}

func TestNothingAcknowledgedIsLostByKill(t *testing.T) {
	for _, every := range []string{"0s", "1h"} {
		t.Run("sync every "+every, func(t *testing.T) { killRepeatedly(t, every) })
	}
}

func killRepeatedly(t *testing.T, every string) {
	rounds := 4
	if os.Getenv("LATER_LONG") != "" {
		rounds = 50
	}
	dir := t.TempDir()
	total := newLedger()
	for round := range rounds {
		child := childProcess(t, "TestChildProcess", childDir, dir)
		child.Env = append(child.Env, childSync+"="+every)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			total.tell(lines.Text())
			if n == 50+37*round%500 {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		child.Wait() // "signal: killed"
		if len(total.sent) == 0 {
			t.Fatal("the child did nothing")
		}
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		total.check(t, s, "q", total)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// tell notes one line of the child.
func (l *ledger) tell(line string) {
	verb, id, _ := strings.Cut(line, " ")
	switch verb {
	case "sent":
		l.sent[id] = true
	case "acking":
		l.acked[id] = false
	case "acked":
		l.acked[id] = true
	}
}
