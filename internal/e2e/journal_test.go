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

// event is one of the client's events, or ready.
type event struct {
	From    string          `json:",omitempty"` // the child's name; set by the journal
	Kind    later.EventKind `json:",omitempty"`
	ID      string          `json:",omitempty"`
	Attempt int             `json:",omitempty"`
	Time    time.Time       `json:",omitzero"`
	Err     string          `json:",omitempty"`
}

// ready is the kind of event that a consumer reports when it is about to run its worker.
const ready later.EventKind = "ready"

// matches reports whether the event matches the pattern. Empty fields of the pattern match anything.
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

// report writes an event for the parent in a single write, so that a kill leaves no partial line.
func report(e event) { fmt.Fprintln(os.Stdout, e) }

func eventOf(e later.Event) event {
	reported := event{Kind: e.Kind, ID: e.ID, Attempt: e.Attempt, Time: e.Time}
	if e.Err != nil {
		reported.Err = e.Err.Error()
	}
	return reported
}

// journal collects the events of one test from all its processes.
type journal struct {
	mu   sync.Mutex
	all  []event
	more chan struct{} // closed and replaced when an event is added
}

func newJournal() *journal { return &journal{more: make(chan struct{})} }

func (j *journal) add(e event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, e)
	close(j.more)
	j.more = make(chan struct{})
}

// observe adds an event of a client in this process.
func (j *journal) observe(e later.Event) { j.add(eventOf(e)) }

// read adds the events that a child writes until its output ends.
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

// await waits until n events match the pattern, and returns them.
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
			t.Fatalf("got %d of %d events %v within %v; the last events were:\n%v",
				len(found), n, pattern, patience, j.last(20))
		}
	}
}

// find returns the events so far that match the pattern.
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

// wantOnce checks that n messages were started, each exactly once and as its first attempt.
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
