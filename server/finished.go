package server

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"
	"unsafe"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// The defaults of a FinishedConfig.
const (
	DefaultFinishedCount = 10_000
	DefaultFinishedAge   = 24 * time.Hour
)

const (
	maxFinishedCount = 1_000_000
	// maxFinishedBytes is how much all lists of finished messages take. The longest list loses its oldest messages first.
	maxFinishedBytes = 64 << 20
	// maxUnderwayBytes is how much the messages take that were sent or claimed and have not finished.
	maxUnderwayBytes = 8 << 20
)

// FinishedConfig names queues. A Server keeps their last finished messages: outcomes, times and errors, and neither
// payloads nor headers. They are in the memory of this process, up to 64 MiB for all queues, and end
// with it.
type FinishedConfig struct {
	// Queues are names of queues. A * at the end stands for any text, and alone for all queues but Later's own.
	// Default: none, and nothing is kept.
	Queues []string
	// MaxCount is how many messages of each queue are kept, the last ones, up to 1,000,000. Default: 10,000.
	MaxCount int
	// MaxAge is how long they are kept. Default: 24 hours.
	MaxAge time.Duration
}

// Check returns an ErrInvalid unless the configuration is allowed.
func (c FinishedConfig) Check() error { return c.complete() }

// complete checks the configuration, and sets the defaults.
func (c *FinishedConfig) complete() error {
	c.MaxCount, c.MaxAge = cmp.Or(c.MaxCount, DefaultFinishedCount), cmp.Or(c.MaxAge, DefaultFinishedAge)
	for _, pattern := range c.Queues {
		name, all := strings.CutSuffix(pattern, "*")
		if err := store.CheckQueue(name); err != nil && (!all || name != "") {
			return err
		}
		if prefix, _ := reserved.Cut(name); prefix != "" || strings.Contains(name, "*") {
			return store.Invalid("finished messages of queue %q: give the name of a queue that is not Later's own, with no * "+
				"but at its end", pattern)
		}
	}
	switch {
	case c.MaxCount < 1 || c.MaxCount > maxFinishedCount:
		return store.Invalid("number of finished messages is %d: give 1 to %d, or 0 for %d", c.MaxCount, maxFinishedCount,
			DefaultFinishedCount)
	case c.MaxAge < time.Second:
		return store.Invalid("age of finished messages is %v: give 1s or more, or 0 for %s", c.MaxAge,
			durations.Format(DefaultFinishedAge))
	}
	return nil
}

// has reports whether finished messages of a queue are kept.
func (c *FinishedConfig) has(queue string) bool {
	if prefix, _ := reserved.Cut(queue); prefix != "" {
		return false
	}
	return slices.ContainsFunc(c.Queues, func(pattern string) bool {
		name, all := strings.CutSuffix(pattern, "*")
		return queue == pattern || all && strings.HasPrefix(queue, name)
	})
}

// watched returns the queues to watch, sorted, or none for all queues.
func (c *FinishedConfig) watched() []string {
	if slices.ContainsFunc(c.Queues, func(pattern string) bool { return strings.HasSuffix(pattern, "*") }) {
		return nil
	}
	return sortedSet(c.Queues)
}

// finishedLists are the lists of finished messages of a server.
type finishedLists struct {
	FinishedConfig

	mu       sync.Mutex
	maxBytes int // maxFinishedBytes but in tests
	queues   map[string]*finishedList
	bytes    int // of all lists
	underway underway
	since    time.Time // when the first event could be seen; zero before
	missed   uint64    // events of unknown queues
	gaps     int       // times in which an unknown number of events was missed
}

// finishedList is the finished messages of one queue.
type finishedList struct {
	entries []*finishedEntry // the oldest first
	count   uint64           // messages so far: the number of the last one
	bytes   int
	changed time.Time // when the last event arrived
	missed  uint64
	gaps    int
}

// finishedEntry is a message that has finished. Times are in ms since 1970, or 0 if they are not known.
type finishedEntry struct {
	number             uint64 // grows with each entry of a list, from 1
	arrived            time.Time
	id                 string
	outcome            store.EventKind
	at, sent, due      int64
	attempt, count     int
	lateness, duration wire.Duration
	err                string
	process            unique.Handle[wire.Process] // that many messages share
}

