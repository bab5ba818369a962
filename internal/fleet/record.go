package fleet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/laterq/later/store"
)

const (
	// MaxHeld is the maximum number of messages in Info.Held.
	MaxHeld = 100

	maxQueues    = 1500 // bytes of the names of queues in a record
	maxForwards  = 700  // bytes of its Forwards
	maxGivenBack = 600  // bytes of its GivenBack
	maxSeen      = 8    // commands that a record acknowledges
	maxRefusal   = 200  // bytes of the reason why a command was refused
	maxHostName  = 255  // bytes
)

// record is a worker in the list, as JSON.
type record struct {
	Info
	Expires  time.Time         `json:"expires"`
	Seen     []seen            `json:"seen,omitempty"`
	Messages []json.RawMessage `json:"held,omitempty"` // each a heldJSON
}

// seen acknowledges a command.
type seen struct {
	ID      string `json:"id"`
	Refused string `json:"refused,omitempty"` // why it is not obeyed
}

// addSeen acknowledges another command, which is refused with an error unless that is nil, and forgets the earliest.
func addSeen(all []seen, id string, refusal error) []seen {
	s := seen{ID: id}
	if refusal != nil {
		reason := strings.ToValidUTF8(refusal.Error(), "")
		s.Refused = cmp.Or(strings.ToValidUTF8(reason[:min(len(reason), maxRefusal)], ""), "no reason is given")
	}
	return append(slices.Clone(all[max(0, len(all)-maxSeen+1):]), s)
}

// heldJSON is the JSON of a Held, short so that many fit.
type heldJSON struct {
	Queue   string `json:"q"`
	ID      string `json:"i"`
	Key     string `json:"k,omitempty"`
	Attempt int    `json:"a"`
	For     int64  `json:"f"` // ms until the heartbeat
}

// encode returns the record with as much as fits.
func (r record) encode() string {
	r.Queues, r.Forwards = fitting(r.Queues, maxQueues), fitting(r.Forwards, maxForwards)
	r.GivenBack = fitting(r.GivenBack, maxGivenBack)
	size := len(compact(r)) + len(`,"held":[]`)
	for _, m := range r.Held[:min(len(r.Held), MaxHeld)] {
		entry := compact(heldJSON{m.Queue, m.ID, m.Key, m.Attempt, r.Heartbeat.Sub(m.Since).Milliseconds()})
		if size += len(entry) + 1; size > store.MaxPropertyValue {
			break
		}
		r.Messages = append(r.Messages, entry)
	}
	return string(compact(r))
}

// fitting returns the first of all that have up to max bytes as JSON.
func fitting[T any](all []T, max int) []T {
	for i := range all {
		if max -= len(compact(all[i])) + 1; max < 0 {
			return all[:i]
		}
	}
	return all
}

// compact returns the JSON of v, which always has one, without escapes that only HTML needs.
func compact(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return bytes.TrimSpace(b.Bytes())
}

// decode returns the record of a worker.
func decode(id, text string) (r record, err error) {
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("%w: record of worker %q is %q: %w", store.ErrCorrupt, id, text, err)
	}
	r.ID, r.Started, r.Heartbeat = id, r.Started.Local(), r.Heartbeat.Local()
	for _, text := range r.Messages {
		var h heldJSON
		if err := json.Unmarshal(text, &h); err != nil {
			return r, fmt.Errorf("%w: record of worker %q holds %q: %w", store.ErrCorrupt, id, text, err)
		}
		since := r.Heartbeat.Add(-time.Duration(h.For) * time.Millisecond)
		r.Held = append(r.Held, Held{h.Queue, h.ID, h.Key, h.Attempt, since})
	}
	return r, nil
}

func infos(records []record) (all []Info) {
	for i := range records {
		all = append(all, records[i].Info)
	}
	return all
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

// DefaultName returns the machine and the process.
var DefaultName = sync.OnceValue(func() string {
	suffix := fmt.Sprintf(":%d", os.Getpid())
	host := hostName()
	if len(host)+len(suffix) > store.MaxWorkerName {
		host = strings.ToValidUTF8(host[:store.MaxWorkerName-len(suffix)], "")
	}
	return host + suffix
})

// DefaultVersion returns the version of the program's main module, or else its commit.
var DefaultVersion = sync.OnceValue(func() string {
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
	return version[:min(len(version), store.MaxWorkerName)]
})

// CheckText checks a field of a worker that others read.
func CheckText(field, text string) error {
	switch {
	case len(text) > store.MaxWorkerName:
		return store.Invalid("worker's %s is %d bytes long: the limit is %d", field, len(text), store.MaxWorkerName)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return store.Invalid("worker's %s is %q: give UTF-8 without control characters", field, text)
	}
	return nil
}
