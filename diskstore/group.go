package diskstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

// maxBatchSize is how many bytes of changes are gathered before they are written, in the midst of a group.
const maxBatchSize = 4 << 20

// maxUnsynced is how many groups may wait for their fsync while the next one gathers.
const maxUnsynced = 1

// group is the calls that are done together, and share one fsync.
type group struct {
	calls []*request
	done  chan struct{} // closed when all of them are durable
	batch *pebble.Batch // to be waited for; nil when nothing is
}

// request is one call in a group. Its caller may give it up: before the writer has come to it that leaves no trace;
// in the midst of it the caller stays, since what it passed is still read; and after it nobody knows whether its
// effect will last, which it does if the fsync comes.
type request struct {
	run func(*tx)

	mu    sync.Mutex
	at    stage
	ended chan struct{} // made by the caller that stays
}

type stage uint8

const (
	waiting stage = iota
	running
	ran
	givenUp
)

// do is the writer's part.
func (r *request) do(t *tx) {
	r.mu.Lock()
	begin := r.at == waiting
	if begin {
		r.at = running
	}
	r.mu.Unlock()
	if !begin {
		return
	}
	r.run(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = ran
	if r.ended != nil {
		close(r.ended)
	}
}

// giveUp is for a caller that will not wait for the fsync. It tells whether the call never ran.
func (r *request) giveUp(stuck <-chan struct{}) (unseen bool) {
	r.mu.Lock()
	if r.at == waiting {
		r.at = givenUp
	}
	unseen = r.at == givenUp
	var ended chan struct{}
	if r.at == running {
		ended = make(chan struct{})
		r.ended = ended
	}
	r.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-stuck: // the writer may never come back; it applies nothing from here on
		}
	}
	return unseen
}

func newGroup() *group { return &group{done: make(chan struct{})} }

// tx is what the writer does a group with. Changes go to the batch; what is read comes from the database, so
// flush comes before reading what the batch may have changed.
type tx struct {
	s       *Store
	batch   *pebble.Batch
	key     []byte // scratch
	value   []byte
	now     int64 // the engine's clock in this call, in milliseconds
	soonest int64 // its next whole millisecond
	written bool  // a part of the group was written without waiting for it
	durable bool  // a call of the group wants an fsync, whatever syncEvery says
	room    error
	checked bool // room was looked at in this group
	touched map[*queue]struct{}
	leases  []touchedLease
}

type touchedLease struct {
	queue *queue
	lease *lease
}

// do has the writer do one call, and returns when all that the call did and saw is durable. When ctx ends first it
// returns its cause, and says so if the call may have had its effect.
func (s *Store) do(ctx context.Context, run func(*tx)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	s.mu.Lock()
	g := s.gathering
	r := &request{run: run}
	g.calls = append(g.calls, r)
	first := len(g.calls) == 1
	s.mu.Unlock()
	if first {
		s.gathered <- struct{}{} // has room for one: the writer takes it before it takes the group
	}
	select {
	case <-g.done:
		return nil
	case <-s.failed:
		r.giveUp(s.stuck)
		return s.failure
	case <-ctx.Done():
	}
	if r.giveUp(s.stuck) {
		return context.Cause(ctx)
	}
	select {
	case <-g.done: // just in time
		return nil
	default:
		return fmt.Errorf("outcome unknown, the store is at it: %w", context.Cause(ctx))
	}
}

// write is the writer's loop.
func (s *Store) write() {
	defer close(s.writing)
	t := &tx{s: s, touched: map[*queue]struct{}{}}
	for range s.gathered {
		s.mu.Lock()
		g := s.gathering
		s.gathering = newGroup()
		s.mu.Unlock()
		if s.hasFailed() {
			continue // the callers are told by s.failed
		}
		if err := t.run(g); err != nil {
			s.fail(err)
		}
		s.writing <- g
	}
}

// run does the calls of a group and applies what they changed.
func (t *tx) run(g *group) error {
	t.batch, t.written, t.durable, t.checked = t.s.db.NewBatch(), false, false, false
	for _, call := range g.calls {
		t.now, t.soonest = t.s.now()
		call.do(t)
		if t.batch.Len() > maxBatchSize {
			if err := t.flush(); err != nil {
				return err
			}
		}
		if t.s.hasFailed() {
			return nil
		}
	}
	if err := t.gather(); err != nil {
		return err
	}
	// What was written before without an fsync, by this group or an earlier one, goes with the fsync of this one.
	late := t.durable && t.s.syncEvery > 0
	switch {
	case t.batch.Empty() && !t.written && !late:
		return t.batch.Close()
	case t.s.syncEvery > 0 && !late:
		if err := t.apply(pebble.NoSync); err != nil {
			return err
		}
		t.s.unsynced.Store(true) // only now: a sync in the midst of the write may be ahead of it
		return t.batch.Close()
	case t.batch.Empty():
		// Something was written without waiting: the log's next sync takes it along.
		if err := t.batch.LogData(nil, nil); err != nil {
			return err
		}
	}
	if err := t.apply(pebble.Sync); err != nil {
		return err
	}
	g.batch = t.batch
	return nil
}

