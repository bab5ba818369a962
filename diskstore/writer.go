package diskstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/codec"
)

// The writer executes requests in groups. A group is one write to the log and shares one fsync. It ends when no request
// waits any more, or at one of these limits, so that an urgent request never waits for more than about two groups.
const (
	maxGroupRequests = 1000
	maxGroupBytes    = 1 << 20 // of changes, before the last request
	maxGroupTime     = 5 * time.Millisecond
)

// maxUnsynced is how many groups may wait for their fsync while the next one is executed.
const maxUnsynced = 1

// group is requests that were executed together.
type group struct {
	requests []*request
	quick    []*request    // return when they are written, before the fsync; see sync.go
	batch    *pebble.Batch // to wait for; nil when nothing is
	number   uint64        // in the log; 0 when nothing of it waits for the fsync
	durable  bool          // has to be fsynced, whatever syncEvery says
}

// tx is the state of the group that the writer executes. Changes go to the batch and reads come from the database, so
// call flush before a read of keys that the batch may have changed.
type tx struct {
	reader
	batch    *pebble.Batch
	value    []byte // scratch
	counters meta   // scratch
	now      int64  // the engine's clock in this call, in milliseconds
	soonest  int64  // its next whole millisecond
	micros   int64  // the same time in microseconds
	size     int    // bytes of changes of the group that were written before its end
	durable  bool   // a call of the group asks for an fsync, whatever syncEvery says
	quick    bool   // this call returns when it is written
	full     error  // why sends are refused
	checked  bool   // full was found out in this group
	touched  map[*queue]struct{}
	leases   []touchedLease
	ready    []found // scratch of a claim
}

type touchedLease struct {
	queue *queue
	lease *lease
}

// write is the writer's loop. It ends when the backlog's channel is closed and the backlog is empty.
func (s *Store) write() {
	defer close(s.writing)
	t := &tx{reader: reader{s: s, src: s.db}, touched: map[*queue]struct{}{}}
	for _, c := range s.corrected {
		t.touchLease(c.queue, c.lease)
	}
	for open := true; open; {
		_, open = <-s.backlog.wake
		for !s.hasFailed() { // afterwards s.failed ends the calls
			g, err := t.run()
			if err != nil {
				s.fail(err)
			}
			if len(g.requests)+len(g.quick) == 0 {
				break
			}
			if len(g.requests) > 0 || g.batch != nil {
				s.writing <- g
			}
		}
	}
}

// run executes waiting requests until one of the limits of a group, and applies their changes.
func (t *tx) run() (*group, error) {
	t.batch, t.size, t.durable, t.checked = t.s.db.NewBatch(), 0, false, false
	g := &group{}
	begin, large := time.Now(), false
	for {
		n := len(g.requests) + len(g.quick)
		late := n%8 == 7 && time.Since(begin) > maxGroupTime // reading the clock is a part of a short call's cost
		if n == maxGroupRequests || n > 0 && t.size+t.batch.Len() > maxGroupBytes || late {
			break
		}
		r := t.s.backlog.next()
		if r == nil {
			break
		}
		large = large || r.large
		t.readClock()
		t.quick = false
		r.execute(t)
		if t.quick && t.s.syncEvery == 0 {
			g.quick = append(g.quick, r)
		} else {
			g.requests = append(g.requests, r)
		}
		if t.s.hasFailed() {
			return g, nil
		}
	}
	t.s.backlog.endGroup(large)
	return g, t.finish(g)
}

// finish applies the last changes of a group, and asks for the fsync.
func (t *tx) finish(g *group) error {
	t.gather()
	// Earlier writes without an fsync, of this group or an earlier one, go with the fsync of this one.
	late := t.durable && t.s.syncEvery > 0
	if t.batch.Empty() && t.size == 0 && !late {
		t.s.written.expect(g.quick)
		return t.batch.Close()
	}
	// If the batch is empty, something was written without waiting: the log's next sync includes it.
	number, tag := t.s.written.begin()
	if err := t.batch.LogData(tag, nil); err != nil {
		return err
	}
	g.number = number
	t.s.written.expect(g.quick)
	if err := t.apply(pebble.Sync); err != nil {
		return err
	}
	g.batch, g.durable = t.batch, late
	return nil
}

// errBehind is the error of a flush that would make the writer wait.
var errBehind = errors.New("tables are not merged or written as fast as new ones are asked for")

// flush has Pebble write its memory table. It returns errBehind where Pebble would hold the writer up: until another
// memory table is written, or until tables are merged, which may need the room that this flush is to make.
func (s *Store) flush() (flushed <-chan struct{}, err error) {
	defer recovered(&err)
	m := s.db.Metrics()
	if m.MemTable.Count > 1 || m.Levels[0].Sublevels >= stopSublevels {
		return nil, errBehind
	}
	s.reserve.merge()
	return s.db.AsyncFlush()
}

// flush makes all changes so far readable. They become durable with the group.
func (t *tx) flush() error {
	t.gather()
	if t.batch.Empty() {
		return nil
	}
	t.size += t.batch.Len()
	if err := t.apply(pebble.NoSync); err != nil {
		return t.s.fail(err)
	}
	if err := t.batch.Close(); err != nil {
		return t.s.fail(err)
	}
	t.batch = t.s.db.NewBatch()
	return nil
}

// gather puts changed leases and counters into the batch.
func (t *tx) gather() {
	for _, c := range t.leases {
		t.storeLease(c.queue, c.lease)
	}
	clear(t.leases)
	t.leases = t.leases[:0]
	for q := range t.touched {
		if q.lanes != nil {
			t.keepStates(q)
		}
		t.counters = q.meta(t.micros)
		t.value = codec.Append(t.value[:0], &t.counters)
		t.set(appendKey(t.key[:0], q.number, kindMeta), t.value)
		t.gatherCounts(q)
		clear(q.unread)
	}
	clear(t.touched)
}

// apply writes the batch to the log and makes it readable. Pebble panics when its log is broken.
func (t *tx) apply(mode *pebble.WriteOptions) (err error) {
	if t.s.hasFailed() {
		return t.s.failure // the callers have an error already, and may have reused their arguments
	}
	defer func() {
		if r := recover(); r != nil {
			t.s.giveUp()
			err = fmt.Errorf("%v", r)
		}
	}()
	if mode.Sync {
		return t.s.db.ApplyNoSyncWait(t.batch, mode)
	}
	return t.s.db.Apply(t.batch, mode)
}

// acknowledge is the second loop: it waits for the fsync of each group and lets its callers go. A group that only read
// comes after the groups that wrote the keys it read, so they are durable too.
func (s *Store) acknowledge() {
	for g := range s.writing {
		if err := s.awaitSync(g); err != nil {
			s.fail(err)
			continue
		}
		if s.hasFailed() {
			continue
		}
		if g.batch != nil {
			if g.batch.Close(); !s.isOwned() {
				continue
			}
			s.written.reached(g.number)
		}
		for _, r := range g.requests {
			r.done <- struct{}{} // has room
		}
	}
}

// awaitSync waits until a group is fsynced, or only written, with syncEvery.
func (s *Store) awaitSync(g *group) error {
	if g.batch == nil {
		return nil
	}
	if err := g.batch.SyncWait(); err != nil || !g.durable {
		return err
	}
	return s.log.Load().syncNow()
}

// sync is the third loop, with syncEvery.
func (s *Store) sync() {
	ticker := time.NewTicker(s.syncEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.closed: // closing the database syncs it
			return
		case <-s.failed:
			return
		}
		if err := s.log.Load().syncNow(); err != nil {
			s.fail(err)
			return
		}
	}
}