const (
	entryBytes = int(unsafe.Sizeof(finishedEntry{})) + 24 // with its place in the list, and rounding of allocations
	listBytes  = int(unsafe.Sizeof(finishedList{})) + 128
)

func (e *finishedEntry) size() int { return entryBytes + len(e.id) + len(e.err) }

// add takes an event, which arrived now.
func (f *finishedLists) add(e *wire.Event, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Kind == later.EventMissed {
		f.miss(e.Queue, uint64(e.Missed))
		return
	}
	if e.Queue == "" || !f.has(e.Queue) {
		return
	}
	at, _ := time.Parse(time.RFC3339, e.Time)
	switch e.Kind {
	case later.EventSent, later.EventClaimed:
		f.underway.begin(e, at.UnixMilli())
	case later.EventAcked, later.EventForwarded, later.EventBuried, later.EventExpired, later.EventDied,
		later.EventDropped, later.EventCancelled, later.EventPurged:
		known := f.underway.end(e)
		if e.Kind == later.EventDied && known.dead {
			return // it follows the event that says why
		}
		f.keep(e, at.UnixMilli(), known, now)
	}
}

// keep adds a message to the list of its queue.
func (f *finishedLists) keep(e *wire.Event, at int64, known known, now time.Time) {
	entry := &finishedEntry{arrived: now, id: e.ID, outcome: e.Kind, at: at, sent: known.sent, due: known.due,
		attempt: e.Attempt, count: e.Count, lateness: e.Lateness, duration: e.Duration, err: e.Error}
	if e.Process != nil {
		entry.process = unique.Make(*e.Process)
	}
	if entry.sent == 0 {
		entry.sent = sentAt(e.ID, at)
	}
	l := f.list(e.Queue)
	l.changed = now
	l.count++
	entry.number = l.count
	l.entries = append(l.entries, entry)
	f.grow(l, entry.size())
	f.drop(l, len(l.entries)-f.MaxCount)
	f.dropOld(l, now)
	f.shrink()
}

// sentAt returns when a message was sent that finished at a time, in ms since 1970, or 0 if its id does not tell. Names
// that programs choose can look like ids of Later, with a time that is far away.
func sentAt(id string, finished int64) int64 {
	made, ok := store.IDTime(id)
	age := time.UnixMilli(finished).Sub(made)
	if !ok || age < -time.Minute || age > 366*24*time.Hour { // clocks differ
		return 0
	}
	return made.UnixMilli()
}

// shrink removes the oldest messages of the longest lists if all lists take too much, and empty lists if they alone do.
// It makes room for many messages, since it looks at all lists.
func (f *finishedLists) shrink() {
	if f.bytes <= f.maxBytes {
		return
	}
	queues := slices.Collect(maps.Keys(f.queues))
	slices.SortFunc(queues, func(a, b string) int {
		return cmp.Or(cmp.Compare(f.queues[a].bytes, f.queues[b].bytes), f.queues[a].changed.Compare(f.queues[b].changed))
	})
	left := f.maxBytes / 8 * 7
	for i, queue := range queues {
		l, share, n, bytes := f.queues[queue], left/(len(queues)-i), 0, 0
		for n < len(l.entries) && l.bytes-bytes > share {
			bytes += l.entries[n].size()
			n++
		}
		if f.drop(l, n); l.bytes > share {
			f.remove(queue)
			continue
		}
		left -= l.bytes
	}
}

// remove removes the list of a queue.
func (f *finishedLists) remove(queue string) {
	if l := f.queues[queue]; l != nil {
		f.bytes -= l.bytes
		delete(f.queues, queue)
	}
}

// list returns the list of a queue.
func (f *finishedLists) list(queue string) *finishedList {
	l := f.queues[queue]
	if l == nil {
		if f.queues == nil {
			f.queues = map[string]*finishedList{}
		}
		l = &finishedList{}
		f.queues[strings.Clone(queue)] = l
		f.grow(l, listBytes+len(queue))
	}
	return l
}

