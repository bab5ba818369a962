package server

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

const (
	// maxRecent is the number of events that a feed keeps, and maxRecentBytes of how much JSON.
	maxRecent      = 4096
	maxRecentBytes = 2 << 20
	// maxRead is how many of them a client is sent at a time, and maxReadBytes with how much JSON, unless one has more.
	// A client that is slow has so many in memory.
	maxRead      = 256
	maxReadBytes = 32 << 10
	// lingerTime is how long a feed goes on without a client.
	lingerTime = time.Minute
	// maxFeeds is the number of sets of queues that are watched at a time. Clients of further sets filter the events of
	// all queues.
	maxFeeds = 16
	// rejoinAfter is the delay before a feed of events that ended is joined again.
	rejoinAfter = time.Second
)

// feeds are the feeds of a server, each of a set of queues.
type feeds struct {
	mu  sync.Mutex
	all map[string]*feed
}

// feed watches some queues for any number of clients. It keeps the last events; each client knows where it is and reads
// at its own pace, so a slow client neither delays nor burdens the others: it misses the events that it has not read
// in time.
type feed struct {
	key     string
	epoch   string // distinguishes events of this feed from events of other feeds
	ready   chan struct{}
	failed  error // why the feed could not begin; set when ready is closed
	ended   chan struct{}
	stop    context.CancelFunc
	clients int         // guarded by feeds.mu
	idle    *time.Timer // ends a feed without clients; guarded by feeds.mu

	mu      sync.Mutex
	recent  []recentEvent // a ring: the event of number n is at n % maxRecent
	oldest  uint64        // the number of the oldest event that is kept
	count   uint64        // events so far; the number of the next
	bytes   int           // of JSON that is kept
	streams crowd
}

// recentEvent is an event with its JSON.
type recentEvent struct {
	wire.Event
	text []byte
}

// join returns the feed of a set of queues, sorted, or of all queues if there are none. The caller calls leave.
func (fs *feeds) join(ctx context.Context, s *Server, queues []string) (*feed, error) {
	f := fs.get(s, queues)
	select {
	case <-f.ready:
	case <-ctx.Done():
		fs.leave(f)
		return nil, context.Cause(ctx)
	}
	if f.failed != nil {
		fs.leave(f)
		if s.ending.Err() != nil {
			return nil, errEnding
		}
		return nil, f.failed
	}
	return f, nil
}

func (fs *feeds) get(s *Server, queues []string) *feed {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	key := strings.Join(queues, "\x00")
	if fs.all[key] == nil && len(fs.all) >= maxFeeds {
		key, queues = "", nil
	}
	f := fs.all[key]
	if f == nil {
		f = &feed{key: key, epoch: store.NewID(), ready: make(chan struct{}), ended: make(chan struct{})}
		var ctx context.Context
		ctx, f.stop = context.WithCancel(s.ending)
		if fs.all == nil {
			fs.all = map[string]*feed{}
		}
		fs.all[key] = f
		s.open.Go(func() {
			f.run(ctx, s.client, queues)
			fs.mu.Lock()
			defer fs.mu.Unlock()
			fs.remove(f)
		})
	}
	f.clients++
	if f.idle != nil {
		f.idle.Stop()
	}
	return f
}

// leave ends the feed some time after its last client has left, so that it can come back.
func (fs *feeds) leave(f *feed) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.clients--; f.clients == 0 && fs.all[f.key] == f {
		f.idle = time.AfterFunc(lingerTime, func() { fs.endIdle(f) })
	}
}

func (fs *feeds) endIdle(f *feed) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.clients == 0 {
		fs.remove(f)
	}
}

// remove ends a feed. The caller holds mu.
func (fs *feeds) remove(f *feed) {
	if fs.all[f.key] == f {
		delete(fs.all, f.key)
	}
	if f.idle != nil {
		f.idle.Stop()
	}
	f.stop()
}

// run watches the queues until ctx ends or the watch fails.
func (f *feed) run(ctx context.Context, c *later.Client, queues []string) {
	defer close(f.ended)
	watch, err := c.Watch(ctx, queues...)
	f.failed = err
	close(f.ready)
	if err != nil {
		return
	}
	defer watch.Close()
	for {
		e, err := watch.Next(ctx)
		if err != nil {
			return
		}
		f.add(view.Event(&e))
	}
}

func (f *feed) add(e wire.Event) {
	entry := recentEvent{e, jsontext.Append(nil, &e)}
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.count-f.oldest == maxRecent || f.count > f.oldest && f.bytes+len(entry.text) > maxRecentBytes {
		old := &f.recent[f.oldest%maxRecent]
		f.bytes -= len(old.text)
		*old = recentEvent{}
		f.oldest++
	}
	if len(f.recent) < maxRecent {
		f.recent = append(f.recent, entry)
	} else {
		f.recent[f.count%maxRecent] = entry
	}
	f.bytes += len(entry.text)
	f.count++
	f.streams.beat()
}

// read returns the events from a number on, as many as a client is sent at a time, and how many before them are not
// kept any more. It has the client listen for the next one.
func (f *feed) read(from uint64, client *listener) (events []recentEvent, missed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if from < f.oldest {
		missed, from = f.oldest-from, f.oldest
	}
	for size := 0; from < f.count && len(events) < maxRead; from++ {
		e := f.recent[from%maxRecent]
		if size += len(e.text); size > maxReadBytes && len(events) > 0 {
			break
		}
		events = append(events, e)
	}
	client.listen()
	return events, missed
}

// follow calls take with the events from a number on, as they come, and with how many before them were missed, until
// ctx or the feed ends. It reports whether the feed has ended.
func (f *feed) follow(ctx context.Context, next uint64, take func(events []recentEvent, missed uint64)) (ended bool) {
	client := f.streams.join()
	defer client.leave()
	for {
		events, missed := f.read(next, client)
		if next += missed + uint64(len(events)); missed > 0 || len(events) > 0 {
			take(events, missed)
			continue
		}
		select {
		case <-client.C:
		case <-ctx.Done():
			return false
		case <-f.ended:
			return true
		}
	}
}

// followFeeds calls follow with a feed of some queues, and with another one after that has ended, until ctx ends. It
// calls failed with the first error of several.
func (s *Server) followFeeds(ctx context.Context, queues []string, follow func(*feed), failed func(error)) {
	var last *feed
	for told := false; ctx.Err() == nil; {
		f, err := s.feeds.join(ctx, s, queues)
		switch {
		case err == nil:
			if f != last { // the one that has ended may be there for a moment
				follow(f)
			}
			s.feeds.leave(f)
			last, told = f, false
		case !told && ctx.Err() == nil:
			failed(err)
			told = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(rejoinAfter):
		}
	}
}

// end returns the number of the next event.
func (f *feed) end() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// start returns the number of the first event that is kept.
func (f *feed) start() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.oldest
}

// idBefore returns the id that stands for all events before a number: a client continues from it with the event of that
// number.
func (f *feed) idBefore(number uint64) string { return fmt.Sprintf("%s-%d", f.epoch, number) }

// position returns the number of the event after an id, and reports whether the id is one of this feed. It otherwise
// returns the number of the next event.
func (f *feed) position(id string) (number uint64, known bool) {
	text, ok := strings.CutPrefix(id, f.epoch+"-")
	number, err := strconv.ParseUint(text, 10, 64)
	if end := f.end(); !ok || err != nil || number > end {
		return end, false
	}
	return number, true
}
