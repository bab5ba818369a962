package later

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/laterq/later/store"
)

// WorkerState is the state of a worker.
type WorkerState string

// The states of a worker.
const (
	WorkerRunning  WorkerState = "running"
	WorkerPaused   WorkerState = "paused"   // it claims nothing; see Worker.Pause
	WorkerDraining WorkerState = "draining" // it claims nothing and ends when its handlers have
)

// WorkerInfo is a live worker as it last reported itself; see Client.Workers. All times are of the store's clock.
type WorkerInfo struct {
	// ID is different for every call of Worker.Run.
	ID string
	// Name is WorkerConfig.Name, which several workers can have.
	Name string
	Host string // os.Hostname
	PID  int    // os.Getpid
	// Process is different for every start of a program, also if it executed itself and so kept its PID.
	Process string
	Version string // WorkerConfig.Version
	State   WorkerState
	// Concurrency is that of the WorkerConfig.
	Concurrency int
	// Queues has the first of the worker's QueueCount queues, as many as have about 1,500 bytes.
	Queues     []string
	QueueCount int
	// Forwards has the queues that the worker moves to destinations, as many as have about 700 bytes.
	Forwards []Forwarded
	// Held has the messages that handlers have held longest, as many as fit into a record of 4 KiB and at most
	// MaxHeldMessages. HeldCount is the number of all handlers that run. Messages that are forwarded are not among them.
	Held      []HeldMessage
	HeldCount int
	// Forwarding is the number of messages that the worker holds in order to forward them, or to distribute them to the
	// queues of a topic. Messages that the store moves in one step do not count.
	Forwarding int
	// GivenBack is the kinds given back for another version of the program, most messages first, as many kinds as
	// have about 600 bytes.
	GivenBack []GivenBack
	// Started is when Run was called, and Heartbeat when the worker reported this.
	Started, Heartbeat time.Time
	// Now is the store's clock when the worker was listed.
	Now time.Time

	seen []seenCommand
}

// Forwarded is a queue whose messages a worker moves to a destination, as Destination.String describes it.
type Forwarded struct {
	Queue string `json:"queue"`
	To    string `json:"to"`
}

// GivenBack is messages that a worker has given back and that have not fallen due again; see the function GiveBack. Of
// several workers of a queue, the one that had a message last counts it.
type GivenBack struct {
	Queue    string `json:"queue"`
	Kind     string `json:"kind,omitempty"` // "" for messages without a kind, and for all kinds beyond 1000
	Error    string `json:"error"`          // why, of one of them
	Messages int    `json:"messages"`
}

// HeldMessage is a message that a handler holds.
type HeldMessage struct {
	Queue, ID string
	Attempt   int
	Since     time.Time // when the handler was called
}

const (
	// MaxWorkers is how many workers of a store are listed at a time. Further ones work without being listed.
	MaxWorkers = store.MaxProperties
	// MaxWorkerName is the maximum length of WorkerConfig.Name and WorkerConfig.Version, in bytes.
	MaxWorkerName = store.MaxWorkerName
	// MaxHeldMessages is the maximum number of WorkerInfo.Held.
	MaxHeldMessages = 100

	maxSeen      = 8    // commands that a record acknowledges
	maxRefusal   = 200  // bytes of the reason why a command was refused
	maxListed    = 1500 // bytes of the names of queues in a record
	maxForwards  = 700  // bytes of what it forwards in a record
	maxGivenBack = 600  // bytes of what it gives back in a record
	maxHostName  = 255  // bytes
)

// workerRecord is the JSON of a worker in the index. Times are milliseconds since 1970 of the store's clock.
type workerRecord struct {
	Name        string            `json:"name"`
	Host        string            `json:"host,omitempty"`
	PID         int               `json:"pid"`
	Process     string            `json:"process"`
	Version     string            `json:"version,omitempty"`
	State       WorkerState       `json:"state"`
	Concurrency int               `json:"concurrency"`
	Started     int64             `json:"started"`
	At          int64             `json:"at"`
	Expires     int64             `json:"expires"`
	Queues      []string          `json:"queues"`
	QueueCount  int               `json:"queue_count"`
	Forwards    []Forwarded       `json:"forwards,omitempty"`
	Seen        []seenCommand     `json:"seen,omitempty"`
	HeldCount   int               `json:"held_count,omitempty"`
	Forwarding  int64             `json:"forwarding,omitempty"`
	GivenBack   []GivenBack       `json:"given_back,omitempty"`
	Held        []json.RawMessage `json:"held,omitempty"` // each a heldRecord
}

