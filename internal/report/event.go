package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// maxError is how many bytes of an error an Event has.
const maxError = 300

// Event is an event of any process that uses the store, as a Watch receives it. WatchEvent of the root package has the
// same fields and describes them.
type Event struct {
	Kind     store.EventKind
	Queue    string
	ID       string
	Time     time.Time
	Attempt  int
	Lateness time.Duration
	Duration time.Duration
	Count    int
	Error    string
	Headers  map[string]string
	Process  Process
	Missed   int
}

// Process is a program that uses the store.
type Process struct {
	Host string
	PID  int
	Name string // of the program's file
}

// String returns the process as name[pid]@host.
func (p Process) String() string { return fmt.Sprintf("%s[%d]@%s", p.Name, p.PID, p.Host) }

// cutText returns at most limit bytes of s, which are valid UTF-8.
func cutText(s string, limit int) string { return strings.ToValidUTF8(s[:min(len(s), limit)], "") }

// ThisProcess returns the running program.
func ThisProcess() Process {
	p := Process{PID: os.Getpid()}
	p.Host, _ = os.Hostname()
	if len(os.Args) > 0 {
		p.Name = filepath.Base(os.Args[0])
	}
	return p
}

// encode encodes the events of a queue and returns how many there are, missed events included.
func encode(process Process, events []Event, missed int) (encoded []byte, number int) {
	number = len(events) + missed
	if number == 0 {
		return nil, 0
	}
	const overhead = 1024 // for the fields after the events
	encoded = append(encoded, `{"events":[`...)
	for i := range events {
		one, err := json.Marshal(wireEvent(&events[i]))
		if err != nil || len(encoded)+len(one)+overhead > store.MaxEventBytes {
			missed += len(events) - i
			break
		}
		if i > 0 {
			encoded = append(encoded, ',')
		}
		encoded = append(encoded, one...)
	}
	// The rest is an object of its own, without its first brace.
	rest, err := json.Marshal(wire.Events{
		Process: wire.Process{Host: process.Host, PID: process.PID, Name: process.Name}, Missed: missed,
	})
	if err != nil {
		return nil, 0
	}
	return append(append(encoded, "],"...), rest[1:]...), number
}

func wireEvent(e *Event) wire.Event {
	return wire.Event{
		Time: wire.FormatTime(e.Time), Kind: e.Kind, ID: e.ID, Attempt: e.Attempt,
		Lateness: wire.Measured(e.Lateness), Duration: wire.Measured(e.Duration), Error: e.Error, Count: e.Count,
		Headers: e.Headers,
	}
}

// decode returns the events of a report. If it cannot be read, an unknown number is missed.
func decode(queue string, encoded []byte) []Event {
	var all wire.Events
	if err := json.Unmarshal(encoded, &all); err != nil {
		return []Event{{Kind: event.Missed, Queue: queue, Time: time.Now()}}
	}
	process := Process{Host: all.Process.Host, PID: all.Process.PID, Name: all.Process.Name}
	events := make([]Event, 0, len(all.Events)+1)
	for i := range all.Events {
		e := &all.Events[i]
		at, _ := time.Parse(time.RFC3339Nano, e.Time)
		events = append(events, Event{
			Kind: e.Kind, Queue: queue, ID: e.ID, Time: at, Attempt: e.Attempt, Error: e.Error, Count: e.Count,
			Lateness: time.Duration(e.Lateness), Duration: time.Duration(e.Duration), Process: process,
			Headers: e.Headers,
		})
	}
	if all.Missed > 0 {
		events = append(events, Event{Kind: event.Missed, Queue: queue, Time: time.Now(), Missed: all.Missed,
			Process: process})
	}
	return events
}