// flush makes all changes so far readable. They become durable with the group.
func (t *tx) flush() error {
	if err := t.gather(); err != nil {
		return t.s.fail(err)
	}
	if t.batch.Empty() {
		return nil
	}
	if err := t.apply(pebble.NoSync); err != nil {
		return t.s.fail(err)
	}
	t.written = true
	if err := t.batch.Close(); err != nil {
		return t.s.fail(err)
	}
	t.batch = t.s.db.NewBatch()
	return nil
}

// gather puts changed leases and counters into the batch.
func (t *tx) gather() error {
	for _, c := range t.leases {
		if err := t.storeLease(c.queue, c.lease); err != nil {
			return err
		}
	}
	clear(t.leases)
	t.leases = t.leases[:0]
	for q := range t.touched {
		q.meta.now = t.now
		t.key = appendKey(t.key[:0], q.number, kindMeta)
		t.value = appendMeta(t.value[:0], &q.meta)
		if err := t.batch.Set(t.key, t.value, nil); err != nil {
			return err
		}
		clear(q.unread)
	}
	clear(t.touched)
	return nil
}

// apply writes the batch to the log and makes it readable. Pebble panics when its log is broken.
func (t *tx) apply(mode *pebble.WriteOptions) (err error) {
	if t.s.hasFailed() {
		return t.s.failure // callers were told, and may have taken back what they passed
	}
	defer func() {
		if r := recover(); r != nil {
			t.s.giveUp()
			err = fmt.Errorf("%v", r)
		}
	}()
	if err := t.addMark(); err != nil {
		return err
	}
	if mode.Sync {
		err = t.s.db.ApplyNoSyncWait(t.batch, mode)
	} else {
		err = t.s.db.Apply(t.batch, mode)
	}
	t.s.applied.Store(max(t.s.applied.Load(), behind(t.batch))) // of a very large batch Pebble forgets the number
	return err
}

// acknowledge is the second loop: it waits for the fsync of each group and lets its callers go. A group that
// only read comes after those that wrote what it read, so it is durable too.
func (s *Store) acknowledge() {
	for g := range s.writing {
		if g.batch != nil {
			if err := g.batch.SyncWait(); err != nil {
				s.fail(err)
				continue
			}
		}
		if s.hasFailed() {
			continue
		}
		if g.batch != nil {
			s.noteSynced(behind(g.batch))
			g.batch.Close()
		}
		close(g.done)
	}
}

// fail stops the store for good: memory and disk may differ from now on, and after a failed fsync nobody knows
// what the disk holds. Every call from now on, and every one under way, is told why. It returns that error.
func (s *Store) fail(cause error) error {
	kind := store.ErrUnavailable
	if pebble.IsCorruptionError(cause) {
		kind = store.ErrCorrupt
	}
	s.failing.Do(func() {
		kept := "what was acknowledged before is on the disk"
		if s.syncEvery > 0 {
			kept = fmt.Sprintf("what was acknowledged before is on the disk, but for the last %v", s.syncEvery)
		}
		s.failure = &stopped{fmt.Errorf("%w: %s stopped: %w; %s: mend the disk and start the program again", kind, s.dir, cause, kept)}
		s.logger.Error("later: the store stopped", "dir", s.dir, "cause", cause)
		close(s.failed)
	})
	return s.failure
}

// stopped is the error of a store that stopped for good. To who would try again it is as good as closed.
type stopped struct{ error }

func (s *stopped) Unwrap() error        { return s.error }
func (s *stopped) Is(target error) bool { return target == store.ErrClosed }

func (s *Store) hasFailed() bool {
	select {
	case <-s.failed:
		return true
	default:
		return false
	}
}

// formatError is an ErrCorrupt of one thing that was read whole, by its checksum, and makes no sense. What is beside it
// is none the worse for it.
type formatError string

func (e formatError) Error() string { return fmt.Sprintf("%v: %s", store.ErrCorrupt, string(e)) }
func (e formatError) Unwrap() error { return store.ErrCorrupt }

// corrupt makes a formatError.
func corrupt(format string, args ...any) error { return formatError(fmt.Sprintf(format, args...)) }

func isFormatError(err error) bool {
	_, ok := errors.AsType[formatError](err)
	return ok
}

// view shows f a value, which is there only meanwhile; ok is false when there is none.
func (t *tx) view(key []byte, f func(value []byte) error) (ok bool, err error) {
	t.key = key
	value, closer, err := t.s.db.Get(key)
	if err == pebble.ErrNotFound {
		return false, nil
	}
	if err != nil {
		return false, t.s.unreadable(err)
	}
	err = f(value)
	if closed := closer.Close(); err == nil && closed != nil {
		err = t.s.unreadable(closed)
	}
	return err == nil, err
}

// get reads a value into the scratch memory; ok is false when there is none.
func (t *tx) get(key []byte) (value []byte, ok bool, err error) {
	ok, err = t.view(key, func(value []byte) error {
		t.value = append(t.value[:0], value...)
		return nil
	})
	if !ok {
		return nil, false, err
	}
	return t.value, true, nil
}

// unreadable names the store in an error of reading. Of a damaged file it says what to do; nothing else in the
// store is the worse for it.
func (s *Store) unreadable(err error) error {
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: reading %s: %w; %s", store.ErrCorrupt, s.dir, err, s.advice())
	}
	return fmt.Errorf("%w: reading %s: %w", store.ErrUnavailable, s.dir, err)
}
