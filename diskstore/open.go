package diskstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// Store is an engine in a directory. It implements store.Store.
type Store struct {
	directory
	clock     Clock
	logger    *slog.Logger
	syncEvery time.Duration
	memTable  uint64

	ballastSize int64
	reserve     *reserve

	db   *pebble.DB
	lock *directoryLock

	mu        sync.Mutex
	closing   bool
	gathering *group
	gathered  chan struct{}  // has a token when the gathering group has calls
	writing   chan *group    // from the writer to the acknowledger
	calls     sync.WaitGroup // calls under way
	loops     sync.WaitGroup
	closed    chan struct{} // closed when Close begins
	ended     chan struct{} // closed when it is over
	unsynced  atomic.Bool   // something was written since the last sync, with syncEvery

	run     uint64        // of the marks in the log
	applied atomic.Uint64 // the sequence number behind the last batch
	synced  atomic.Uint64 // the same of the last batch that is known to be fsynced
	found   *survey       // in the directory when it was opened

	failing sync.Once
	failed  chan struct{} // closed when the store stopped for good
	failure error         // set before
	stuck   chan struct{} // closed when Pebble is not to be called any more
	sticks  sync.Once

	waitMu  sync.Mutex
	bells   map[string]*bell // by queue
	waiters atomic.Int64     // in line; grows in the writer only

	// What follows belongs to the writer.
	queues        map[string]*queue
	lastNumber    uint32
	numbersReused bool // the numbers of queues came to their end once
	lastNow       int64
	steps         int // that scans of indexes took, for tests
}

// Option changes a Store that Open makes.
type Option func(*Store)

// WithClock makes the store live by c instead of the machine's clock.
func WithClock(c Clock) Option { return func(s *Store) { s.clock = c } }

// WithLogger has the store log to l; nil is silence, the default.
func WithLogger(l *slog.Logger) Option {
	return func(s *Store) {
		if l != nil {
			s.logger = l
		}
	}
}

// WithSyncEvery lets calls return before what they did is fsynced, and fsyncs every d instead. The death of the
// process loses nothing all the same; that of the machine may undo up to the last d of acknowledged calls,
// always the latest ones: sends are lost, acked messages come again. 0 is the default, an fsync before every
// reply; else d is a millisecond or more.
func WithSyncEvery(d time.Duration) Option { return func(s *Store) { s.syncEvery = d } }

// withFS puts the files elsewhere, for tests.
func withFS(fs vfs.FS) Option { return func(s *Store) { s.fs = fs } }

// withBallast changes how much room is kept for a full disk, for tests.
func withBallast(size int64) Option { return func(s *Store) { s.ballastSize = size } }

// withMemTable changes how much is gathered in memory and in one log before it goes to a table, for tests.
func withMemTable(size uint64) Option { return func(s *Store) { s.memTable = size } }

// minSyncEvery keeps the loop that syncs from taking a whole core.
const minSyncEvery = time.Millisecond

const (
	cacheSize    = 64 << 20
	memTableSize = 64 << 20
)

// Open opens the store in a directory, and makes it if it is missing or empty. One process has it open at a
// time. Errors: ErrUnavailable when another has it, naming that; ErrUnsupported when the directory holds
// something else or a later format; ErrCorrupt when a file is damaged. After a crash, the torn tail of the log
// is cut; nothing that was acknowledged is in it.
func Open(dir string, opts ...Option) (*Store, error) {
	s := &Store{
		directory: directory{dir, vfs.Default}, clock: systemClock{}, logger: slog.New(slog.DiscardHandler),
		memTable: memTableSize, ballastSize: -1,
		gathering: newGroup(),
		gathered:  make(chan struct{}, 1),
		writing:   make(chan *group, maxUnsynced),
		closed:    make(chan struct{}),
		ended:     make(chan struct{}),
		failed:    make(chan struct{}),
		stuck:     make(chan struct{}),
		queues:    map[string]*queue{},
		bells:     map[string]*bell{},
	}
	for _, opt := range opts {
		opt(s)
	}
	if s.ballastSize < 0 {
		if s.ballastSize = 0; s.fs == vfs.Default {
			s.ballastSize = ballastSize
		}
	}
	if s.syncEvery < 0 || s.syncEvery > 0 && s.syncEvery < minSyncEvery {
		return nil, store.Invalid("sync every %v: give 0 (before every reply) or at least %v", s.syncEvery, minSyncEvery)
	}
	s.reserve = newReserve(s)
	if err := s.reserve.try(s.claimDirectory); err != nil {
		s.reserve.end()
		s.loops.Wait()
		return nil, err
	}
	if err := s.openDatabase(); err != nil {
		s.reserve.end()
		s.loops.Wait()
		return nil, errors.Join(err, s.releaseDirectory())
	}
	s.reserve.begin()
	s.loops.Go(s.write)
	s.loops.Go(s.acknowledge)
	if s.syncEvery > 0 {
		s.loops.Go(s.sync)
	}
	return s, nil
}

