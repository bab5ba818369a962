package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later"
)

// event is something that a process did: one of the client's own events, or ready.
type event struct {
	From    string          `json:",omitempty"` // the child's name; set by the journal
	Kind    later.EventKind `json:",omitempty"`
	ID      string          `json:",omitempty"`
	Attempt int             `json:",omitempty"`
	Time    time.Time       `json:",omitzero"`
	Err     string          `json:",omitempty"`
}

// ready is what a consumer tells, besides the kinds of later.Event, when it is about to run its worker.
const ready later.EventKind = "ready"

// matches tells whether the event is as the pattern says; empty fields of the pattern say nothing.
func (e event) matches(pattern event) bool {
	return (pattern.From == "" || e.From == pattern.From) &&
		(pattern.Kind == "" || e.Kind == pattern.Kind) &&
		(pattern.ID == "" || e.ID == pattern.ID) &&
		(pattern.Attempt == 0 || e.Attempt == pattern.Attempt)
}

func (e event) String() string {
	line, _ := json.Marshal(e)
	return string(line)
}

// report tells this child's parent of an event, in one write, so that a kill leaves no half line.
func report(e event) { fmt.Fprintln(os.Stdout, e) }

func eventOf(e later.Event) event {
	told := event{Kind: e.Kind, ID: e.ID, Attempt: e.Attempt, Time: e.Time}
	if e.Err != nil {
		told.Err = e.Err.Error()
	}
	return told
}

// journal collects the events of one test, from all its processes.
type journal struct {
	mu   sync.Mutex
	all  []event
	more chan struct{} // closed and made anew when an event comes
}

func newJournal() *journal { return &journal{more: make(chan struct{})} }

func (j *journal) add(e event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, e)
	close(j.more)
	j.more = make(chan struct{})
}

// observe takes the events of a client in this process.
func (j *journal) observe(e later.Event) { j.add(eventOf(e)) }

// read takes a child's lines until there are no more.
func (j *journal) read(from string, r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		e := event{}
		if err := json.Unmarshal(line, &e); err != nil {
			e = event{Kind: "noise", Err: string(line)}
		}
		e.From = from
		j.add(e)
	}
}

// await waits until n events are as the pattern says, and gives them.
func (j *journal) await(t *testing.T, n int, pattern event) (found []event) {
	t.Helper()
	limit := time.After(patience)
	for next := 0; ; {
		j.mu.Lock()
		fresh, more := j.all[next:], j.more
		j.mu.Unlock()
		next += len(fresh)
		for _, e := range fresh {
			if e.matches(pattern) {
				found = append(found, e)
			}
		}
		if len(found) >= n {
			return found
		}
		select {
		case <-more:
		case <-limit:
			t.Fatalf("%d of %d events %v came within %v; the last of all were:\n%v",
				len(found), n, pattern, patience, j.last(20))
		}
	}
}

// find gives the events so far that are as the pattern says.
func (j *journal) find(pattern event) (found []event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.all {
		if e.matches(pattern) {
			found = append(found, e)
		}
	}
	return found
}

func (j *journal) last(n int) (text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.all[max(0, len(j.all)-n):] {
		text += e.String() + "\n"
	}
	return text
}

// wantOnce checks that so many messages were started, each exactly once and as its first attempt.
func (j *journal) wantOnce(t *testing.T, n int) {
	t.Helper()
	starts := map[string]int{}
	for _, e := range j.find(event{Kind: later.EventStarted}) {
		starts[e.ID]++
		if e.Attempt != 1 {
			t.Errorf("message %s was started as attempt %d", e.ID, e.Attempt)
		}
	}
	for id, times := range starts {
		if times != 1 {
			t.Errorf("message %s was started %d times", id, times)
		}
	}
	if len(starts) != n {
		t.Errorf("%d messages were started; want %d", len(starts), n)
	}
	for _, e := range j.find(event{Kind: later.EventLeaseLost}) {
		t.Errorf("a lease was lost: %v", e)
	}
}
