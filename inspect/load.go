package inspect

import (
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/reserved"
)

// load counts the workers that may claim messages of a queue, and their handlers.
type load struct {
	workers  int
	running  int   // workers that are neither paused nor draining
	handlers int64 // of the running workers
	busy     int64 // handlers that run
	unknown  bool  // a running worker does not tell how many handlers it has
	since    time.Time
	worker   string   // the name of one of the running workers, or of any if none runs
	paused   []string // the names of the paused workers, the first maxPausedNames + 1
}

// only returns the name of the worker if there is only one.
func (l *load) only(workers int) string {
	if workers == 1 {
		return l.worker
	}
	return ""
}

// full reports whether all handlers are busy.
func (l *load) full() bool { return l.running > 0 && !l.unknown && l.busy >= l.handlers }

// add adds a worker.
func (l *load) add(w *fleet.Info) {
	l.workers++
	if w.State == fleet.Paused {
		l.pausedToo(w.Name)
	}
	if w.State != fleet.Running {
		if l.running == 0 {
			l.worker = w.Name
		}
		return
	}
	l.running++
	l.worker = w.Name
	if w.Concurrency == 0 {
		l.unknown = true
		return
	}
	l.handlers += int64(w.Concurrency)
	l.busy += int64(min(w.HeldCount+w.Forwarding, w.Concurrency))
	if len(w.Held) > 0 && (l.since.IsZero() || w.Held[0].Since.Before(l.since)) {
		l.since = w.Held[0].Since
	}
}

// maxPausedNames is how many paused workers of a queue are named.
const maxPausedNames = 5

func (l *load) pausedToo(names ...string) {
	for _, name := range names {
		if len(l.paused) <= maxPausedNames && !slices.Contains(l.paused, name) {
			l.paused = append(slices.Clone(l.paused), name)
		}
	}
}

// and adds another load.
func (l load) and(o load) load {
	if o.workers == 0 {
		return l
	}
	if l.running == 0 && (o.running > 0 || l.workers == 0) {
		l.worker = o.worker
	}
	l.workers += o.workers
	l.running += o.running
	l.handlers += o.handlers
	l.busy += o.busy
	l.unknown = l.unknown || o.unknown
	l.pausedToo(o.paused...)
	if l.since.IsZero() || !o.since.IsZero() && o.since.Before(l.since) {
		l.since = o.since
	}
	return l
}

// loads are the loads of all queues.
type loads struct {
	byQueue map[string]load
	every   load // workers that do not name all of their queues, so that they may have any
	all     load // all workers
}

func newLoads(workers []fleet.Info) loads {
	l := loads{byQueue: map[string]load{}}
	for i := range workers {
		w := &workers[i]
		l.all.add(w)
		if len(w.Queues) < w.QueueCount {
			l.every.add(w)
			continue
		}
		for _, queue := range w.Queues {
			of := l.byQueue[queue]
			of.add(w)
			l.byQueue[queue] = of
		}
	}
	return l
}

// of returns the load of a queue. Workers distribute topics and run schedules without naming them.
func (l *loads) of(queue string) load {
	if queue == reserved.Schedules || strings.HasPrefix(queue, reserved.Topic) {
		return l.all
	}
	return l.byQueue[queue].and(l.every)
}