// seenCommand acknowledges a command.
type seenCommand struct {
	ID      string `json:"id"`
	Refused string `json:"refused,omitempty"` // why it is not obeyed
}

// heldRecord is the JSON of a HeldMessage, short so that many fit.
type heldRecord struct {
	Queue   string `json:"q"`
	ID      string `json:"i"`
	Attempt int    `json:"a"`
	For     int64  `json:"f"` // ms until the record's At
}

// encode returns the record with as many of the messages as fit.
func (r workerRecord) encode(held []HeldMessage) (string, error) {
	names := 0
	for i, name := range r.Queues {
		if names += 2*len(name) + 3; names > maxListed { // JSON may escape characters
			r.Queues = r.Queues[:i]
			break
		}
	}
	size := 0
	for i := range r.GivenBack {
		entry, err := compactJSON(r.GivenBack[i])
		if err != nil {
			return "", err
		}
		if size += len(entry); size > maxGivenBack {
			r.GivenBack = r.GivenBack[:i]
			break
		}
	}
	text, err := compactJSON(r)
	if err != nil {
		return "", err
	}
	size = len(text) + len(`,"held":[]`)
	for _, m := range held[:min(len(held), MaxHeldMessages)] {
		entry, err := compactJSON(heldRecord{m.Queue, m.ID, m.Attempt, r.At - m.Since.UnixMilli()})
		if err != nil {
			return "", err
		}
		if size += len(entry) + 1; size > store.MaxPropertyValue {
			break
		}
		r.Held = append(r.Held, entry)
	}
	if len(r.Held) > 0 {
		text, err = compactJSON(r)
	}
	return string(text), err
}

// compactJSON returns the JSON of v without escapes that only HTML needs.
func compactJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// decodeWorker returns the worker that a record describes, and when the record expires.
func decodeWorker(id, text string, now time.Time) (info WorkerInfo, expires time.Time, err error) {
	var r workerRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return info, expires, fmt.Errorf("%w: record of worker %q is %q: %w", ErrCorrupt, id, text, err)
	}
	info = WorkerInfo{
		ID: id, Name: r.Name, Host: r.Host, PID: r.PID, Process: r.Process, Version: r.Version, State: r.State,
		Concurrency: r.Concurrency, Queues: r.Queues, QueueCount: r.QueueCount, HeldCount: r.HeldCount,
		Forwards: r.Forwards, Forwarding: int(r.Forwarding), GivenBack: r.GivenBack,
		Started: store.Time(r.Started), Heartbeat: store.Time(r.At), Now: now, seen: r.Seen,
	}
	for _, text := range r.Held {
		var h heldRecord
		if err := json.Unmarshal(text, &h); err != nil {
			return info, expires, fmt.Errorf("%w: record of worker %q holds %q: %w", ErrCorrupt, id, text, err)
		}
		info.Held = append(info.Held, HeldMessage{h.Queue, h.ID, h.Attempt, store.Time(r.At - h.For)})
	}
	return info, store.Time(r.Expires), nil
}

// processID is different for every start of a program.
var processID = sync.OnceValue(store.NewID)

// hostName returns the name of this machine, or "" if it is not known.
var hostName = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil || len(name) > maxHostName || !utf8.ValidString(name) {
		return ""
	}
	return name
})

// defaultWorkerName returns the machine and the process.
var defaultWorkerName = sync.OnceValue(func() string {
	suffix := fmt.Sprintf(":%d", os.Getpid())
	host := hostName()
	if len(host)+len(suffix) > MaxWorkerName {
		host = strings.ToValidUTF8(host[:MaxWorkerName-len(suffix)], "")
	}
	return host + suffix
})

// defaultVersion returns the version of the program's main module, or else its commit.
var defaultVersion = sync.OnceValue(func() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	version := build.Main.Version
	if version == "" || version == "(devel)" {
		version = ""
		for _, s := range build.Settings {
			if s.Key == "vcs.revision" {
				version = s.Value[:min(len(s.Value), 12)]
			}
		}
	}
	return version[:min(len(version), MaxWorkerName)]
})

// checkWorkerText checks a field of the WorkerConfig that others read.
func checkWorkerText(field, text string) error {
	switch {
	case len(text) > MaxWorkerName:
		return store.Invalid("worker's %s is %d bytes long: the limit is %d", field, len(text), MaxWorkerName)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return store.Invalid("worker's %s is %q: give UTF-8 without control characters", field, text)
	}
	return nil
}