func (f *finishedLists) grow(l *finishedList, by int) {
	l.bytes += by
	f.bytes += by
}

// drop removes the n oldest messages of a list.
func (f *finishedLists) drop(l *finishedList, n int) {
	if n <= 0 {
		return
	}
	n = min(n, len(l.entries))
	for _, e := range l.entries[:n] {
		f.grow(l, -e.size())
	}
	clear(l.entries[:n]) // the array stays for a while
	l.entries = l.entries[n:]
	if len(l.entries) == 0 {
		l.entries = nil
	}
}

// dropOld removes the messages of a list that have reached MaxAge.
func (f *finishedLists) dropOld(l *finishedList, now time.Time) {
	n := 0
	for n < len(l.entries) && now.Sub(l.entries[n].arrived) >= f.MaxAge {
		n++
	}
	f.drop(l, n)
}

// forget removes the list of a queue.
func (f *finishedLists) forget(queue string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(queue)
}

// sweep removes old messages, and the lists of queues that did not exist when a reading of all queues began.
func (f *finishedLists) sweep(existed map[string]bool, began, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for queue, l := range f.queues {
		if f.dropOld(l, now); !existed[queue] && l.changed.Before(began) {
			f.remove(queue)
		}
	}
}

// miss counts n missed events of a queue, or of an unknown one. 0 stands for an unknown number.
func (f *finishedLists) miss(queue string, n uint64) {
	missed, gaps := &f.missed, &f.gaps
	if queue != "" {
		if !f.has(queue) {
			return
		}
		l := f.list(queue)
		l.changed = time.Now()
		missed, gaps = &l.missed, &l.gaps
		defer f.shrink()
	}
	if *missed += n; n == 0 {
		*gaps++
	}
}

// underway has the messages that were sent or claimed and have not finished: the last ones, up to maxUnderwayBytes.
type underway struct {
	messages map[messageName]known
	order    []messageName // the oldest first; some have finished since
	bytes    int           // of order
}

type messageName struct{ queue, id string }

// known has the facts of a message from earlier events. Times are in ms since 1970, or 0 if they are not known.
type known struct {
	sent, due int64
	dead      bool // an event has said why it is dead
}

// underwayBytes is how much a message takes in addition to its name: in the map and in the order.
const underwayBytes = 200

func (n messageName) size() int { return underwayBytes + len(n.queue) + len(n.id) }

// begin takes the event that a message was sent or claimed.
func (u *underway) begin(e *wire.Event, at int64) {
	name := messageName{e.Queue, e.ID}
	m, old := u.messages[name]
	if m.dead = false; e.Kind == later.EventSent {
		m = known{sent: at}
	} else {
		m.due = at - time.Duration(e.Lateness).Milliseconds()
	}
	u.set(name, m, !old)
}

func (u *underway) set(name messageName, m known, fresh bool) {
	if u.messages == nil {
		u.messages = map[messageName]known{}
	}
	u.messages[name] = m
	if !fresh {
		return
	}
	u.order = append(u.order, name)
	for u.bytes += name.size(); u.bytes > maxUnderwayBytes; u.order = u.order[1:] {
		delete(u.messages, u.order[0])
		u.bytes -= u.order[0].size()
		u.order[0] = messageName{}
	}
}

// end takes the event that a message has finished, and returns what was known of it.
func (u *underway) end(e *wire.Event) known {
	name := messageName{e.Queue, e.ID}
	m, old := u.messages[name]
	if e.Kind == later.EventBuried || e.Kind == later.EventExpired { // EventDied follows
		u.set(name, known{sent: m.sent, due: m.due, dead: true}, !old)
		m.dead = false
		return m
	}
	delete(u.messages, name)
	return m
}

// errNotKept is the error for the finished messages of a queue without a list.
func errNotKept(queue string) error {
	if prefix, _ := reserved.Cut(queue); prefix != "" {
		return fmt.Errorf("finished messages of queue %q are not kept, since it is one of Later's own: give another one: %w",
			queue, store.ErrNotFound)
	}
	return fmt.Errorf("this server keeps no finished messages of queue %q: start it with --keep-finished %s: %w", queue,
		queue, store.ErrNotFound)
}