func (s *Store) openDatabase() error {
	if err := s.examineFiles(); err != nil {
		return err
	}
	options := &pebble.Options{
		FS:                 s.reserve,
		Lock:               s.lock.Lock,
		FormatMajorVersion: pebble.FormatNewest,
		CacheSize:          cacheSize,
		MemTableSize:       s.memTable,
		Logger:             pebbleLogger{s},
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { s.logger.Error("later: store in trouble", "dir", s.dir, "cause", err) },
			WriteStallBegin: func(pebble.WriteStallBeginInfo) { s.reserve.setStalled(true) },
			WriteStallEnd:   func() { s.reserve.setStalled(false) },
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				s.logger.Error("later: damaged file", "dir", s.dir, "file", info.Path, "cause", info.Details)
			},
		},
	}
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // bits a key: 1 in 100 ids is looked for in vain
	}
	err := s.guarded(func() (err error) {
		s.db, err = pebble.Open(s.dir, options)
		return err
	})
	if err != nil {
		if pebble.IsCorruptionError(err) {
			return fmt.Errorf("%w: %s: %w; %s", store.ErrCorrupt, s.dir, err, s.advice())
		}
		return fmt.Errorf("%w: opening %s: %w", store.ErrUnavailable, s.dir, err)
	}
	s.run = newRun()
	err = s.writeState(state{phase: opened, run: s.run})
	if err == nil {
		err = s.load()
	}
	if err != nil {
		return errors.Join(err, s.guarded(s.db.Close))
	}
	return nil
}

// examineFiles looks at the directory before Pebble changes anything in it, and refuses what is damaged.
func (s *Store) examineFiles() (err error) {
	if s.found, err = s.survey(); err != nil {
		return err
	}
	if err := s.damaged(s.found); err != nil {
		return err
	}
	for _, t := range s.found.tears {
		s.logger.Warn("later: a crash left the end of a file unfinished, and it is cut off; nothing acknowledged was in it",
			"dir", s.dir, "file", t.file, "at", t.at, "bytes", t.size)
	}
	return s.reserve.try(func() error { return s.writeState(state{phase: opening, run: s.found.state.run}) })
}

// enter begins a call.
func (s *Store) enter(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return store.ErrClosed
	case s.hasFailed():
		return s.failure
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	s.calls.Add(1)
	return nil
}

// Close waits for the calls under way, ends every Wait with ErrClosed, and closes the directory. Called again it waits
// for the first. Of a store that Pebble gave up, the directory stays locked until the process ends.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		<-s.ended
		return nil
	}
	s.closing = true
	s.mu.Unlock()
	defer close(s.ended)
	close(s.closed)
	s.reserve.end()
	idle := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(s.gathered)
		close(idle)
	}()
	select {
	case <-idle:
	case <-s.stuck: // one of them may be in Pebble for good
	}
	err := s.guarded(func() error {
		s.loops.Wait()
		return s.db.Close()
	})
	switch {
	case s.hasFailed():
		err = nil // every call was told
	case err == nil:
		err = s.noteClosed()
	}
	return errors.Join(err, s.releaseDirectory())
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
		if !s.unsynced.Swap(false) {
			continue
		}
		applied := s.applied.Load()
		if err := s.db.LogData(nil, pebble.Sync); err != nil {
			s.fail(err)
			return
		}
		s.noteSynced(applied)
	}
}
